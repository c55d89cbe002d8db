"""What a step of the built-in target costs as its shapes grow.

    python -m experiments.bench.scaling --json=scaling.jsonl
    python -m experiments.bench.scaling --tiny        # two sizes of each

Step time against batch (1 to 32), source length (16 to 512) and slots of the
cache (32 to 512), each alone, all in turn; a straight line through each gives
microseconds a unit. Expected: a row costs its products and caches but shares
the weights; a source position or a slot costs the keys and values that a step
reads there, `bytes_per_unit`. A cache has at most about twice the slots that
its output has come to need (`cache.sizes`), so room that is never used costs
nothing: the last lines decode the same 20 tokens with room for 64 and for 512.
Two cores: about one minute.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import statistics
from typing import Any

from absl import flags
import jax.numpy as jnp
import tqdm

from experiments import common as tables
from experiments.bench import common
from specdec_jax import architecture
from specdec_jax import checkpoint
from specdec_jax import generate
from specdec_jax import measure
from specdec_jax import sampling as sampling_lib
from specdec_jax import vocab

AXES: dict[str, Sequence[int]] = {
    'batch': (1, 2, 4, 8, 16, 32),
    'source': (16, 32, 64, 128, 256, 512),
    'slots': (32, 64, 128, 256, 512)}
ROOM = (64, 512)
TOKENS = 20


@dataclasses.dataclass(frozen=True)
class Shape:
  """Of one timed step; the defaults are those of the built-in job."""
  batch: int = 1
  source: int = 64
  slots: int = 72


def step_loop(
    target: checkpoint.Loaded, shape: Shape, steps: int
) -> measure.Loop:
  return measure.target_loop(
      common.target_side(target), 1,
      jnp.ones((shape.batch, shape.source), jnp.int32), shape.slots,
      sampling_lib.make(0.0), steps)


def bytes_per_unit(config: architecture.T5Config, axis: str) -> int:
  """Bytes of keys and values that one more of an axis adds to a step.

  Example: 4 layers of 6 heads of 64 in float32 are 12,288 a position, and a row
  has 64 positions of the source and 72 slots.
  """
  position = 4 * 2 * (
      config.decoder_layers * config.num_heads * config.head_dim)
  shape = Shape()
  return position * (shape.source + shape.slots if axis == 'batch' else 1)


def step_rows(
    config: architecture.T5Config,
    samples: Mapping[tuple[str, int], Sequence[float]]
) -> list[common.Row]:
  """A line a point, and one a slope, in microseconds."""
  rows: list[common.Row] = []
  for axis in dict.fromkeys(axis for axis, _ in samples):
    points = {size: statistics.median(s) * 1e6
              for (a, size), s in samples.items() if a == axis}
    rows += [{'axis': axis, 'size': size, 'step_us': step}
             for size, step in points.items()]
    slope = common.slope(list(points), list(points.values()))
    rows.append({
        'axis': axis, 'size': 'slope a unit', 'step_us': slope,
        'of_smallest': slope / points[min(points)],
        'bytes_per_unit': bytes_per_unit(config, axis)})
  return rows


def room_rows(
    target: checkpoint.Loaded, room: Sequence[int], repeats: int
) -> list[common.Row]:
  """The same output with more and with less room for it, in turn."""
  decoders = {slots: generate.Decoder(
      target, gamma=0, max_new_tokens=TOKENS, source_buckets=(64,),
      slots=slots) for slots in room}
  source = vocab.Source((*range(3, 33), vocab.EOS_ID), 31)
  seconds: dict[int, list[float]] = {slots: [] for slots in room}
  tokens = 0
  for repeat in range(repeats + 1):
    for slots, decoder in decoders.items():
      [output] = decoder.decode_batch([source], 0)
      tokens = len(output.ids)
      if repeat:  # the first run compiles
        seconds[slots].append(output.decoder_seconds)
  median = {slots: statistics.median(s) / tokens * 1e6
            for slots, s in seconds.items()}
  return [{'axis': f'room, {tokens} tokens', 'size': slots, 'step_us': step,
           'of_smallest': step / median[min(room)]}
          for slots, step in median.items()]


def measure_all(
    target: checkpoint.Loaded, axes: Mapping[str, Sequence[int]],
    room: Sequence[int], steps: int, rounds: int
) -> list[common.Row]:
  """All rows; a point that two axes share is timed for each."""
  points = [(axis, size) for axis, sizes in axes.items() for size in sizes]
  loops = {}
  for axis, size in tqdm.tqdm(points, desc='compile'):
    options: dict[str, Any] = {axis: size}
    loops[axis, size] = step_loop(target, Shape(**options), steps)
  samples: dict[tuple[str, int], list[float]] = {key: [] for key in loops}
  for _ in tqdm.trange(rounds, desc='in turn'):
    for key, found in measure.in_turn(loops, 1).items():
      samples[key] += found
  return (step_rows(target.config, samples)
          + room_rows(target, room, rounds))


COLUMNS = {
    'what grows': tables.text('axis'), 'size': tables.text('size'),
    'step, µs': tables.column('step_us', 1),
    'of the smallest': tables.column('of_smallest', 4),
    'bytes a unit': tables.column('bytes_per_unit', 0)}


def main() -> None:
  options = flags.FLAGS
  axes, room, steps, rounds = AXES, ROOM, 64, 9
  if options.tiny:
    axes = {axis: sizes[:2] for axis, sizes in AXES.items()}
    room, steps, rounds = (64, 96), 2, 2
  target = checkpoint.load('mini/target')
  common.publish('A step of mini/target', COLUMNS,
                 measure_all(target, axes, room, steps, rounds), options.json)


if __name__ == '__main__':
  flags.DEFINE_bool('tiny', False, 'Two sizes of each, to try the script.')
  common.main(main)
