"""Do target and draft fit on a chip? Weights and caches against its memory.

    python -m experiments.memory --target=t5_11B --draft=t5_small \\
        --batch_size=1 --source_length=512 --max_new_tokens=256

A model is a public size, a folder (`mini/target`) or a number of parameters
(`70.55e9`; its caches are then unknown). Without `--target` three pairs are
shown. Expected result: T5-11B and a draft in bfloat16 fit a TPU v4; an FP8 70B
with an 8B draft, 78.6 GB before caches, does not fit 80 GB in practice and
leaves 62 GB of 141. Time: seconds.
"""

import dataclasses

from absl import flags

from experiments import common
from specdec_jax import architecture
from specdec_jax import checkpoint
from specdec_jax import memory


@dataclasses.dataclass(frozen=True)
class Pair:
  target: str
  draft: str
  dtype: str = 'bfloat16'
  shape: memory.Shape = memory.Shape(1, 512, 264)


PAIRS = (
    Pair('mini/target', 'mini/small', 'float32', memory.Shape(1, 64, 72)),
    Pair('t5_1_1_xxl', 't5_1_1_small'),
    Pair('70.55e9', '8.03e9', 'float8'),
    Pair('70.55e9', '1e9', 'float8'),
)


def need(model: str, dtype: str, shape: memory.Shape) -> memory.Need:
  """Of a public size, a number of parameters or a folder."""
  if model in architecture.SIZES:
    return memory.of_model(architecture.SIZES[model], dtype, shape)
  try:
    count = float(model)
  except ValueError:
    return memory.of_model(checkpoint.read_config(model), dtype, shape)
  if not 0 < count < float('inf'):
    raise ValueError(f'{model}: allowed are finite numbers above 0')
  return memory.of_count(count, dtype)


def lines(pair: Pair, chips: dict[str, float]) -> list[common.Row]:
  """A line a chip."""
  sides = [need(model, pair.dtype, pair.shape)
           for model in (pair.target, pair.draft)]
  target, draft = sides
  rows = []
  for chip, size in chips.items():
    found = memory.fit(sides, size)
    rows.append({
        'target': pair.target, 'draft': pair.draft, 'dtype': pair.dtype,
        'target_weights': target.weights, 'draft_weights': draft.weights,
        'target_cache': target.cache, 'draft_cache': draft.cache,
        'chip': chip, 'chip_bytes': size, 'left': found.left,
        'fits': found.verdict + (
            ', before caches' if target.cache is None else '')})
  return rows


def _gigabytes(key: str) -> common.Column:
  return lambda row: (
      common.MISSING if row[key] is None else f'{row[key] / memory.GB:.4g}')


COLUMNS = {
    'chip': common.text('chip'), 'memory, GB': _gigabytes('chip_bytes'),
    'target weights': _gigabytes('target_weights'),
    'draft weights': _gigabytes('draft_weights'),
    'target cache': _gigabytes('target_cache'),
    'draft cache': _gigabytes('draft_cache'), 'left': _gigabytes('left'),
    'fits': common.text('fits'),
}


def make(
    lab: common.Lab, pairs: tuple[Pair, ...] = PAIRS,
    chip_gb: float | None = None
) -> None:
  chips: dict[str, float] = dict(memory.CHIPS)
  if chip_gb is not None:
    chips['your own'] = chip_gb * memory.GB
  parts = []
  for pair in pairs:
    shape = pair.shape
    parts += [
        f'## {pair.target} with {pair.draft} in {pair.dtype}\n',
        f'Caches of batch {shape.batch_size}, source {shape.source_length}, '
        f'{shape.slots} slots.\n',
        common.Table(f'{pair.target} {pair.draft}', COLUMNS,
                     lines(pair, chips))]
  common.publish(lab, 'memory', 'Memory of target and draft', [
      *parts,
      f'GB of 10^9 bytes, one chip, nothing sharded. Caches are n/a where only '
      'a number of parameters is known. "not in practice": it fits only '
      f'without the {memory.RESERVE:.0%} that activations, programs and the '
      'runtime are given here.\n'])


def _pairs() -> tuple[Pair, ...]:
  values = flags.FLAGS
  if not values.target:
    return PAIRS
  slots = values.max_new_tokens + values.gamma + 1
  return (Pair(values.target, values.draft, values.dtype, memory.Shape(
      values.batch_size, values.source_length, slots)),)


if __name__ == '__main__':
  flags.DEFINE_string('target', None, 'Size, folder or number of parameters.')
  flags.DEFINE_string('draft', 't5_small', 'The same.')
  flags.DEFINE_enum('dtype', 'bfloat16', list(memory.BYTES), 'Of both.')
  flags.DEFINE_integer('batch_size', 1, 'Sentences together.', 1)
  flags.DEFINE_integer('source_length', 512, 'Padded encoder length.', 1)
  flags.DEFINE_integer('max_new_tokens', 256, 'Budget of a sentence.', 1)
  flags.DEFINE_integer('gamma', 7, 'Drafts a round.', 0)
  flags.DEFINE_float('chip_gb', None, 'Memory of your own chip.', 0)
  common.main(lambda lab: make(lab, _pairs(), flags.FLAGS.chip_gb),
              needs_workdir=False)
