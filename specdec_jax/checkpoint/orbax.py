"""Orbax checkpoints: T5X's current layout, training states and our own.

`_METADATA` (JSON) lists the tree. The arrays are zarr folders beside it, or
entries of one OCDBT database (`manifest.ocdbt`, `d/`, `ocdbt.process_*/`). Only
the weights are opened.
"""

import dataclasses
import os
from typing import Any

import tensorstore as ts

from specdec_jax.checkpoint import errors
from specdec_jax.checkpoint import folder as folder_lib
from specdec_jax.checkpoint import leaf as leaf_lib
from specdec_jax.checkpoint import tree as tree_lib
from specdec_jax.checkpoint import zarr

METADATA = '_METADATA'
_MANIFEST = 'manifest.ocdbt'
_FILES = ('*', 'd/*', 'ocdbt.process_*/*', 'ocdbt.process_*/d/*')
_SECONDS = 600  # for one read; a damaged database must not hang


@dataclasses.dataclass(frozen=True)
class _Database:
  """The files inside an OCDBT database, which TensorStore reads."""
  folder: folder_lib.Folder
  store: ts.KvStore
  total: int  # bytes of the whole database

  def where(self, key: str) -> str:
    return self.folder.where(key)

  def _read(self, key: str, part: slice | None) -> ts.KvStore.ReadResult:
    self.folder.file(key)  # a key of the database leads nowhere else, either
    try:
      return self.store.read(key, byte_range=part).result(timeout=_SECONDS)
    except (ValueError, OSError, RuntimeError, NotImplementedError) as error:
      raise errors.CheckpointError(
          f'checkpoint {self.where(key)}: the database is damaged: '
          f'{error}') from error

  def size(self, key: str) -> int | None:
    """An upper bound: values do not tell their size without being read."""
    found = self._read(key, slice(0, 1))
    return self.total if found.state == 'value' else None

  def read(self, key: str) -> bytes:
    return self._read(key, None).value


def _open(folder: folder_lib.Folder) -> zarr.Store:
  """Where the arrays are: in the database if there is one, or in the folder."""
  if folder.size(_MANIFEST) is None:
    return folder
  folder.check_entries()
  base = os.fspath(folder.root)
  base = ({'driver': 'file', 'path': f'{base}/'} if folder.is_local
          else f'{base}/')
  try:
    store = ts.KvStore.open(
        {'driver': 'ocdbt', 'base': base}).result(timeout=_SECONDS)
  except (ValueError, OSError, RuntimeError, NotImplementedError) as error:
    raise errors.CheckpointError(
        f'checkpoint {folder.where(_MANIFEST)}: not readable: '
        f'{error}') from error
  return _Database(folder, store, folder.total_size(_FILES))


def _keys(entry: Any, where: str) -> tuple[str, ...]:
  """The path of one entry of the tree: (('key', 'target'), ...) as texts."""
  try:
    keys = tuple(part['key'] for part in entry['key_metadata'])
  except (TypeError, KeyError) as error:
    raise errors.CheckpointError(
        f'checkpoint {where}: an entry without key_metadata: '
        f'{str(entry)[:200]}') from error
  if not keys or not all(isinstance(key, str | int) for key in keys):
    raise errors.CheckpointError(
        f'checkpoint {where}: name {str(keys)[:200]}, allowed are texts')
  return tuple(map(str, keys))


def leaves(folder: folder_lib.Folder) -> dict[str, leaf_lib.Leaf]:
  """The weights of an Orbax checkpoint; everything else is left alone."""
  where = folder.where(METADATA)
  metadata = folder_lib.parse_json(folder.read(METADATA), where)
  tree = metadata.get('tree_metadata')
  if not isinstance(tree, dict) or not tree:
    raise errors.CheckpointError(f'checkpoint {where}: it lists no arrays')
  if metadata.get('use_zarr3'):
    raise errors.CheckpointError(
        f'checkpoint {where}: use_zarr3 is true, allowed is false: save it '
        'with `use_zarr3=False`')
  names = [_keys(entry, where) for entry in tree.values()]
  paths = tree_lib.weights_only({'/'.join(n): '.'.join(n) for n in names})
  store = _open(folder)
  return {name: zarr.open_array(store, path) for name, path in paths.items()}
