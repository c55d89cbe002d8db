"""The gate to a checkpoint's files.

A checkpoint is untrusted input. Every byte of one is read through `Folder`, by
a key relative to it, and no key leads out of the folder: not by `..`, not by an
absolute path or URL, not by a symbolic link.
"""

from collections.abc import Iterable, Iterator
import dataclasses
import functools
import json
import os
import pathlib
from typing import Any

from etils import epath

from specdec_jax.checkpoint import errors

_JSON_LIMIT = 64 << 20  # bytes; an 11B checkpoint's metadata has under 2 MB


@dataclasses.dataclass(frozen=True)
class Folder:
  """A checkpoint folder: local, or a URL that etils opens (`gs://...`)."""
  root: epath.Path

  @property
  def is_local(self) -> bool:
    return '://' not in os.fspath(self.root)

  def where(self, key: str = '') -> str:
    return os.fspath(self.root / key) if key else os.fspath(self.root)

  def file(self, key: str) -> epath.Path:
    """The path of `key`, which need not exist.

    Raises:
      CheckpointError: for a key that leads out of the folder.
    """
    parts = key.split('/')
    if not key.isprintable() or '\\' in key or any(
        part in ('', '.', '..') or ':' in part for part in parts):
      raise errors.CheckpointError(
          f'checkpoint {self.where()}: path {key[:200]!r}: allowed are paths '
          'inside the checkpoint folder')
    path = self.root / key
    if self.is_local:
      self._check_link(pathlib.Path(path))
    return path

  @functools.cached_property
  def _allowed(self) -> tuple[pathlib.Path, ...]:
    """Where files may really lie: the folder, and beside it the hub's blobs.

    The Hugging Face cache keeps MODEL/snapshots/REVISION/FILE as links into
    MODEL/blobs; the blobs must themselves be a plain folder.
    """
    root = pathlib.Path(self.root).resolve()
    if root.parent.name == 'snapshots':
      blobs = root.parent.parent / 'blobs'
      if blobs.is_dir() and not blobs.is_symlink():
        return root, blobs
    return (root,)

  def _check_link(self, path: pathlib.Path) -> None:
    try:
      real = path.resolve()
    except (OSError, RuntimeError) as error:  # a loop of links, a long name
      raise errors.CheckpointError(
          f'checkpoint {path}: not readable: {error}') from error
    if not any(real.is_relative_to(allowed) for allowed in self._allowed):
      raise errors.CheckpointError(
          f'checkpoint {path}: a link to {real}, outside the checkpoint '
          'folder; put the file itself there')

  def check_entries(self) -> None:
    """Refuses a local folder with a link out of it or a pipe, at any depth.

    For what reads files itself (TensorStore's database driver).
    """
    if not self.is_local:
      return
    for at, folders, files in os.walk(self.root):
      for path in (pathlib.Path(at) / name for name in (*folders, *files)):
        self._check_link(path)
        if not path.is_file() and not path.is_dir():
          raise errors.CheckpointError(
              f'checkpoint {path}: neither a file nor a folder')

  def total_size(self, patterns: Iterable[str]) -> int:
    """Bytes of all files that match any of `patterns`."""
    return sum(file.stat().length for pattern in patterns
               for file in self.root.glob(pattern) if file.is_file())

  def size(self, key: str) -> int | None:
    """Bytes of a regular file; None where there is none."""
    path = self.file(key)
    try:
      if self.is_local:  # etils counts pipes as files; opening one would hang
        local = pathlib.Path(path)
        return local.stat().st_size if local.is_file() else None
      return path.stat().length if path.is_file() else None
    except OSError as error:
      raise self._unreadable(key, error) from error

  def has_folder(self, key: str) -> bool:
    try:
      return self.file(key).is_dir()
    except OSError as error:
      raise self._unreadable(key, error) from error

  def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
    """`length` bytes from `start` (default: to the end)."""
    size = self.size(key)
    if size is None:
      raise errors.CheckpointError(
          f'checkpoint {self.where(key)}: no such file')
    length = size - start if length is None else length
    if not 0 <= start <= start + length <= size:
      raise errors.CheckpointError(
          f'checkpoint {self.where(key)}: bytes {start} to {start + length} of '
          f'a file of {size}: it is cut or damaged')
    try:
      with self.file(key).open('rb') as file:
        file.seek(start)
        data = file.read(length)
    except OSError as error:
      raise self._unreadable(key, error) from error
    if len(data) != length:
      raise errors.CheckpointError(
          f'checkpoint {self.where(key)}: {len(data)} of {length} bytes read')
    return data

  def names(self) -> Iterator[str]:
    """Names of the entries of the folder, sorted."""
    try:
      yield from sorted(path.name for path in self.root.iterdir())
    except OSError as error:
      raise self._unreadable('', error) from error

  def _unreadable(self, key: str, error: OSError) -> errors.CheckpointError:
    return errors.CheckpointError(
        f'checkpoint {self.where(key)}: not readable: {error}')


def parse_json(data: bytes, where: str) -> dict[str, Any]:
  """The JSON object in `data`, or CheckpointError."""
  if len(data) > _JSON_LIMIT:
    raise errors.CheckpointError(
        f'checkpoint {where}: {len(data)} bytes of JSON, allowed are '
        f'{_JSON_LIMIT}')
  try:
    value = json.loads(data)
  except (ValueError, RecursionError) as error:
    raise errors.CheckpointError(
        f'checkpoint {where}: not JSON: {error}') from error
  if not isinstance(value, dict):
    raise errors.CheckpointError(
        f'checkpoint {where}: a JSON {type(value).__name__}, needed is an '
        'object')
  return value
