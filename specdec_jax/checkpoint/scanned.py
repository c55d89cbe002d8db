"""T5X's scanned layers: all layers of a stack in one array, along axis 1.

They stand under `encoder/encoder` and `decoder/decoder`, with attention kernels
of three dimensions, and each layer has its own relative-position table. T5 has
one table a stack, so the model is the same only if all layers agree.
"""

from collections.abc import Callable
import functools
import re

import numpy as np

from specdec_jax.checkpoint import errors
from specdec_jax.checkpoint import identity
from specdec_jax.checkpoint import leaf as leaf_lib

_NAME = re.compile(r'(encoder|decoder)/\1/(.+)')
_TABLE = 'relpos_bias/rel_embedding'


def _layer(stacked: np.ndarray, i: int, is_out: bool) -> np.ndarray:
  """Layer `i`, head-major in two dimensions: (d, h, k) or (h, k, d) folded."""
  x = stacked[:, i]
  if x.ndim < 3:
    return x
  return x.reshape(-1, x.shape[-1]) if is_out else x.reshape(x.shape[0], -1)


def _shape(shape: tuple[int, ...], is_out: bool) -> tuple[int, ...]:
  """The shape of `_layer` of a stacked array of `shape`."""
  one = shape[:1] + shape[2:]
  if len(one) < 3:
    return one
  return (one[0] * one[1], one[2]) if is_out else (one[0], one[1] * one[2])


def _agreed_table(
    name: str, read: Callable[[str], np.ndarray], where: str
) -> np.ndarray:
  stacked = read(name)
  for i in range(1, stacked.shape[1]):
    if not np.array_equal(stacked[:, 0], stacked[:, i]):
      raise errors.CheckpointError(
          f'checkpoint {where}: {name}: layers 0 and {i} have different '
          'relative-position tables; allowed is one table for all layers')
  return stacked[:, 0]


def _layers(leaves: leaf_lib.Leaves, where: str) -> dict[str, int]:
  """Number of layers of each stack, on which all its arrays must agree."""
  found: dict[str, dict[int, str]] = {}
  for name, leaf in leaves.items():
    if match := _NAME.fullmatch(name):
      if not 2 <= len(leaf.shape) <= 4:
        raise errors.CheckpointError(
            f'checkpoint {where}: {name} has shape {leaf.shape}, allowed are '
            '2 to 4 axes with the layers second')
      found.setdefault(match[1], {}).setdefault(leaf.shape[1], name)
  for counts in found.values():
    if len(counts) > 1 or max(counts) > identity.MAX_LAYERS:
      raise errors.CheckpointError(
          f'checkpoint {where}: layers on axis 1: ' + ', '.join(
              f'{count} in {name}' for count, name in counts.items())
          + f'; allowed is one number up to {identity.MAX_LAYERS}')
  return {stack: next(iter(counts)) for stack, counts in found.items()}


def unstack(leaves: leaf_lib.Leaves, where: str) -> dict[str, leaf_lib.Leaf]:
  """The leaves with one entry a layer; others pass unchanged.

  Raises:
    CheckpointError: where the layers' relative-position tables differ, found
      out before any other array is read.
  """
  layers = _layers(leaves, where)
  # Layers of an array are asked for in turn, so one array in memory is enough.
  read = functools.lru_cache(maxsize=1)(lambda name: leaves[name].read())
  out = {}
  for name, leaf in leaves.items():
    match = _NAME.fullmatch(name)
    if match is None:
      out[name] = leaf
    elif match[2] == _TABLE:
      table = _agreed_table(name, read, where)
      out[f'{match[1]}/{_TABLE}'] = leaf_lib.Leaf(
          table.shape, leaf.dtype, lambda table=table: table)
    else:
      is_out = name.endswith('/out/kernel')
      for i in range(layers[match[1]]):
        out[f'{match[1]}/layers_{i}/{match[2]}'] = leaf_lib.Leaf(
            _shape(leaf.shape, is_out), leaf.dtype,
            lambda name=name, i=i, is_out=is_out: _layer(read(name), i, is_out))
  return out
