"""A parameter that is known but not yet read."""

from collections.abc import Callable, Mapping
import dataclasses
import math
from typing import Any

import ml_dtypes
import numpy as np

from specdec_jax.checkpoint import errors

# Names as NumPy and flax write them; the storage formats have their own.
DTYPES = {
    'float32': np.dtype(np.float32),
    'bfloat16': np.dtype(ml_dtypes.bfloat16),
    'float16': np.dtype(np.float16),
    'float64': np.dtype(np.float64),
}
_BLOCK_BYTES = 64 << 20


Index = tuple[slice, ...]  # one for each axis, of step 1


@dataclasses.dataclass(frozen=True)
class Leaf:
  """Shape and dtype of a stored array; `read()` returns it.

  Whoever makes one has compared its shape with the bytes that are stored.
  Where the storage allows it, `read_part` reads a part and not much more.
  """
  shape: tuple[int, ...]
  dtype: np.dtype
  read: Callable[[], np.ndarray]
  read_part: Callable[[Index], np.ndarray] | None = None

  @property
  def nbytes(self) -> int:
    return math.prod(self.shape) * self.dtype.itemsize

  def part(self, index: Index) -> np.ndarray:
    """`read()[index]`."""
    whole = all(span.indices(size) == (0, size, 1)
                for span, size in zip(index, self.shape, strict=True))
    if whole or self.read_part is None:
      return self.read()[index]
    return self.read_part(index)

  def transposed(self) -> 'Leaf':
    return Leaf(self.shape[::-1], self.dtype, lambda: self.read().T,
                lambda index: self.part(index[::-1]).T)


Leaves = Mapping[str, Leaf]  # by flat T5X name, 'encoder/encoder_norm/scale'


def from_arrays(arrays: Mapping[str, Any]) -> dict[str, Leaf]:
  """Leaves of arrays (NumPy or JAX) that are in memory already."""
  return {
      name: Leaf(tuple(x.shape), np.dtype(x.dtype), lambda x=x: np.asarray(x))
      for name, x in arrays.items()}


def checked_shape(shape: Any, where: str) -> tuple[int, ...]:
  """`shape` as a tuple, where it is a list of integers of 1 and above."""
  if not isinstance(shape, list | tuple) or len(shape) > 8 or not all(
      type(size) is int and size > 0 for size in shape):
    raise errors.CheckpointError(
        f'checkpoint {where}: shape {str(shape)[:200]}, allowed are up to 8 '
        'sizes of 1 and above')
  return tuple(shape)


def from_bytes(
    read: Callable[[int, int], bytes], stored: int, shape: Any, dtype: Any,
    where: str
) -> Leaf:
  """A leaf stored as plain bytes, of which there must be just enough.

  Args:
    read: (start, length) -> bytes of the array.
    stored: how many there are.
    shape, dtype: as the file claims.
    where: for messages.
  """
  sizes = checked_shape(shape, where)
  if not isinstance(dtype, str) or dtype not in DTYPES:
    raise errors.CheckpointError(
        f'checkpoint {where}: dtype {str(dtype)[:200]!r}, allowed are '
        f'{", ".join(DTYPES)}')
  needed = math.prod(sizes) * DTYPES[dtype].itemsize
  if stored != needed:
    raise errors.CheckpointError(
        f'checkpoint {where}: shape {sizes} of {dtype} needs {needed} bytes, '
        f'stored are {stored}')
  whole = Leaf(
      sizes, DTYPES[dtype],
      lambda: np.frombuffer(read(0, stored), DTYPES[dtype]).reshape(sizes))
  return dataclasses.replace(
      whole, read_part=lambda index: _rows_part(whole, read, index))


def _rows_part(
    leaf: Leaf, read: Callable[[int, int], bytes], index: Index
) -> np.ndarray:
  """A part of an array stored row by row, some rows in memory at a time.

  Example: rows 2 to 5 of an array (8, 4) of float32 are 48 bytes from byte 32;
  of its columns 1 and 2, all rows are read and half of each is kept.
  """
  first, last, _ = index[0].indices(leaf.shape[0])
  row = leaf.nbytes // leaf.shape[0]
  step = max(1, _BLOCK_BYTES // row)
  blocks = []
  for at in range(first, last, step):
    rows = min(step, last - at)
    block = np.frombuffer(read(at * row, rows * row), leaf.dtype)
    block = block.reshape(rows, *leaf.shape[1:])
    # A copy, so that what is not wanted of the block is let go.
    blocks.append(block[(slice(None), *index[1:])].copy())
  return np.concatenate(blocks)
