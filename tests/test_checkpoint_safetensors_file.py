"""Safetensors headers are compared with the file."""

import json

from etils import epath
import numpy as np
import pytest
from safetensors import numpy as safetensors_numpy

from specdec_jax.checkpoint import errors
from specdec_jax.checkpoint import folder as folder_lib
from specdec_jax.checkpoint import leaf as leaf_lib
from specdec_jax.checkpoint import safetensors_file
from tests import checkpoint_oracle as oracle


def _leaves(folder):
  return safetensors_file.leaves(folder_lib.Folder(epath.Path(folder)), 'm')


def _arrays(dtype):
  return {'b': np.arange(6).reshape(2, 3).astype(dtype),
          'a': np.arange(4).astype(dtype)}


@pytest.mark.parametrize('dtype', [
    np.float32, np.float16, np.float64, oracle.BFLOAT16], ids=str)
def test_reads_and_writes_what_safetensors_does(tmp_path, dtype):
  arrays = _arrays(dtype)
  safetensors_numpy.save_file(arrays, tmp_path / 'm')
  oracle.assert_same(
      {name: leaf.read() for name, leaf in _leaves(tmp_path).items()}, arrays)
  safetensors_file.write(
      tmp_path / 'm', leaf_lib.from_arrays(arrays), np.dtype(dtype))
  oracle.assert_same(safetensors_numpy.load_file(tmp_path / 'm'), arrays)


def _write(path, entries, data=bytes(40), length=None):
  header = json.dumps(entries).encode()
  length = len(header) if length is None else length
  path.write_bytes(length.to_bytes(8, 'little') + header + data)


_A = {'dtype': 'F32', 'shape': [4], 'data_offsets': [0, 16]}
_B = {'dtype': 'F32', 'shape': [2, 3], 'data_offsets': [16, 40]}


@pytest.mark.parametrize('a, message', [
    (_A | {'shape': [5]}, 'needs 20 bytes, stored are 16'),
    (_A | {'shape': [1 << 40]}, 'stored are 16'),
    (_A | {'shape': [-4]}, 'sizes of 1 and above'),
    (_A | {'shape': 4}, 'sizes of 1 and above'),
    (_A | {'dtype': 'I8'}, "dtype 'I8'"),
    (_A | {'dtype': ['F32']}, 'needed are dtype'),
    (_A | {'data_offsets': [0, 12]}, 'stored are 12'),
    (_A | {'data_offsets': [4, 20]}, 'the one before ends at 0'),
    (_A | {'data_offsets': [16, 0]}, 'starts at'),
    (_A | {'data_offsets': [0, 1 << 62]}, f'stored are {1 << 62}'),
    (_A | {'data_offsets': [0.0, 16.0]}, 'allowed are integers'),
    (_A | {'data_offsets': [0]}, 'needed are dtype'),
    ({'dtype': 'F32'}, 'needed are dtype'),
    ([], 'needed are dtype'),
], ids=str)
def test_entry_that_does_not_fit_is_refused(tmp_path, a, message):
  _write(tmp_path / 'm', {'a': a, 'b': _B})
  with pytest.raises(errors.CheckpointError, match=message):
    _leaves(tmp_path)


@pytest.mark.parametrize('length', [0, 5, 1 << 20, (1 << 64) - 1])
def test_header_length_is_compared_with_the_file(tmp_path, length):
  _write(tmp_path / 'm', {'a': _A, 'b': _B}, length=length)
  with pytest.raises(errors.CheckpointError):
    _leaves(tmp_path)


@pytest.mark.parametrize('size', [39, 41])
def test_cut_and_extended_files_are_refused(tmp_path, size):
  _write(tmp_path / 'm', {'a': _A, 'b': _B}, bytes(size))
  with pytest.raises(errors.CheckpointError, match='cut or damaged'):
    _leaves(tmp_path)
