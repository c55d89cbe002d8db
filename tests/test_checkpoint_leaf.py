"""Parts of a stored array: the right values, and only the bytes they need."""

from etils import epath
import numpy as np
import pytest

from specdec_jax.checkpoint import folder as folder_lib
from specdec_jax.checkpoint import leaf as leaf_lib
from specdec_jax.checkpoint import zarr

ARRAY = np.arange(32, dtype=np.float32).reshape(8, 4)
PARTS = [
    (slice(2, 5), slice(None)), (slice(None), slice(1, 3)),
    (slice(5, 8), slice(3, 4)), (slice(None), slice(None))]


@pytest.fixture
def stored():
  """The array as bytes, and the spans of them that were read."""
  spans = []

  def read(start, length):
    spans.append((start, length))
    return ARRAY.tobytes()[start:start + length]
  return leaf_lib.from_bytes(read, 128, [8, 4], 'float32', 'here'), spans


@pytest.mark.parametrize('part', PARTS)
def test_a_part_of_plain_bytes_has_the_values_of_the_whole(stored, part):
  leaf, _ = stored
  np.testing.assert_array_equal(leaf.part(part), ARRAY[part])
  np.testing.assert_array_equal(
      leaf.transposed().part(part[::-1]), ARRAY[part].T)


def test_rows_2_to_5_are_48_bytes_from_byte_32(stored):
  leaf, spans = stored
  leaf.part((slice(2, 5), slice(None)))
  assert spans == [(32, 48)]


def test_columns_are_cut_from_a_few_rows_at_a_time(stored, monkeypatch):
  monkeypatch.setattr(leaf_lib, '_BLOCK_BYTES', 32)
  leaf, spans = stored
  part = leaf.part((slice(None), slice(1, 3)))
  np.testing.assert_array_equal(part, ARRAY[:, 1:3])
  assert spans == [(at, 32) for at in range(0, 128, 32)]


@pytest.mark.parametrize('part', PARTS)
def test_a_part_of_a_zarr_array_reads_the_chunks_that_it_touches(
    tmp_path, monkeypatch, part):
  monkeypatch.setattr(zarr, '_CHUNK_BYTES', 24)  # chunks of (2, 2)
  zarr.write_array(tmp_path / 'a', ARRAY)
  read = []
  plain = folder_lib.Folder.read

  def counted(self, key, *span):
    read.append(key)
    return plain(self, key, *span)
  monkeypatch.setattr(folder_lib.Folder, 'read', counted)
  leaf = zarr.open_array(folder_lib.Folder(epath.Path(tmp_path)), 'a')
  read.clear()
  np.testing.assert_array_equal(leaf.part(part), ARRAY[part])
  rows, columns = (range(*p.indices(n)) for p, n in zip(part, (8, 4),
                                                        strict=True))
  touched = {f'a/{i // 2}.{j // 2}' for i in rows for j in columns}
  assert set(read) == touched and len(read) == len(touched)


def test_a_leaf_that_cannot_read_parts_is_read_and_cut():
  leaf = leaf_lib.from_arrays({'x': ARRAY})['x']
  np.testing.assert_array_equal(
      leaf.part((slice(1, 2), slice(0, 3))), ARRAY[1:2, :3])
