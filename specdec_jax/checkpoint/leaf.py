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


@dataclasses.dataclass(frozen=True)
class Leaf:
  """Shape and dtype of a stored array; `read()` returns it.

  Whoever makes one has compared its shape with the bytes that are stored.
  """
  shape: tuple[int, ...]
  dtype: np.dtype
  read: Callable[[], np.ndarray]

  @property
  def nbytes(self) -> int:
    return math.prod(self.shape) * self.dtype.itemsize

  def transposed(self) -> 'Leaf':
    return Leaf(self.shape[::-1], self.dtype, lambda: self.read().T)


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
    read: Callable[[], bytes], stored: int, shape: Any, dtype: Any, where: str
) -> Leaf:
  """A leaf stored as plain bytes, of which there must be just enough."""
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
  return Leaf(sizes, DTYPES[dtype],
              lambda: np.frombuffer(read(), DTYPES[dtype]).reshape(sizes))
