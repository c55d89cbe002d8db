"""Time and peak memory of loading a checkpoint of a real size.

    python -m experiments.load_checkpoint --size=t5_1_1_base

Writes random weights of the size in each layout into a temporary folder, then
loads each in a process of its own. With `--keep=DIR` the folders stay, and a
further run loads what is there. Linux only: the peak is that of /proc.

Expected: at most 1.3 times the weights. For t5_1_1_base (990 MB) about two
minutes on two cores, most of them for writing gzip.
"""

import dataclasses
import pathlib
import subprocess
import sys
import tempfile
import time

from absl import app
from absl import flags
from absl import logging
import jax
import numpy as np

from specdec_jax import architecture
from specdec_jax import checkpoint
from specdec_jax import t5


@dataclasses.dataclass(frozen=True)
class Measured:
  seconds: float
  weights_mb: float  # as placed
  peak_mb: float  # most memory of the process while loading, over before
  ratio: float
  parameters: int


def _status_mb(field: str) -> float:
  for line in pathlib.Path('/proc/self/status').read_text().splitlines():
    if line.startswith(f'{field}:'):
      return int(line.split()[1]) / 1024
  raise ValueError(f'/proc/self/status has no {field}')


def measure(name: str, dtype: str = 'float32') -> Measured:
  """Loads `name` in this process, without a vocabulary."""
  jax.block_until_ready(jax.numpy.zeros(1))  # starts the backend
  pathlib.Path('/proc/self/clear_refs').write_text('5')  # resets VmHWM
  before, began = _status_mb('VmRSS'), time.monotonic()
  stored = checkpoint.open_checkpoint(name)
  checkpoint.settle(stored)
  params = checkpoint.place(stored.leaves, np.dtype(dtype))
  seconds, peak = time.monotonic() - began, _status_mb('VmHWM') - before
  leaves = jax.tree.leaves(params)
  weights = sum(x.nbytes for x in leaves) / 2**20
  return Measured(round(seconds, 2), round(weights, 1), round(peak, 1),
                  round(peak / weights, 3), sum(x.size for x in leaves))


def write_random(folder: pathlib.Path, size: str, form: str) -> None:
  """Random weights of a public size, as the initialiser draws them."""
  config = architecture.SIZES[size]
  params = t5.init_params(config, jax.random.key(0))
  checkpoint.write(
      folder, checkpoint.from_arrays(checkpoint.flatten(params)), config, None,
      form, np.float32)


def _run(root: pathlib.Path) -> None:
  for form in flags.FLAGS.format:
    folder = root / f'{flags.FLAGS.size}_{form}'
    if not folder.exists():
      write_random(folder, flags.FLAGS.size, form)
    for dtype in flags.FLAGS.dtype:
      code = ('from experiments import load_checkpoint as l\n'
              f'print(l.measure({str(folder)!r}, {dtype!r}))')
      printed = subprocess.run([sys.executable, '-c', code], check=True,
                               capture_output=True, text=True).stdout
      print(f'{flags.FLAGS.size} {form} as {dtype}: {printed.strip()}',
            flush=True)


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments {argv[1:]}')
  logging.set_verbosity(logging.WARNING)
  if flags.FLAGS.keep:
    _run(pathlib.Path(flags.FLAGS.keep))
  else:
    with tempfile.TemporaryDirectory() as root:
      _run(pathlib.Path(root))


if __name__ == '__main__':
  flags.DEFINE_enum(
      'size', 't5_1_1_base', sorted(architecture.SIZES), 'Model.')
  flags.DEFINE_string('keep', None, 'Folder to write and keep.')
  flags.DEFINE_multi_enum(
      'format', list(checkpoint.FORMATS), checkpoint.FORMATS, 'Layouts.')
  flags.DEFINE_multi_enum(
      'dtype', ['float32', 'bfloat16'], ['float32', 'bfloat16'], 'In memory.')
  app.run(main)
