"""Legacy T5X checkpoints: a msgpack file, arrays in it or beside it.

The file `checkpoint` holds a tree whose leaves are arrays (msgpack extension
type 1), TensorStore specs that name a zarr folder beside the file, or, in
checkpoints of the first Orbax versions, texts `PLACEHOLDER://FOLDER`. Version 3
(and 2) wrap the weights in `optimizer/target`; version 0 or none is a bare
tree.
"""

from collections.abc import Iterator, Mapping
import pathlib
from typing import Any, TypeGuard

from flax import serialization
import numpy as np

from specdec_jax.checkpoint import errors
from specdec_jax.checkpoint import folder as folder_lib
from specdec_jax.checkpoint import leaf as leaf_lib
from specdec_jax.checkpoint import msgpack_index
from specdec_jax.checkpoint import tree as tree_lib
from specdec_jax.checkpoint import zarr

FILE = 'checkpoint'
_ARRAY = 1  # flax's msgpack extension type
_VERSIONS = (None, 0, 2, 3)
_PLACEHOLDER = 'PLACEHOLDER://'
_DRIVERS = ('file', 'gfile', 'gcs')
_ANY_BUCKET = 't5x-dummy-bucket'  # what T5X writes for "the folder's own"


def _index(folder: folder_lib.Folder, key: str, span=None) -> Any:
  """The msgpack value in a file, or in one span of it."""
  size = folder.size(key)
  if size is None:
    raise errors.CheckpointError(
        f'checkpoint {folder.where(key)}: no such file')
  start, stop = (0, size) if span is None else (
      span.start, span.start + span.length)
  try:
    with folder.file(key).open('rb') as file:
      return msgpack_index.index(file, start, stop)
  except (ValueError, OSError) as error:
    raise errors.CheckpointError(
        f'checkpoint {folder.where(key)}: not a whole T5X checkpoint: '
        f'{error}') from error


def _is_spec(value: Any) -> TypeGuard[dict[str, Any]]:
  return isinstance(value, dict) and isinstance(value.get('kvstore'), dict)


def _flat(value: Any, name: str = '') -> Iterator[tuple[str, Any]]:
  if isinstance(value, dict) and not _is_spec(value):
    for key, child in value.items():
      yield from _flat(child, f'{name}/{key}' if name else key)
  else:
    yield name, value


def _inline(
    folder: folder_lib.Folder, key: str, span: msgpack_index.Span, where: str
) -> leaf_lib.Leaf:
  """flax packs an array as (shape, dtype name, bytes)."""
  packed = _index(folder, key, span)
  if not isinstance(packed, list) or len(packed) != 3 or not isinstance(
      packed[2], msgpack_index.Span):
    raise errors.CheckpointError(
        f'checkpoint {where}: an array must be (shape, dtype, bytes)')
  shape, dtype, data = packed
  return leaf_lib.from_bytes(
      lambda start, length: folder.read(key, data.start + start, length),
      data.length, shape, dtype, where)


def _spec_path(spec: Mapping[str, Any], root: str, where: str) -> str:
  """The array folder of a TensorStore spec, relative to the checkpoint's.

  T5X writes the kvstore of the machine that saved. Whatever it says, the array
  lies in the checkpoint folder, so any other place is refused.
  """
  kvstore = spec['kvstore']
  driver, bucket = kvstore.get('driver'), kvstore.get('bucket', _ANY_BUCKET)
  if driver not in _DRIVERS:
    raise errors.CheckpointError(
        f'checkpoint {where}: kvstore {str(driver)[:200]!r}, allowed are '
        f'{", ".join(_DRIVERS)}')
  if bucket != _ANY_BUCKET and not root.startswith(f'gs://{bucket}/'):
    raise errors.CheckpointError(
        f'checkpoint {where}: bucket {str(bucket)[:200]!r}, allowed is the '
        'one of the checkpoint')
  path = kvstore.get('path', spec.get('path'))
  if spec.get('driver') != 'zarr' or not isinstance(path, str):
    raise errors.CheckpointError(
        f'checkpoint {where}: driver {str(spec.get("driver"))[:200]!r} at path '
        f'{str(path)[:200]!r}, needed are `zarr` and a text')
  return path.removesuffix('/')


def _check_spec_shape(spec, found: leaf_lib.Leaf, where: str) -> None:
  metadata = spec.get('metadata')
  shape = metadata.get('shape') if isinstance(metadata, dict) else None
  if shape is not None and shape != list(found.shape):
    raise errors.CheckpointError(
        f'checkpoint {where}: shape {str(shape)[:200]} in the spec, '
        f'{found.shape} in the array')


def _leaf(
    folder: folder_lib.Folder, key: str, name: str, value: Any
) -> leaf_lib.Leaf:
  where = f'{folder.where(key)}, {name}'
  if isinstance(value, msgpack_index.Span) and value.code == _ARRAY:
    return _inline(folder, key, value, where)
  if _is_spec(value):
    found = zarr.open_array(folder, _spec_path(value, folder.where(), where))
    _check_spec_shape(value, found, where)
    return found
  if isinstance(value, str) and value.startswith(_PLACEHOLDER):
    return zarr.open_array(folder, value.removeprefix(_PLACEHOLDER))
  raise errors.CheckpointError(
      f'checkpoint {where}: {str(value)[:200]!r} is neither an array nor a '
      'TensorStore spec')


def leaves(
    folder: folder_lib.Folder, key: str = FILE
) -> dict[str, leaf_lib.Leaf]:
  """The weights of a legacy T5X checkpoint; the optimizer is left alone."""
  content = _index(folder, key)
  if not isinstance(content, dict):
    raise errors.CheckpointError(
        f'checkpoint {folder.where(key)}: not a T5X checkpoint')
  version = content.pop('version', None)
  if version not in _VERSIONS or type(version) is bool:
    raise errors.CheckpointError(
        f'checkpoint {folder.where(key)}: version {str(version)[:200]}, '
        f'allowed are {", ".join(map(str, _VERSIONS))}')
  weights = tree_lib.weights_only(dict(_flat(content)))
  return {name: _leaf(folder, key, name, value)
          for name, value in weights.items()}


def write(folder: pathlib.Path, leaves: leaf_lib.Leaves, dtype) -> None:
  """Writes version 3: one zarr array a leaf and the file that lists them."""
  specs = {}
  for name, leaf in leaves.items():
    path = 'target.' + name.replace('/', '.')
    metadata = zarr.write_array(
        folder / path, leaf.read().astype(dtype, copy=False))
    specs[name] = {
        'driver': 'zarr', 'dtype': dtype.name,
        'kvstore': {'driver': 'file', 'path': f'{path}/'},
        'metadata': {k: metadata[k] for k in ('shape', 'chunks', 'compressor')}}
  content = {'version': 3, 'optimizer': {
      'target': tree_lib.unflatten(specs),
      'state': {'step': np.zeros((), np.int32), 'param_states': {}}}}
  (folder / FILE).write_bytes(serialization.msgpack_serialize(content))
