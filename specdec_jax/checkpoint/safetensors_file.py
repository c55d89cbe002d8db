"""The safetensors format: a JSON header and the bytes of the arrays.

Eight bytes of header length, the header `{name: {dtype, shape, data_offsets}}`,
then the arrays one after the other. Read here, with every offset compared with
the file, so that arrays are read one by one also from a bucket.
"""

from collections.abc import Mapping
import json
import pathlib
from typing import Any

import numpy as np

from specdec_jax.checkpoint import errors
from specdec_jax.checkpoint import folder as folder_lib
from specdec_jax.checkpoint import leaf as leaf_lib

_DTYPES = {'F32': 'float32', 'BF16': 'bfloat16', 'F16': 'float16',
           'F64': 'float64'}
_LENGTH = 8  # bytes of the header's length, little-endian


def _entry(entry: Any, where: str) -> tuple[Any, Any, int, int]:
  try:
    start, stop = entry['data_offsets']
    shape, dtype = entry['shape'], _DTYPES.get(entry['dtype'], entry['dtype'])
  except (TypeError, KeyError, ValueError) as error:
    raise errors.CheckpointError(
        f'checkpoint {where}: needed are dtype, shape and data_offsets, found '
        f'{str(entry)[:200]}') from error
  if type(start) is not int or type(stop) is not int:
    raise errors.CheckpointError(
        f'checkpoint {where}: data_offsets {str([start, stop])[:200]}, allowed '
        'are integers')
  return shape, dtype, start, stop


def leaves(folder: folder_lib.Folder, key: str) -> dict[str, leaf_lib.Leaf]:
  """The arrays of one file, by the names in it."""
  where = folder.where(key)
  length = int.from_bytes(folder.read(key, 0, _LENGTH), 'little')
  header = folder_lib.parse_json(folder.read(key, _LENGTH, length), where)
  header.pop('__metadata__', None)
  out, at = {}, 0
  entries = {name: _entry(entry, f'{where}, {name}')
             for name, entry in header.items()}
  for name, entry in sorted(entries.items(), key=lambda item: item[1][2]):
    shape, dtype, start, stop = entry
    if start != at:
      raise errors.CheckpointError(
          f'checkpoint {where}, {name}: starts at {start}, the one before ends '
          f'at {at}')
    at = stop
    begin = _LENGTH + length + start
    out[name] = leaf_lib.from_bytes(
        lambda at, size, begin=begin: folder.read(key, begin + at, size),
        stop - start, shape, dtype, f'{where}, {name}')
  if _LENGTH + length + at != folder.size(key):
    raise errors.CheckpointError(
        f'checkpoint {where}: {folder.size(key)} bytes, the header says '
        f'{_LENGTH + length + at}: it is cut or damaged')
  return out


def write(
    path: pathlib.Path, leaves: leaf_lib.Leaves, dtype: np.dtype
) -> None:
  """Writes the leaves in `dtype`, reading one at a time."""
  tags = {name: tag for tag, name in _DTYPES.items()}
  header: dict[str, Mapping[str, Any]] = {'__metadata__': {'format': 'pt'}}
  at = 0
  for name, leaf in leaves.items():
    size = leaf.nbytes // leaf.dtype.itemsize * dtype.itemsize
    header[name] = {'dtype': tags[dtype.name], 'shape': leaf.shape,
                    'data_offsets': [at, at + size]}
    at += size
  text = json.dumps(header).encode()
  text += b' ' * (-len(text) % 8)  # the arrays start at a multiple of 8
  with path.open('wb') as out:
    out.write(len(text).to_bytes(_LENGTH, 'little') + text)
    for leaf in leaves.values():
      x = np.ascontiguousarray(leaf.read().astype(dtype, copy=False))
      out.write(x.reshape(-1).view(np.uint8).data)
