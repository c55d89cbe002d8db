"""Texts to texts: the decoder that people call.

    target = specdec_jax.load('mini/target')
    draft = specdec_jax.load('mini/small')
    decoder = specdec_jax.Decoder(target, draft, gamma=4)
    [output] = decoder(['Open the file.'])
    output.text, output.ids, output.rounds

Sources are padded to a few bucket lengths, and each bucket's programs are
compiled once, before anything is timed.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import time
from typing import Any

from absl import logging
import jax
from jax import numpy as jnp
import numpy as np

from specdec_jax import adaptive
from specdec_jax import backend
from specdec_jax import cache as cache_lib
from specdec_jax import checkpoint
from specdec_jax import config as config_lib
from specdec_jax import decode
from specdec_jax import draft as draft_lib
from specdec_jax import drafters
from specdec_jax import rounds as rounds_lib
from specdec_jax import sampling as sampling_lib
from specdec_jax import sharding
from specdec_jax import t5
from specdec_jax import vocab


class NonFiniteError(FloatingPointError):
  """A model gave a logit that is no number."""


@dataclasses.dataclass(frozen=True)
class Round:
  """Counts of one round; see `rounds.Log`."""
  drafted: int
  accepted: int
  discarded: int


@dataclasses.dataclass(frozen=True)
class Output:
  """One decoded sentence.

  Attributes:
    text: without EOS.
    ids: EOS included where the sentence ended by itself.
    finish_reason: `eos` or `length` (cut by the budget).
    rounds: counts of each round; one target call each.
    source: the encoder input, and whether it was cut.
    encoder_seconds, decoder_seconds: of its batch, shared equally.
  """
  text: str
  ids: tuple[int, ...]
  finish_reason: str
  rounds: tuple[Round, ...]
  source: vocab.Source
  encoder_seconds: float
  decoder_seconds: float


@dataclasses.dataclass(frozen=True)
class Programs:
  """The compiled steps of decoding; see `decode.generate` for arguments.

  Each start gives its state and a number to wait for: the state itself is
  handed over to the loop before it exists.
  """
  start_target: Callable
  start_draft: Callable
  generate: Callable


@dataclasses.dataclass(frozen=True)
class Start:
  """A batch that is encoded and not yet decoded: what a round needs."""
  target_params: Any
  draft_params: Any
  keys: jax.Array
  budget: rounds_lib.AnyArray
  state: rounds_lib.DecodeState


@functools.cache
def _start(start: Callable, slots: int) -> Callable:
  return jax.jit(
      lambda params, ids: (start(params, ids, slots), jnp.sum(ids)),
      compiler_options=backend.compiler_options())


@functools.cache
def _programs(target_start: Callable, spec: rounds_lib.Spec) -> Programs:
  """Kept until `release_programs`: equal decoders compile once."""
  return Programs(
      start_target=_start(target_start, spec.sizes[0]),
      start_draft=_start(spec.drafter.start, spec.sizes[0]),
      generate=jax.jit(functools.partial(decode.generate, spec),
                       donate_argnums=(2, 3),
                       compiler_options=backend.compiler_options()))


def release_programs() -> None:
  """Lets go of every compiled program; those in use stay with their users.

  On a CPU a program holds some hundred memory mappings, of which Linux allows a
  process 65,530; a process that compiles a hundred programs and keeps them is
  aborted inside the compiler.
  """
  _programs.cache_clear()
  _start.cache_clear()
  jax.clear_caches()


class Decoder:
  """Decodes sentences with a target and, where given, a draft.

  Args:
    target, draft: from `load`; without a draft gamma must be 0. A draft may
      also be one without a model, as `load('mini/bigram')` or `load('copy')`.
    gamma: drafts a round; 0 is plain decoding.
    temperature, top_k, top_p: adjust both models' laws.
    max_new_tokens: budget of a sentence. One that reaches it is marked
      `length`.
    source_buckets: encoder lengths to pad to. A longer source is cut to the
      largest, with a warning.
    batch_size: sentences decoded together; the last batch is filled up.
    seed: with a sentence's index it gives the sentence's key.
    lenience: 1 is exact. Below it more drafts are kept and the output is no
      longer the target's (see `accept`).
    acceptance: a synthetic one in place of the rule's: real machinery at a
      given alpha, for timing. The output then means nothing.
    policy: chooses gamma round by round, `gamma` at most (see `adaptive`). What
      it can never choose is not compiled; one that begins with 0 is plain
      decoding.
    slots: room of the caches, if it should be larger than needed: decoders that
      share it share the encoders' programs. Caches begin small and double, so
      room that no sentence needs costs compilation and no time.

  Raises:
    ValueError: naming the option, its value and what is allowed.
    vocab.VocabularyError: where the two vocabularies differ.
  """

  def __init__(
      self,
      target: checkpoint.Loaded,
      draft: checkpoint.Loaded | drafters.Modelless | None = None,
      *,
      gamma: int = 4,
      temperature: float = 0.0,
      top_k: int = 0,
      top_p: float = 1.0,
      max_new_tokens: int = 256,
      source_buckets: Sequence[int] = (32, 64, 128, 256, 512),
      batch_size: int = 1,
      seed: int = 0,
      lenience: float = 1.0,
      acceptance: float | None = None,
      policy: adaptive.Policy | None = None,
      slots: int | None = None,
  ):
    check_whole('max_new_tokens', max_new_tokens, 1)
    check_whole('gamma', gamma, 0, max_new_tokens if draft else 0)
    check_whole('batch_size', batch_size, 1)
    check_whole('seed', seed, 0, 2**31 - 1)
    for size in source_buckets:
      check_whole('source_buckets', size, 1)
    if not (isinstance(lenience, int | float) and 0 < lenience <= 1):
      raise ValueError(
          f'lenience={lenience!r}: allowed are numbers above 0 up to 1')
    if acceptance is not None and not 0 <= acceptance <= 1:
      raise ValueError(
          f'acceptance={acceptance!r}: allowed are None and numbers of 0 to 1')
    if policy is not None and max(policy.gammas) != gamma:
      raise ValueError(
          f'policy.gammas={policy.gammas}: allowed are up to gamma={gamma}')
    if policy is not None:
      policy = adaptive.reduced(policy)
      gamma = max(policy.gammas)
    self.policy = policy if gamma else None
    self.sampling = sampling_lib.make(temperature, top_k, top_p)
    self.target, self.draft = target, draft
    self.max_new_tokens, self.batch_size = max_new_tokens, batch_size
    self.source_buckets = tuple(sorted(source_buckets))
    self.seed = seed
    self.vocabulary = target.vocabulary
    self.target_model = bind(target, self.vocabulary.text_size)
    drafter = draft_lib.NO_DRAFTER
    if draft is not None:
      bound = bind_drafter(draft, self.vocabulary)
      drafter = bound if gamma else drafter
    self.spec = rounds_lib.Spec(
        self.target_model.extend, drafter, gamma, max_new_tokens,
        slots or max_new_tokens + gamma + 1, float(lenience),
        acceptance)
    self.programs = _programs(self.target_model.start, self.spec)
    self._warm: set[int] = set()  # buckets that have run
    self.compile_seconds = 0.0

  def encode(self, texts: Sequence[str], first: int = 0) -> list[vocab.Source]:
    """Encoder inputs; warns about every text that was cut."""
    limit = self.source_buckets[-1]
    sources = [self.vocabulary.encode_source(text, limit) for text in texts]
    for i, source in enumerate(sources, first):
      if source.truncated:
        logging.warning(
            'sentence %d has %d source tokens, cut to source_buckets=%d',
            i, source.full_length, limit)
    return sources

  def __call__(
      self, texts: Sequence[str], first_index: int = 0
  ) -> list[Output]:
    """Decodes each text; `first_index` is the data-set index of the first."""
    if isinstance(texts, str):
      raise ValueError(f'texts={texts!r}: allowed is a list of texts')
    outputs = []
    sources = self.encode(texts, first_index)
    for at in range(0, len(sources), self.batch_size):
      outputs += self.decode_batch(
          sources[at:at + self.batch_size], first_index + at)
    return outputs

  def decode_batch(
      self, sources: Sequence[vocab.Source], first_index: int
  ) -> list[Output]:
    """Decodes up to `batch_size` sources and times it."""
    length = self._bucket(sources)
    self.compile(length)
    ids, keys, budget = self._arrays(sources, first_index, length)

    began = time.perf_counter()
    states, encoding = self._encode_ids(ids)
    # Launched while the encoders run, so that the loop waits for nothing else.
    decoded = self._generate(states, keys, budget)
    jax.block_until_ready(encoding)
    encoded = time.perf_counter()
    jax.block_until_ready(decoded)
    ended = time.perf_counter()
    return self._outputs(
        sources, decoded, first_index, encoded - began, ended - encoded)

  def begin(self, sources: Sequence[vocab.Source], first_index: int) -> Start:
    """Encodes up to `batch_size` sources, for those who play the rounds."""
    length = self._bucket(sources)
    ids, keys, budget = self._arrays(sources, first_index, length)
    states, _ = self._encode_ids(ids)
    states = cache_lib.grow(states, self.spec.slots)
    state = rounds_lib.init(self.spec, *states, budget)
    return Start(
        self.target.packed, self._draft_params, keys, budget, state)

  def _bucket(self, sources: Sequence[vocab.Source]) -> int:
    return vocab.bucket(
        max(len(s.ids) for s in sources), self.source_buckets)

  @property
  def _draft_params(self):
    """The draft's weights; none for plain decoding."""
    return self.draft.packed if self.draft and self.spec.gamma else None

  def compile(self, length: int) -> None:
    """Runs the programs of one bucket once, on a batch of filler."""
    if length in self._warm:
      return
    began = time.perf_counter()
    ids, keys, budget = self._arrays((), 0, length)
    states, _ = self._encode_ids(ids)
    jax.block_until_ready(self._generate(states, keys, budget))
    self._warm.add(length)
    self.compile_seconds += time.perf_counter() - began

  def _arrays(
      self, sources: Sequence[vocab.Source], first_index: int, length: int
  ) -> tuple[rounds_lib.AnyArray, jax.Array, rounds_lib.AnyArray]:
    """Encoder inputs, keys and budgets; rows past the sources are filler.

    The only place that makes them: arrays of another type than those of the
    first run would compile the programs again, inside the timed region. Those
    of the host go into a program as they are: each array made of one before
    costs a tenth of a millisecond at the worst moment, between two sentences.
    """
    rows = [source.ids for source in sources]
    missing = self.batch_size - len(rows)
    ids = vocab.pad([*rows, *[()] * missing], length)
    index = first_index + np.arange(self.batch_size, dtype=np.int32)
    keys = decode.sentence_keys(np.int32(self.seed), index)
    budget = np.array(
        [self.max_new_tokens] * len(rows) + [0] * missing, np.int32)
    return jax.block_until_ready(sharding.put_rows(
        self.target.placement, (ids, keys, budget)))

  def _encode_ids(self, ids: rounds_lib.AnyArray):
    """Fresh target cache and draft state for encoder inputs, launched, and two
    numbers that are there when they are."""
    cache, target_ends = self.programs.start_target(self.target.packed, ids)
    state, draft_ends = self.programs.start_draft(self._draft_params, ids)
    return (cache, state), (target_ends, draft_ends)

  def _generate(self, states, keys, budget) -> decode.Decoded:
    return self.programs.generate(
        self.target.packed, self._draft_params, *states, self.sampling, keys,
        budget, self.policy)

  def _outputs(self, sources, decoded, first_index, encoder_s, decoder_s):
    host = sharding.to_host(dataclasses.replace(decoded, caches=None))
    outputs = []
    for row, source in enumerate(sources):
      _check_finite(host, row, first_index + row)
      ids = tuple(host.tokens[row, :host.length[row]].tolist())
      counts = np.stack(
          [host.log.drafted[row], host.log.accepted[row],
           host.log.discarded[row]], axis=1)[:host.rounds[row]]
      outputs.append(Output(
          text=self.vocabulary.decode(ids), ids=ids,
          finish_reason=(
              'eos' if host.ended[row] == rounds_lib.EOS else 'length'),
          rounds=tuple(Round(*c) for c in counts.tolist()), source=source,
          encoder_seconds=encoder_s / len(sources),
          decoder_seconds=decoder_s / len(sources)))
    return outputs


def bind(loaded: checkpoint.Loaded, text_size: int) -> t5.Model:
  """The model's functions in the dtype of its weights."""
  if loaded.config.vocab_size < text_size:
    raise vocab.VocabularyError(
        f'model {loaded.name}: table of {loaded.config.vocab_size} ids, the '
        f'vocabulary has {text_size}')
  dtype = jax.tree.leaves(loaded.params)[0].dtype
  if dtype.name not in config_lib.DTYPES:
    # float16 overflows in the feed-forward layers of T5.
    raise ValueError(
        f'model {loaded.name}: dtype={dtype.name}: allowed are '
        f'{" or ".join(config_lib.DTYPES)}')
  model = t5.bind(
      loaded.config, text_size=text_size, dtype=dtype, packed=loaded.packs)
  if isinstance(loaded.placement, sharding.Layout):
    return sharding.placed(model, loaded.placement)
  return model


def bind_drafter(
    draft: checkpoint.Loaded | drafters.Modelless, vocabulary: vocab.Vocabulary
) -> draft_lib.Drafter:
  """The drafter of whatever `load` gave; refused for another vocabulary."""
  if isinstance(draft, drafters.Modelless):
    return draft.bind(vocabulary)
  vocab.check_same(vocabulary, draft.vocabulary)
  model = bind(draft, vocabulary.text_size)
  return draft_lib.model_drafter(model.start, model.extend)


def check_whole(
    name: str, value: Any, low: int, high: float = float('inf')
) -> None:
  """Raises ValueError unless `value` is a whole number of low to high."""
  whole = isinstance(value, int) and not isinstance(value, bool)
  if not whole or not low <= value <= high:
    raise ValueError(
        f'{name}={value!r}: allowed are whole numbers of {low} to {high}')


def _check_finite(host: decode.Decoded, row: int, index: int) -> None:
  model = {rounds_lib.BAD_TARGET: 'target', rounds_lib.BAD_DRAFT: 'draft'}.get(
      int(host.ended[row]))
  if model:
    raise NonFiniteError(
        f'sentence {index}, token {host.length[row]}, round '
        f'{host.rounds[row] - 1}: the {model} gave logits that are not finite')
