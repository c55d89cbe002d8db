"""What the turns of one group share: models, decoders, costs.

A group is one draft at one temperature. Its decoders are compiled once, and c,
the verify ratios and the terms of alpha are measured on the same weights.
"""

from collections.abc import Sequence
import dataclasses

import jax
from jax import numpy as jnp

from specdec_jax import adaptive
from specdec_jax import cache as cache_lib
from specdec_jax import calibration
from specdec_jax import checkpoint
from specdec_jax import config as config_lib
from specdec_jax import drafters
from specdec_jax import examples as examples_lib
from specdec_jax import generate
from specdec_jax import measure
from specdec_jax import records
from specdec_jax import sampling as sampling_lib
from specdec_jax import sharding
from specdec_jax import vocab


@dataclasses.dataclass(frozen=True)
class Group:
  """One draft at one temperature: its settings share their plain decoding."""
  draft: str
  temperature: float


@dataclasses.dataclass(frozen=True)
class Models:
  """The target and, by name, the drafts."""
  target: checkpoint.Loaded
  drafts: dict[str, checkpoint.Loaded | drafters.Modelless]


def load_models(settings: config_lib.RunConfig) -> Models:
  """Loads target and drafts and checks that they share one vocabulary."""
  dtype = jnp.dtype(settings.dtype)
  target = checkpoint.load(
      settings.target, dtype, placement=layout(settings, settings.target))
  drafts: dict[str, checkpoint.Loaded | drafters.Modelless] = {}
  for name in settings.drafts:
    same = name == settings.target  # one copy of the weights is enough
    drafts[name] = target if same else drafters.load(
        name, dtype, placement=layout(settings, name))
    generate.bind_drafter(drafts[name], target.vocabulary)
  return Models(target, drafts)


def layout(
    settings: config_lib.RunConfig, name: str
) -> sharding.Layout | None:
  """Where a model of the run lies; None is the first device."""
  if not settings.mesh:
    return None
  split = name == settings.target or settings.draft_layout == 'split'
  return sharding.Layout(sharding.make_mesh(settings.mesh_sizes), split)


@dataclasses.dataclass(frozen=True)
class Job:
  """What the turns of one group share, compiled."""
  settings: config_lib.RunConfig
  group: Group
  decoders: dict[int | str, generate.Decoder]  # by gamma, 0 included
  target: measure.Side
  draft: measure.DraftSide

  @property
  def sampling(self) -> sampling_lib.Sampling:
    return self.decoders[0].sampling

  def encode(self, batch: Sequence[examples_lib.Example]) -> list[vocab.Source]:
    texts = [self.settings.prefix + example.source for example in batch]
    return self.decoders[0].encode(texts, batch[0].index)


def make_job(
    settings: config_lib.RunConfig, models: Models, group: Group
) -> Job:
  """A compiled decoder for each gamma that is a number."""
  target, draft = models.target, models.drafts[group.draft]
  decoders: dict[int | str, generate.Decoder] = {
      gamma: make_decoder(settings, models, group, gamma)
      for gamma in (0, *settings.gammas) if isinstance(gamma, int)}
  words = target.vocabulary
  return Job(
      settings, group, decoders,
      measure.Side(generate.bind(target, words.text_size), target.packed),
      measure.DraftSide(generate.bind_drafter(draft, words), draft.packed))


def make_decoder(
    settings: config_lib.RunConfig, models: Models, group: Group, gamma: int,
    policy: adaptive.Policy | None = None
) -> generate.Decoder:
  """One decoder of a group, compiled for every bucket."""
  decoder = generate.Decoder(
      models.target, models.drafts[group.draft], gamma=gamma,
      temperature=group.temperature, top_k=settings.top_k, top_p=settings.top_p,
      max_new_tokens=settings.max_new_tokens,
      source_buckets=settings.source_buckets, batch_size=settings.batch_size,
      seed=settings.seed, lenience=settings.lenience,
      acceptance=settings.acceptance, policy=policy, slots=settings.slots)
  for length in settings.source_buckets:
    decoder.compile(length)
  return decoder


def add_auto(job: Job, models: Models, cost: records.Row) -> Job:
  """The job with the decoder that `calibrate` found for `auto`."""
  gamma = cost['fastest']
  auto = _chooser(job, models, adaptive.timed_policy(
      {int(g): c for g, c in cost['round_costs'].items()}, cost['prior_alpha'])
  ) if gamma == config_lib.AUTO else _fixed(job, models, gamma)
  return dataclasses.replace(
      job, decoders=job.decoders | {config_lib.AUTO: auto})


def _fixed(job: Job, models: Models, gamma: int) -> generate.Decoder:
  return job.decoders.get(gamma) or make_decoder(
      job.settings, models, job.group, gamma)


def _chooser(
    job: Job, models: Models, policy: adaptive.Policy
) -> generate.Decoder:
  return make_decoder(
      job.settings, models, job.group, max(policy.gammas), policy)


def calibrate(
    job: Job, models: Models, examples: Sequence[examples_lib.Example]
) -> records.Row:
  """What `auto` is (see `calibration`), as `record_costs` writes it."""
  size, examples = job.settings.batch_size, examples[:calibration.SENTENCES]
  batches = [
      (job.encode(examples[at:at + size]), examples[at].index)
      for at in range(0, len(examples), size)]
  decoders: dict[int | str, generate.Decoder] = {
      gamma: _fixed(job, models, gamma)
      for gamma in (0, *job.settings.fixed_gammas)}
  times = calibration.measure(decoders, batches)
  chooser = _chooser(job, models, calibration.policy(times))
  return {
      'round_costs': {
          str(g): c for g, c in calibration.round_costs(times).items()},
      'prior_alpha': times.alpha,
      'fastest': calibration.fastest(times, chooser, decoders, batches)}


def source_array(settings: config_lib.RunConfig, sources) -> jax.Array:
  """Encoder inputs (batch_size, bucket); rows that are missing are filler."""
  longest = max(len(source.ids) for source in sources)
  return filled(settings, [source.ids for source in sources],
                vocab.bucket(longest, settings.source_buckets))


def filled(settings: config_lib.RunConfig, rows, length: int) -> jax.Array:
  filler = [()] * (settings.batch_size - len(rows))
  return sharding.put_rows(
      layout(settings, settings.target),
      jnp.asarray(vocab.pad([*rows, *filler], length)))


def measure_costs(
    job: Job, batch: Sequence[examples_lib.Example]
) -> records.Row:
  """What `record_costs` writes; in caches of the size that decoding begins in.
  """
  settings = job.settings
  source_bs = source_array(settings, job.encode(batch))
  gammas = settings.fixed_gammas
  slots = cache_lib.sizes(settings.slots, max(gammas) + 1)[0]
  costs = measure.costs(
      job.target, job.draft, source_bs, slots, gammas, job.sampling)
  return {
      'c': costs.c,
      'verify_ratio': {
          str(g): costs.verify_ratio(g) for g in settings.fixed_gammas},
      'draft_step_seconds': costs.draft_step,
      'target_step_seconds': costs.target_step,
      'source_length': source_bs.shape[1], 'batch_size': settings.batch_size,
      'compile_seconds': sum(
          decoder.compile_seconds for decoder in job.decoders.values()),
  }


def measure_betas(
    job: Job, sources: Sequence[vocab.Source],
    outputs: Sequence[generate.Output]
) -> list[list[float]]:
  """Sum of min(p, q) at each token that the target generated."""
  values = sharding.to_host(measure.betas(
      job.target, job.draft, source_array(job.settings, sources),
      filled(job.settings, [o.ids for o in outputs],
             job.settings.max_new_tokens), job.sampling,
      job.settings.lenience))
  return [[round(float(x), 6) for x in values[i, :len(o.ids)]]
          for i, o in enumerate(outputs)]
