"""A step against the memory it reads, verification, and what the loop costs.

    python -m experiments.bench.decoder --json=decoder.jsonl
    python -m experiments.bench.decoder --tiny       # in seconds, to try it
    python -m experiments.bench.decoder --models=mini,base

Shapes are those of the built-in ladder and of T5 1.1, weights are random
float32, batch 1, source 64. Every loop of steps is compiled and run once; then
all of all models run in turn, round by round, beside a read of 512 MB that
gives the bandwidth; then whole decodings. Two quiet cores and 16 GB; base
and large alone take about nine minutes.

Columns: `floor_ms` is what one step must read (decoder weights but those of the
cached cross-attention, logits table, cross-attention caches) over the median
bandwidth; with `_best`, best step over best bandwidth. `loop_efficiency` is the
measured factor of whole decodings at a synthetic acceptance of 0.75, gamma 7,
over Theorem 3.8 with c and v as measured between them (`round_cost` is
gamma c + v, in plain steps). Coins are few: `coins_error` is the relative
standard error of the tokens a round that Eq. 1 expects, for so many rounds.
`_of_rounds` takes the tokens a round that the coins gave instead; this also
leaves out that a budget of 118 tokens cuts the last round (0.02). `compile_s`
is of the plain loop. `peak_bytes` is the largest memory of the process until
the model was loaded and compiled, smaller models included.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import resource
import statistics
from typing import Any

from absl import flags
import jax
from jax import numpy as jnp
import numpy as np
import tqdm

from experiments import accelerator
from experiments import common as tables
from experiments.bench import common
from specdec_jax import architecture
from specdec_jax import checkpoint
from specdec_jax import generate
from specdec_jax import measure
from specdec_jax import sampling as sampling_lib
from specdec_jax import theory
from specdec_jax import vocab

ALPHA, GAMMA = 0.75, 7
GAMMAS = (1, 3, 5, 7, 10, 15)
PER_PLAIN = 8
BANDWIDTH = ('', 'read')  # among the names of loops


@dataclasses.dataclass(frozen=True)
class Plan:
  """What is measured, on which sizes.

  Attributes:
    targets: by name, from small to large.
    drafts: for each target the drafts whose c is measured; the first also
      drafts where whole decodings are timed.
    decodings: how many speculative ones, by target; with every `PER_PLAIN` of
      them goes a plain one, which has no coins, and each loop once more.
    read_bytes: for the bandwidth.
    loop_bytes: a timed loop has as many steps as read about this much: its
      launch copies the caches, which four steps of large do not outweigh.
    rounds: times that every loop runs.
  """
  targets: Mapping[str, architecture.T5Config]
  drafts: Mapping[str, Mapping[str, architecture.T5Config]]
  decodings: Mapping[str, int]
  source: int = 64
  read_bytes: int = 512 << 20
  loop_bytes: float = 2e10
  rounds: int = 9
  slots: int = 126  # the most of a cache that does not grow

  @property
  def tokens(self) -> int:
    """Of one decoding: its caches have the shape of the timed steps."""
    return self.slots - GAMMA - 1

  def steps(self, config: architecture.T5Config) -> int:
    return int(np.clip(self.loop_bytes / accelerator.step_bytes(config, 4),
                       4, 128))


def full() -> Plan:
  size = lambda name: architecture.SIZES[f't5_1_1_{name}']
  mini = lambda name: checkpoint.read_config(f'mini/{name}')
  small = {'small': size('small')}
  return Plan(
      {'mini': mini('target'), **{n: size(n) for n in ('small', 'base',
                                                       'large')}},
      {'mini': {n: mini(n) for n in ('small', 'base', 'large')},
       'base': small, 'large': small},
      {'mini': 96, 'large': 96})


def tiny() -> Plan:
  """The same walk on models of no size."""
  small = accelerator.tiny()
  return Plan({'mini': small.targets['base']}, {'mini': small.drafts},
              {'mini': 2}, 8, 1 << 20, 1e5, 2, 20)


def step_bytes(config: architecture.T5Config, source: int) -> int:
  """Bytes that one plain step must read, float32."""
  cross = (2 * config.decoder_layers * config.num_heads * config.head_dim
           * source)
  return accelerator.step_bytes(config, 4) + 4 * cross


def read_loop(nbytes: int) -> measure.Loop:
  """One read of so many bytes; sums of rows, so that all cores take part."""
  x = jnp.ones((8192, nbytes // 4 // 8192), jnp.float32)
  total = jax.jit(lambda x: jnp.sum(x, axis=1))
  call = lambda: jax.block_until_ready(total(x))
  call()
  return measure.Loop(call, 1, 0.0)


def model_loops(
    plan: Plan, target: checkpoint.Loaded,
    drafts: Mapping[str, checkpoint.Loaded], progress: tqdm.tqdm
) -> dict[tuple[str, Any], measure.Loop]:
  """The loops of one target: by width of the block, and by draft."""
  source = jnp.ones((1, plan.source), jnp.int32)
  law, found = sampling_lib.make(0.0), {}
  for width in (1, *(gamma + 1 for gamma in GAMMAS)):
    progress.set_description(f'compile {target.name}, {width} positions')
    found[target.name, width] = measure.target_loop(
        common.target_side(target), width, source, plan.slots, law,
        plan.steps(target.config))
    progress.update()
  for name, draft in drafts.items():
    progress.set_description(f'compile {target.name} with {name}')
    found[target.name, name] = measure.draft_loop(
        common.draft_side(draft, target), GAMMA, source, plan.slots, law,
        plan.steps(draft.config))
    progress.update()
  return found


@dataclasses.dataclass(frozen=True)
class Factor:
  """Whole decodings.

  Attributes:
    measured: plain seconds a token over speculative ones.
    round_cost: gamma c + v, of loops that ran between the decodings.
    rounds: how many there were.
    tokens_per_round: in the mean.
  """
  measured: float
  round_cost: float
  rounds: int
  tokens_per_round: float


def decode_in_turn(
    plan: Plan, target: checkpoint.Loaded, draft: checkpoint.Loaded,
    loops: Mapping[tuple[str, Any], measure.Loop], progress: tqdm.tqdm
) -> Factor:
  """Loops of steps, plain and speculative decoding in turn."""
  options: Any = dict(
      max_new_tokens=plan.tokens, source_buckets=(plan.source,),
      slots=plan.slots)
  plain = generate.Decoder(target, gamma=0, **options)
  speculative = generate.Decoder(
      target, draft, gamma=GAMMA, acceptance=ALPHA, **options)
  for decoder in (plain, speculative):
    decoder.compile(plan.source)
  source = vocab.Source((2,) * (plan.source - 1) + (vocab.EOS_ID,),
                        plan.source)
  steps: dict[tuple[str, Any], list[float]] = {name: [] for name in loops}
  plains, outputs = [], []
  for index in range(plan.decodings[target.name]):
    progress.set_description(f'decode {target.name}')
    if index % PER_PLAIN == 0:
      for name, found in measure.in_turn(loops, 1).items():
        steps[name] += found
      plains += plain.decode_batch([source], index)
    outputs += speculative.decode_batch([source], index)
    progress.update()
  step, verify, drafting = (
      statistics.median(steps[target.name, name])
      for name in (1, GAMMA + 1, draft.name))
  rounds = sum(len(output.rounds) for output in outputs)
  return Factor(
      _token_seconds(plains) / _token_seconds(outputs),
      (GAMMA * drafting + verify) / step, rounds,
      sum(len(output.ids) for output in outputs) / rounds)


def _token_seconds(outputs: Sequence[generate.Output]) -> float:
  """Lengths may differ."""
  return (sum(output.decoder_seconds for output in outputs)
          / sum(len(output.ids) for output in outputs))


def coins_error(alpha: float, gamma: int, rounds: int) -> float:
  """Relative standard error of the mean tokens a round, of so many rounds.

  A round's tokens are a geometric count cut at gamma + 1 (section 3.1).

  Example: alpha 0.5 and gamma 1 give 1 or 2 tokens, each half of the time: mean
  1.5, deviation 0.5, so a third of it in one round, a thirtieth in a hundred.
  """
  tokens = np.arange(1, gamma + 2)
  chance = alpha**(tokens - 1.0) * np.where(tokens > gamma, 1, 1 - alpha)
  mean = np.sum(chance * tokens)
  deviation = np.sqrt(np.sum(chance * (tokens - mean)**2))
  return float(deviation / mean / np.sqrt(rounds))


def row(
    plan: Plan, name: str, samples: Mapping[tuple[str, Any], Sequence[float]],
    factor: Factor | None
) -> common.Row:
  """The line of one model; see the head of this file."""
  median = {key: statistics.median(s) for key, s in samples.items()}
  nbytes = step_bytes(plan.targets[name], plan.source)
  step, best = median[name, 1], min(samples[name, 1])
  floor = nbytes * median[BANDWIDTH] / plan.read_bytes
  best_floor = nbytes * min(samples[BANDWIDTH]) / plan.read_bytes
  ratios = {g: median[name, g + 1] / step for g in GAMMAS}
  costs = {d: median[name, d] / step for d in plan.drafts.get(name, {})}
  found: common.Row = {
      'model': name, 'step_ms': step * 1e3, 'floor_ms': floor * 1e3,
      'step_over_floor': step / floor, 'step_best_ms': best * 1e3,
      'step_over_floor_best': best / best_floor, 'step_bytes': nbytes,
      'bytes_per_second': plan.read_bytes / median[BANDWIDTH],
      'bytes_per_second_best': plan.read_bytes / min(samples[BANDWIDTH]),
      'verify_ratio': {str(g): v for g, v in ratios.items()}, 'c': costs,
      'loop_efficiency': None}
  if factor:
    predicted = theory.tokens_per_round(ALPHA, GAMMA) / factor.round_cost
    found |= {
        'factor': factor.measured, 'predicted_with_verify': float(predicted),
        'round_cost': factor.round_cost,
        'tokens_per_round': factor.tokens_per_round,
        'coins_error': coins_error(ALPHA, GAMMA, factor.rounds),
        'loop_efficiency': float(factor.measured / predicted),
        # With the tokens that the coins of these decodings gave.
        'loop_efficiency_of_rounds':
            factor.measured * factor.round_cost / factor.tokens_per_round}
  return found


def load(plan: Plan) -> dict[str, dict[str, checkpoint.Loaded]]:
  """For each target itself, under '', and its drafts; each shape once."""
  models: dict[architecture.T5Config, checkpoint.Loaded] = {}

  def model(name, config):
    if config not in models:
      models[config] = common.random_model(name, config, len(models))
    return dataclasses.replace(models[config], name=name)
  return {target: {'': model(target, config), **{
      name: model(name, draft)
      for name, draft in plan.drafts.get(target, {}).items()}}
          for target, config in plan.targets.items()}


def measure_all(plan: Plan) -> list[common.Row]:
  """A row a model."""
  models = load(plan)
  loops: dict[tuple[str, Any], measure.Loop] = {
      BANDWIDTH: read_loop(plan.read_bytes)}
  built, compiling = {}, sum(len(GAMMAS) + len(m) for m in models.values())
  decodings = sum(n for name, n in plan.decodings.items() if name in models)
  with tqdm.tqdm(total=compiling + plan.rounds + decodings,
                 unit='part') as progress:
    for name, (_, *drafts) in models.items():
      loops |= model_loops(
          plan, models[name][''], {d: models[name][d] for d in drafts},
          progress)
      built[name] = {
          'compile_s': loops[name, 1].compile_seconds,
          'peak_bytes':
              1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}
    samples: dict[Any, list[float]] = {key: [] for key in loops}
    for number in range(plan.rounds):
      progress.set_description(f'steps, round {number + 1}')
      for key, found in measure.in_turn(loops, 1).items():
        samples[key] += found
      progress.update()
    factors = {}
    for name in plan.decodings:
      if name in models:
        first = next(iter(plan.drafts[name]))
        factors[name] = decode_in_turn(
            plan, models[name][''], models[name][first],
            {(name, part): loops[name, part]
             for part in (1, GAMMA + 1, first)}, progress)
  return [row(plan, name, samples, factors.get(name)) | built[name]
          for name in models]


COLUMNS = {
    'model': tables.text('model'), 'step, ms': tables.column('step_ms'),
    'floor, ms': tables.column('floor_ms'),
    'over floor': tables.column('step_over_floor'),
    'best over best': tables.column('step_over_floor_best'),
    **{f'v, γ={g}': (lambda row, g=g: f'{row["verify_ratio"][str(g)]:.2f}')
       for g in GAMMAS},
    'c': lambda row: ', '.join(
        f'{name} {c:.3f}' for name, c in row['c'].items()),
    'factor': tables.column('factor'),
    'with v': tables.column('predicted_with_verify'),
    'loop': tables.column('loop_efficiency'),
    'coins ±': tables.column('coins_error'),
    'loop, by rounds': tables.column('loop_efficiency_of_rounds'),
    'compile, s': tables.column('compile_s', 1),
    'peak, GB': lambda row: f'{row["peak_bytes"] / 1e9:.1f}'}


def choose(plan: Plan, names: Sequence[str]) -> Plan:
  """The plan of some of its models.

  Raises:
    ValueError: for a name that it does not have.
  """
  if unknown := [n for n in names if n not in plan.targets]:
    raise ValueError(f'--models={",".join(unknown)}: allowed are '
                     f'{",".join(plan.targets)}')
  return dataclasses.replace(
      plan, targets={n: c for n, c in plan.targets.items() if n in names})


def main() -> None:
  options = flags.FLAGS
  plan = tiny() if options.tiny else full()
  if options.models:
    plan = choose(plan, options.models)
  rows = measure_all(plan)
  common.publish(
      f'Decoder: {rows[0]["bytes_per_second"] / 1e9:.1f} GB/s (best '
      f'{rows[0]["bytes_per_second_best"] / 1e9:.1f})', COLUMNS, rows,
      options.json)


if __name__ == '__main__':
  flags.DEFINE_bool('tiny', False, 'Tiny models, to try the script.')
  flags.DEFINE_list('models', [], 'Which of mini, small, base, large.')
  common.main(main)
