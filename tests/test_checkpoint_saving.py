"""A folder has its name only once it is whole."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from specdec_jax import checkpoint
from tests import checkpoint_oracle as oracle


def _write(folder, form, leaves=None, dtype=np.float32):
  leaves = leaves or checkpoint.from_arrays(oracle.arrays(oracle.TINY))
  checkpoint.write(folder, leaves, oracle.TINY, None, form, dtype)


def _read(folder):
  stored = checkpoint.open_checkpoint(str(folder))
  checkpoint.settle(stored)
  return {name: leaf.read() for name, leaf in stored.leaves.items()}


@pytest.mark.parametrize('form', checkpoint.FORMATS)
def test_failed_write_leaves_the_old_folder_and_nothing_else(tmp_path, form):
  _write(tmp_path / 'm', form)
  leaves = checkpoint.from_arrays(oracle.arrays(oracle.TINY))

  def broken():
    raise KeyboardInterrupt
  name = 'encoder/encoder_norm/scale'
  leaves[name] = leaves[name].__class__((8,), np.dtype(np.float32), broken)
  with pytest.raises(KeyboardInterrupt):
    _write(tmp_path / 'm', form, leaves)
  assert os.listdir(tmp_path) == ['m']
  oracle.assert_same(_read(tmp_path / 'm'), oracle.arrays(oracle.TINY))


_KILLED = '''
import os
import numpy as np
from specdec_jax import checkpoint
from tests import checkpoint_oracle as oracle
leaves = checkpoint.from_arrays(oracle.arrays(oracle.TINY))
name = 'encoder/encoder_norm/scale'
leaves[name] = leaves[name].__class__(
    (8,), np.dtype(np.float32), lambda: os._exit(9))
for form in ('t5x', 'hf'):
  if not os.path.exists(f'{ROOT}/{form}.partial'):
    checkpoint.write(ROOT / form, leaves, oracle.TINY, None, form, np.float32)
'''


def test_killed_write_leaves_nothing_that_looks_complete(tmp_path):
  code = f'import pathlib\nROOT = pathlib.Path({str(tmp_path)!r})\n{_KILLED}'
  for form in ('t5x', 'hf'):
    done = subprocess.run([sys.executable, '-c', code], check=False,
                          cwd=pathlib.Path(__file__).parents[1])
    assert done.returncode == 9
    assert (tmp_path / f'{form}.partial').exists()
    with pytest.raises(checkpoint.CheckpointError, match='unfinished save'):
      _read(tmp_path / form)
    with pytest.raises(checkpoint.CheckpointError, match='unfinished save'):
      _read(tmp_path / f'{form}.partial')


@pytest.mark.parametrize('form', checkpoint.FORMATS)
def test_dtype_is_cast_once_on_writing(tmp_path, form):
  _write(tmp_path / 'm', form, dtype=oracle.BFLOAT16)
  oracle.assert_same(_read(tmp_path / 'm'), {
      name: x.astype(oracle.BFLOAT16)
      for name, x in oracle.arrays(oracle.TINY).items()})


def test_unknown_format_is_refused(tmp_path):
  with pytest.raises(ValueError, match="format 'pickle': allowed are t5x"):
    _write(tmp_path / 'm', 'pickle')
  assert not os.listdir(tmp_path)
