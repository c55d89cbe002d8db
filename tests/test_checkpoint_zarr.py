"""Zarr arrays: TensorStore as the reference, and hostile ones refused."""

import gzip
import json

from etils import epath
import numpy as np
import pytest
import tensorstore as ts
import zstandard

from specdec_jax.checkpoint import errors
from specdec_jax.checkpoint import folder as folder_lib
from specdec_jax.checkpoint import zarr
from tests import checkpoint_oracle as oracle


def _open(folder):
  return zarr.open_array(folder_lib.Folder(epath.Path(folder)), 'x')


def _theirs(folder, x, **metadata):
  dtype = 'bfloat16' if x.dtype == oracle.BFLOAT16 else x.dtype.str
  store = ts.open({
      'driver': 'zarr', 'kvstore': {'driver': 'file', 'path': f'{folder}/x/'},
      'metadata': {'shape': list(x.shape), 'dtype': dtype, **metadata},
      'create': True}).result()
  store.write(x).result()


@pytest.mark.parametrize('dtype', [
    np.float32, np.float16, np.float64, oracle.BFLOAT16], ids=str)
@pytest.mark.parametrize('chunks', [[7, 5], [3, 5], [3, 2], [7, 4]], ids=str)
@pytest.mark.parametrize('compressor', [
    None, {'id': 'gzip', 'level': 5}, {'id': 'zlib', 'level': 5},
    {'id': 'zstd', 'level': 3}], ids=str)
def test_array_of_tensorstore_reads_back(tmp_path, dtype, chunks, compressor):
  x = (np.arange(35).reshape(7, 5) - 3).astype(dtype)
  _theirs(tmp_path, x, chunks=chunks, compressor=compressor)
  leaf = _open(tmp_path)
  assert leaf.shape == x.shape and leaf.dtype == x.dtype
  assert leaf.nbytes == x.nbytes
  np.testing.assert_array_equal(leaf.read(), x)


def test_slash_between_chunk_numbers(tmp_path):
  x = np.arange(12, dtype=np.float32).reshape(4, 3)
  _theirs(tmp_path, x, chunks=[2, 3], compressor=None, dimension_separator='/')
  np.testing.assert_array_equal(_open(tmp_path).read(), x)


@pytest.mark.parametrize('shape', [(5,), (7, 5), (3, 2, 4)])
def test_array_that_we_write_is_read_by_tensorstore(
    tmp_path, monkeypatch, shape):
  monkeypatch.setattr(zarr, '_CHUNK_BYTES', 40)
  x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
  metadata = zarr.write_array(tmp_path / 'x', x)
  assert np.prod(metadata['chunks']) * 4 <= 40
  store = ts.open({'driver': 'zarr', 'kvstore': {
      'driver': 'file', 'path': f'{tmp_path}/x/'}}).result()
  np.testing.assert_array_equal(store.read().result(), x)
  np.testing.assert_array_equal(_open(tmp_path).read(), x)


def _hostile(folder, chunk: bytes, **fields):
  (folder / 'x').mkdir()
  metadata = {
      'zarr_format': 2, 'shape': [4, 3], 'chunks': [4, 3], 'dtype': '<f4',
      'compressor': {'id': 'gzip', 'level': 1}, 'fill_value': None,
      'filters': None, 'order': 'C'} | fields
  (folder / 'x' / '.zarray').write_text(json.dumps(metadata))
  (folder / 'x' / '0.0').write_bytes(chunk)


_GOOD = gzip.compress(bytes(48))


@pytest.mark.parametrize('fields, message', [
    (dict(shape=[1 << 40, 3], chunks=[1 << 40, 3]), 'too few for a chunk'),
    (dict(shape=[1 << 40, 3]), 'at most 100000 chunks'),
    (dict(shape=[5, 3]), '1.0: no such file'),
    (dict(shape=[4, 3], chunks=[1 << 62, 1 << 62]), 'too few for a chunk'),
    (dict(shape=[-4, 3]), 'allowed are up to 8 sizes'),
    (dict(shape=[0, 3]), 'allowed are up to 8 sizes'),
    (dict(shape=[4.0, 3]), 'allowed are up to 8 sizes'),
    (dict(shape=[True, 3]), 'allowed are up to 8 sizes'),
    (dict(shape='43'), 'allowed are up to 8 sizes'),
    (dict(shape=[1] * 99), 'allowed are up to 8 sizes'),
    (dict(chunks=[4]), 'as many axes'),
    (dict(chunks=[0, 3]), 'allowed are up to 8 sizes'),
    (dict(dtype='>f4'), "dtype '>f4', allowed are <f4"),
    (dict(dtype='|O'), 'dtype'),
    (dict(dtype=[['a', '<f4']]), 'dtype'),
    (dict(dtype='<f8'), 'has 96 bytes, stored are 48'),
    (dict(dtype='<f2'), 'has 24 bytes, stored are more'),
    (dict(order='F'), "order 'F', allowed are C"),
    (dict(filters=[{'id': 'delta'}]), 'filters'),
    (dict(compressor={'id': 'blosc'}), "compressor 'blosc'"),
    (dict(compressor={'id': 'pickle'}), "compressor 'pickle'"),
    (dict(compressor=None), '24 bytes, too few'),
    (dict(compressor={'id': 'zstd'}), 'damaged'),
    (dict(zarr_format=3), 'zarr_format'),
    (dict(dimension_separator='/'), '0/0: no such file'),
    (dict(dimension_separator='../'), 'dimension_separator'),
    (dict(dimension_separator=''), 'dimension_separator'),
    (dict(dimension_separator=1), 'dimension_separator'),
], ids=str)
def test_hostile_metadata_is_refused(tmp_path, fields, message):
  _hostile(tmp_path, _GOOD, **fields)
  with pytest.raises(errors.CheckpointError, match=message):
    _open(tmp_path).read()


@pytest.mark.parametrize('chunk, message', [
    (b'', 'too few'),
    (_GOOD[:-1], 'cut'),
    (_GOOD[:15], 'cut'),
    (_GOOD + b'tail', 'tail'),
    (gzip.compress(bytes(44)), 'stored are 44'),
    (gzip.compress(bytes(100_000_000)), 'stored are more'),
    (b'not gzip at all', 'damaged'),
], ids=['empty', 'trailer', 'cut', 'tail', 'short', 'bomb', 'text'])
def test_damaged_chunk_is_refused(tmp_path, chunk, message):
  _hostile(tmp_path, chunk)
  with pytest.raises(errors.CheckpointError, match=message):
    _open(tmp_path).read()


class _Vague:
  """A store that knows no sizes, as a database."""

  def __init__(self, chunk: bytes, **fields):
    metadata = {'zarr_format': 2, 'dtype': '<f4', 'order': 'C',
                'compressor': {'id': 'zstd'}} | fields
    self._metadata, self._chunk = json.dumps(metadata).encode(), chunk

  def where(self, key):
    return key

  def size(self, key):
    return 1 << 50

  def read(self, key):
    return self._metadata if key.endswith('.zarray') else self._chunk


@pytest.mark.parametrize('shape, chunks', [
    ([1 << 40, 3], [1 << 40, 3]), ([1 << 40, 3], [1 << 30, 3])])
def test_claimed_size_is_compared_again_with_what_was_read(shape, chunks):
  store = _Vague(zstandard.compress(bytes(1 << 20)), shape=shape, chunks=chunks)
  leaf = zarr.open_array(store, 'x')
  with pytest.raises(errors.CheckpointError, match='bytes, too few for'):
    leaf.read()


def test_zstd_bomb_is_stopped():
  store = _Vague(zstandard.compress(bytes(1 << 30)), shape=[4, 3],
                 chunks=[4, 3])
  with pytest.raises(errors.CheckpointError, match='stored are more'):
    zarr.open_array(store, 'x').read()


def test_flipped_bit_in_a_gzip_chunk_is_noticed(tmp_path):
  x = np.random.default_rng(0).bytes(48)
  _hostile(tmp_path, gzip.compress(x))
  path = tmp_path / 'x' / '0.0'
  data = bytearray(path.read_bytes())
  data[30] ^= 1
  path.write_bytes(bytes(data))
  with pytest.raises(errors.CheckpointError, match='damaged'):
    _open(tmp_path).read()


@pytest.mark.parametrize('text', ['', '[]', '{', 'NaN', '[' * 100_000])
def test_metadata_that_is_no_json_object_is_refused(tmp_path, text):
  _hostile(tmp_path, _GOOD)
  (tmp_path / 'x' / '.zarray').write_text(text)
  with pytest.raises(errors.CheckpointError, match='JSON'):
    _open(tmp_path)
