"""What a GPU or a TPU does with this program: one table, one JSON, 8 minutes.

    python -m experiments.accelerator --json=accelerator.json
    python -m experiments.accelerator --tiny --json=/tmp/tiny.json   # on a CPU

Weights are random, shapes are T5's. Measured are the device (bandwidth, matrix
rate), a plain step against the floor that its bytes set, the verify ratio and
c, the factor at the paper's acceptance rates, and whether ids stay those of
plain decoding. What the time or the memory does not allow is listed as left
out, with the reason. An 80 GB GPU or one TPU-v4 chip is enough.
"""

from collections.abc import Callable
import dataclasses
import functools
import json
import pathlib
import statistics
import time
from typing import Any

from absl import app
from absl import flags
import jax
from jax import numpy as jnp
import numpy as np

from specdec_jax import architecture
from specdec_jax import cache as cache_lib
from specdec_jax import checkpoint
from specdec_jax import decode
from specdec_jax import draft as draft_lib
from specdec_jax import environment
from specdec_jax import measure
from specdec_jax import report
from specdec_jax import rounds as rounds_lib
from specdec_jax import sampling as sampling_lib
from specdec_jax import t5
from specdec_jax import theory
from specdec_jax.report import markdown
from specdec_jax.report import paper
from specdec_jax.report import tables

GAMMAS = (3, 5, 7)
# bfloat16 keeps 8 bits: two logits so close may change places by rounding.
NEAR = 2.0**-8


@dataclasses.dataclass(frozen=True)
class Plan:
  """Sizes of what is measured."""
  targets: dict[str, architecture.T5Config]  # the last one gets the factors
  drafts: dict[str, architecture.T5Config]
  source: int
  tokens: int
  stream_bytes: int  # read at once for the bandwidth
  matrix: int        # side of the matrices of the matrix rate
  rows: int          # sentences of the comparison of ids

  @property
  def slots(self) -> int:
    return self.tokens + max(GAMMAS) + 1


def full() -> Plan:
  size = lambda name: architecture.SIZES[f't5_1_1_{name}']
  return Plan({n: size(n) for n in ('base', 'xl', 'xxl')},
              {n: size(n) for n in ('small', 'base', 'large')},
              64, 64, 4 << 30, 8192, 8)


def tiny() -> Plan:
  model = functools.partial(
      architecture.T5Config, d_ff=32, num_heads=2, head_dim=8,
      encoder_layers=1, vocab_size=192)
  return Plan({'base': model(32, decoder_layers=2)},
              {'small': model(16, decoder_layers=1)}, 8, 12, 1 << 20, 64, 2)


class Clock:
  """Seconds since the start; work past the limit is left out by name."""

  def __init__(self, limit: float):
    self.began, self.limit = time.perf_counter(), limit
    self.left_out: list[str] = []

  @property
  def seconds(self) -> float:
    return time.perf_counter() - self.began

  def run(self, what: str, work: Callable[[], Any]) -> Any:
    """What `work` gives; None where there is no time or memory for it."""
    if self.seconds > self.limit:
      self.left_out.append(f'{what}: {self.limit:.0f} s were over')
      return None
    print(f'{self.seconds:5.0f} s  {what}', flush=True)
    try:
      return work()
    except jax.errors.JaxRuntimeError as error:
      if 'RESOURCE_EXHAUSTED' not in str(error):
        raise
      self.left_out.append(f'{what}: it does not fit into memory')
      return None


def best_seconds(call: Callable[[], Any]) -> float:
  """The fastest of five calls, after one that compiles."""
  jax.block_until_ready(call())
  return min(measure.seconds(lambda: jax.block_until_ready(call()))
             for _ in range(5))


def bandwidth(nbytes: int) -> float:
  """Bytes a second that the device reads."""
  x = jnp.ones(nbytes // 2, jnp.bfloat16)
  read = jax.jit(lambda x: jnp.max(x))
  return x.nbytes / best_seconds(lambda: read(x))


def matrix_rate(side: int) -> float:
  """Operations a second of square products in bfloat16."""
  x = jnp.full((side, side), 1 / side, jnp.bfloat16)
  products = 8
  chain = jax.jit(
      lambda x: jax.lax.fori_loop(0, products, lambda _, y: y @ x, x))
  return products * 2 * side**3 / best_seconds(lambda: chain(x))


def random_side(
    config: architecture.T5Config, dtype: Any, seed: int
) -> measure.Side:
  """Random weights, made on the device one by one in their own dtype."""
  @functools.partial(jax.jit, static_argnums=(1, 2))
  def normal(key, shape, scale):
    return jax.random.normal(key, shape, dtype) * jnp.asarray(scale, dtype)
  params, key = {}, jax.random.key(seed)
  shapes = checkpoint.flatten(t5.param_shapes(config))
  for i, (name, x) in enumerate(shapes.items()):
    if name.endswith('/scale'):
      params[name] = jnp.ones(x.shape, dtype)
      continue
    scale = x.shape[0]**-0.5 if name.endswith('/kernel') else 1.0
    if name.endswith('query/kernel'):  # see `t5`: no 1/sqrt(k) in attention
      scale *= config.head_dim**-0.5
    params[name] = normal(jax.random.fold_in(key, i), x.shape, scale)
  model = t5.bind(config, dtype=dtype)
  return measure.Side(model, checkpoint.unflatten(params))


def step_bytes(config: architecture.T5Config, itemsize: int) -> int:
  """Bytes of weights that one decoder step must read.

  The keys and values of the source are cached, and of the embedding a row is
  read (unless it gives the logits): XXL in bfloat16 has 11.1 GB.
  """
  skipped = ('encoder_decoder_attention/key', 'encoder_decoder_attention/value')
  shapes = checkpoint.flatten(t5.param_shapes(config))
  return itemsize * sum(
      x.size for name, x in shapes.items()
      if (name.startswith('decoder/') and not any(s in name for s in skipped))
      or (config.tied and name == 'token_embedder/embedding'))


def drafter_of(side: measure.Side) -> draft_lib.Drafter:
  return draft_lib.model_drafter(side.model.start, side.model.extend)


def source_of(plan: Plan, rows: int) -> jax.Array:
  ids = np.random.default_rng(0).integers(3, 150, (rows, plan.source))
  return jnp.asarray(ids, jnp.int32)


def model_costs(
    plan: Plan, target: measure.Side, draft: measure.Side
) -> measure.Costs:
  return measure.costs(
      target, measure.DraftSide(drafter_of(draft), draft.params),
      source_of(plan, 1), cache_lib.sizes(plan.slots, max(GAMMAS) + 1)[0],
      GAMMAS, sampling_lib.make(0.0))


@functools.cache
def _start(start: Callable, slots: int) -> Callable:
  return jax.jit(lambda params, ids: start(params, ids, slots))


@functools.cache
def _generate(spec: rounds_lib.Spec) -> Callable:
  """Compiled once for all acceptance rates, which are an argument here."""
  def generate(acceptance, *arguments):
    forced = dataclasses.replace(spec, acceptance=acceptance)
    return decode.generate(forced, *arguments)
  return jax.jit(generate, donate_argnums=(3, 4))


def run_once(
    plan: Plan, target: measure.Side, draft: measure.Side | None, gamma: int,
    rows: int = 1, acceptance: float | None = None
) -> tuple[decode.Decoded, float]:
  """Greedy decoding of random sources; what came out, and decoder seconds."""
  drafter = drafter_of(draft) if draft else draft_lib.NO_DRAFTER
  spec = rounds_lib.Spec(
      target.model.extend, drafter, gamma, plan.tokens, plan.slots)
  forced = None if acceptance is None else jnp.asarray(acceptance)
  source, params = source_of(plan, rows), draft.params if draft else None
  states = jax.block_until_ready(
      (_start(target.model.start, spec.sizes[0])(target.params, source),
       _start(drafter.start, spec.sizes[0])(params, source)))
  keys = jax.block_until_ready(
      decode.sentence_keys(jnp.asarray(0), jnp.arange(rows)))
  began = time.perf_counter()
  decoded = jax.block_until_ready(_generate(spec)(
      forced, target.params, params, *states, sampling_lib.make(0.0), keys,
      jnp.full(rows, plan.tokens, jnp.int32)))
  return decoded, time.perf_counter() - began


def token_seconds(*arguments: Any, **options: Any) -> float:
  """Median decoder seconds of an output token; the first run compiles."""
  run_once(*arguments, **options)
  runs = [run_once(*arguments, **options) for _ in range(3)]
  return statistics.median(s / int(d.length.sum()) for d, s in runs)


def factor_rows(
    plan: Plan, clock: Clock, target: measure.Side,
    drafts: dict[str, measure.Side], costs: dict[str, measure.Costs]
) -> list[dict[str, Any]]:
  """The paper's settings with its acceptance rates forced on this device."""
  plain = clock.run('plain decoding',
                    lambda: token_seconds(plan, target, None, 0))
  found = []
  for row in paper.ROWS:
    if plain is None or row.role not in drafts or row.role not in costs:
      continue
    cost = costs[row.role]
    seconds = clock.run(
        f'{row.study} {row.role} γ={row.gamma} α={row.alpha}',
        lambda row=row: token_seconds(
            plan, target, drafts[row.role], row.gamma, acceptance=row.alpha))
    if seconds is not None:
      found.append({
          'task': row.study, 'draft': row.role, 'temperature': row.temperature,
          'gamma': row.gamma, 'alpha': row.alpha, 'c_paper': row.c,
          'factor_paper': row.speed, 'c': cost.c,
          'predicted': float(theory.walltime_factor(
              row.alpha, row.gamma, cost.c, cost.verify_ratio(row.gamma))),
          'factor': plain / seconds})
  return found


def target_row(
    plan: Plan, clock: Clock, name: str, target: measure.Side,
    drafts: dict[str, measure.Side], rate: float
) -> tuple[dict[str, Any], dict[str, measure.Costs]]:
  """A target's step and floor; with each smaller draft c and verify ratios."""
  config = plan.targets[name]
  size = step_bytes(config, 2)
  costs = {}
  for draft, side in drafts.items():
    if step_bytes(plan.drafts[draft], 2) < size:
      found = clock.run(f'{name} with {draft}: steps',
                        lambda side=side: model_costs(plan, target, side))
      if found is not None:
        costs[draft] = found
  step = min((c.target_step for c in costs.values()), default=None)
  return {
      'step_bytes': size, 'floor_seconds': size / rate, 'step_seconds': step,
      'over_floor': step and step * rate / size,
      'drafts': {draft: {
          'c': c.c, 'draft_step_seconds': c.draft_step,
          'verify_ratio': {str(g): c.verify_ratio(g) for g in GAMMAS}}
                 for draft, c in costs.items()}}, costs


def near_ties(plan: Plan, side: measure.Side, decoded: decode.Decoded):
  """Marks output tokens whose two best logits are within rounding."""
  rows = decoded.tokens.shape[0]
  cache = side.model.start(side.params, source_of(plan, rows), plan.slots)
  inputs = jnp.pad(decoded.tokens, ((0, 0), (1, 0)))[:, :-1]
  best = jax.lax.top_k(side.model.extend(side.params, inputs, cache)[0], 2)[0]
  return np.asarray(best[..., 0] - best[..., 1]
                    <= NEAR * jnp.abs(best[..., 0]))


def equality(plan: Plan, dtype: str) -> dict[str, Any]:
  """Greedy ids of speculative against plain decoding, the draft being the
  target itself, so that blocks are accepted and rejected for rounding only."""
  side = random_side(plan.targets['base'], jnp.dtype(dtype), 1)
  plain, _ = run_once(plan, side, None, 0, plan.rows)
  other, _ = run_once(plan, side, side, 5, plan.rows)
  different = np.asarray(plain.tokens != other.tokens)
  ties = near_ties(plan, side, plain)
  first = [int(row.argmax()) for row in different if row.any()]
  rows = np.flatnonzero(different.any(axis=1))
  return {
      'rows': plan.rows, 'identical': plan.rows - len(rows),
      'differ_first_at_near_tie': int(sum(
          ties[row, at] for row, at in zip(rows, first, strict=True))),
      'tokens': int(np.asarray(plain.length).sum()),
      'near_ties': int(ties.sum())}


def measure_all(plan: Plan, limit: float) -> dict[str, Any]:
  clock = Clock(limit)
  rate = bandwidth(plan.stream_bytes)
  out: dict[str, Any] = {
      'machine': environment.machine(), 'dtype': 'bfloat16',
      'matmul_precision': 'highest', 'bytes_per_second': rate,
      'bfloat16_flops': matrix_rate(plan.matrix),
      'equality': {dtype: clock.run(
          f'ids in {dtype}', functools.partial(equality, plan, dtype))
                   for dtype in ('float32', 'bfloat16')},
      'targets': {}, 'factors': []}
  drafts = {name: random_side(config, jnp.bfloat16, 2)
            for name, config in plan.drafts.items()}
  for name, config in plan.targets.items():
    target = clock.run(f'{name}: weights', functools.partial(
        random_side, config, jnp.bfloat16, 1))
    if target is None:
      continue
    out['targets'][name], costs = target_row(
        plan, clock, name, target, drafts, rate)
    if name == list(plan.targets)[-1]:
      out['factors'] = factor_rows(plan, clock, target, drafts, costs)
  return out | {'left_out': clock.left_out, 'seconds': clock.seconds}


def text(found: dict[str, Any]) -> str:
  """The one table, under a line on the device."""
  number = report.number
  rows = []
  for name, row in found['targets'].items():
    for draft, cost in row['drafts'].items():
      rows.append([
          f'{name} with {draft}', number(row['step_seconds'] * 1e3),
          number(row['over_floor']), number(cost['c'], 3),
          *(number(cost['verify_ratio'][str(g)]) for g in GAMMAS), '', ''])
  for row in found['factors']:
    rows.append([
        f'{row["task"]} {row["draft"]} T={row["temperature"]} γ={row["gamma"]} '
        f'α={row["alpha"]}', '', '', number(row['c'], 3), '', '', '',
        number(row['predicted']),
        f'{number(row["factor"])} ({row["factor_paper"]})'])
  header = ['', 'step, ms', 'over floor', 'c', *(f'v, γ={g}' for g in GAMMAS),
            'predicted', 'factor (paper)']
  shown = tables.Table(
      '', tuple(header), (False, *[True] * (len(header) - 1)),
      tuple(tables.Line(tuple(map(tables.text, row))) for row in rows))
  ids = '\n'.join(
      f'{dtype}: {e["identical"]} of {e["rows"]} rows identical, '
      f'{e["near_ties"]} near-ties in {e["tokens"]} tokens'
      for dtype, e in found['equality'].items() if e)
  return (f'{found["machine"]["device"]}: '
          f'{found["bytes_per_second"] / 1e9:.0f} GB/s, '
          f'{found["bfloat16_flops"] / 1e12:.1f} TFLOP/s in bfloat16\n'
          f'{ids}\n\n{markdown.table(shown)}\n'
          + ''.join(f'left out: {what}\n' for what in found['left_out'])
          + f'{found["seconds"]:.0f} s in all\n')


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments {argv[1:]}')
  options = flags.FLAGS
  with jax.default_matmul_precision('highest'):
    found = measure_all(tiny() if options.tiny else full(), options.seconds)
  print(text(found))
  if options.json:
    pathlib.Path(options.json).write_text(json.dumps(found, indent=2) + '\n')


if __name__ == '__main__':
  flags.DEFINE_bool('tiny', False, 'Tiny models, to try the script on a CPU.')
  flags.DEFINE_integer('seconds', 400, 'Nothing is begun after this.')
  flags.DEFINE_string('json', None, 'File for the result.')
  app.run(main)
