"""Arrays in zarr version 2, as T5X and Orbax write them.

An array is a folder of `.zarray` (JSON) and one file a chunk, named by its
place in the grid: `0.0`, `0.1`, ... The chunks are decoded here and not by
TensorStore, because they are untrusted: a missing chunk must not read as
zeros, and a small file that unpacks to gigabytes must be stopped on the way.
"""

from collections.abc import Iterator
import dataclasses
import gzip
import io
import itertools
import json
import math
import pathlib
from typing import Any, Protocol, runtime_checkable
import zlib

import numpy as np
import zstandard

from specdec_jax.checkpoint import errors
from specdec_jax.checkpoint import folder as folder_lib
from specdec_jax.checkpoint import leaf as leaf_lib

_DTYPES = {
    '<f4': leaf_lib.DTYPES['float32'],
    '<f2': leaf_lib.DTYPES['float16'],
    '<f8': leaf_lib.DTYPES['float64'],
    'bfloat16': leaf_lib.DTYPES['bfloat16'],
    # T5X version 2 kept the bits of bfloat16 in integers; no weight is one.
    '<u2': leaf_lib.DTYPES['bfloat16'],
}
# How many bytes one stored byte can become at most.
_RATIO = {None: 1, 'gzip': 1100, 'zlib': 1100, 'zstd': 33_000}
_MAX_CHUNKS = 100_000
_CHUNK_BYTES = 64 << 20  # as T5X writes them


@runtime_checkable
class Store(Protocol):
  """Where the files of an array are."""

  def where(self, key: str) -> str: ...
  def size(self, key: str) -> int | None: ...  # an upper bound will do
  def read(self, key: str) -> bytes: ...


@dataclasses.dataclass(frozen=True)
class _Array:
  """The checked content of a `.zarray`."""
  shape: tuple[int, ...]
  chunks: tuple[int, ...]
  dtype: np.dtype
  compressor: str | None
  separator: str

  @property
  def chunk_bytes(self) -> int:
    return math.prod(self.chunks) * self.dtype.itemsize

  @property
  def counts(self) -> tuple[int, ...]:
    """Number of chunks along each axis."""
    return tuple(-(-s // c)
                 for s, c in zip(self.shape, self.chunks, strict=True))

  def grid(self) -> Iterator[tuple[int, ...]]:
    return itertools.product(*map(range, self.counts))

  def key(self, index: tuple[int, ...]) -> str:
    return self.separator.join(map(str, index)) or '0'


def _one_of(value: Any, allowed: Any, name: str, where: str) -> Any:
  if not isinstance(value, str | int | None) or value not in allowed:
    raise errors.CheckpointError(
        f'checkpoint {where}: {name} {str(value)[:200]!r}, allowed are '
        f'{", ".join(map(str, allowed))}')
  return value


def _metadata(store: Store, path: str) -> _Array:
  key = f'{path}/.zarray'
  where = store.where(key)
  if store.size(key) is None:
    raise errors.CheckpointError(f'checkpoint {where}: no such file')
  fields = folder_lib.parse_json(store.read(key), where)
  compressor = fields.get('compressor')
  if isinstance(compressor, dict):
    compressor = compressor.get('id')
  _one_of(fields.get('zarr_format'), (2,), 'zarr_format', where)
  _one_of(fields.get('order', 'C'), ('C',), 'order', where)
  _one_of(fields.get('filters') or None, (None,), 'filters', where)
  array = _Array(
      leaf_lib.checked_shape(fields.get('shape'), where),
      leaf_lib.checked_shape(fields.get('chunks'), where),
      _DTYPES[_one_of(fields.get('dtype'), _DTYPES, 'dtype', where)],
      _one_of(compressor, _RATIO, 'compressor', where),
      _one_of(fields.get('dimension_separator', '.'), ('.', '/'),
              'dimension_separator', where))
  if len(array.shape) != len(array.chunks) or (
      math.prod(array.counts) > _MAX_CHUNKS):
    raise errors.CheckpointError(
        f'checkpoint {where}: shape {array.shape} in chunks of {array.chunks}, '
        f'allowed are as many axes and at most {_MAX_CHUNKS} chunks')
  return array


def _check_stored(store: Store, path: str, array: _Array) -> None:
  """Every chunk is there and can hold what the shape says, before any read."""
  for index in array.grid():
    key = f'{path}/{array.key(index)}'
    stored = store.size(key)
    if stored is None:
      raise errors.CheckpointError(
          f'checkpoint {store.where(key)}: no such file, shape {array.shape} '
          f'in chunks of {array.chunks} needs it')
    _check_enough(stored, array, store.where(key))


def _check_enough(stored: int, array: _Array, where: str) -> None:
  if stored * _RATIO[array.compressor] < array.chunk_bytes:
    raise errors.CheckpointError(
        f'checkpoint {where}: {stored} bytes, too few for a chunk of '
        f'{array.chunks} of {array.dtype} ({array.chunk_bytes} bytes)')


def _unpack(data: bytes, compressor: str | None, limit: int) -> bytes:
  """At most `limit` bytes of the unpacked `data`; ValueError if damaged."""
  if compressor is None:
    return data
  if compressor == 'zstd':
    unpacker = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data))
    try:
      return unpacker.read(limit)
    except zstandard.ZstdError as error:
      raise ValueError(str(error)) from error
  stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
  try:
    unpacked = stream.decompress(data, limit)
  except zlib.error as error:
    raise ValueError(str(error)) from error
  if not stream.eof and len(unpacked) < limit or stream.unused_data:
    raise ValueError('the compressed stream is cut or has a tail')
  return unpacked


def _read_chunk(store: Store, key: str, array: _Array) -> np.ndarray:
  packed = store.read(key)
  # A store may know only a bound of the size before it reads.
  _check_enough(len(packed), array, store.where(key))
  # One byte over the limit tells a chunk that is too long from a whole one.
  try:
    data = _unpack(packed, array.compressor, array.chunk_bytes + 1)
  except ValueError as error:
    raise errors.CheckpointError(
        f'checkpoint {store.where(key)}: damaged: {error}') from error
  if len(data) != array.chunk_bytes:
    relation = 'more' if len(data) > array.chunk_bytes else f'{len(data)}'
    raise errors.CheckpointError(
        f'checkpoint {store.where(key)}: a chunk of {array.chunks} of '
        f'{array.dtype} has {array.chunk_bytes} bytes, stored are {relation}')
  return np.frombuffer(data, array.dtype).reshape(array.chunks)


def _read(store: Store, path: str, array: _Array, part: leaf_lib.Index
          ) -> np.ndarray:
  """A part of the array, from the chunks that it touches.

  Example: of 10 columns in chunks of 4, columns 3 to 6 are the last of chunk 0
  and the first three of chunk 1.
  """
  if array.shape == array.chunks:
    return _read_chunk(store, f'{path}/{array.key((0,) * len(array.shape))}',
                       array)[part]
  spans = [p.indices(s)[:2] for p, s in zip(part, array.shape, strict=True)]
  touched = [range(first // c, -(-last // c))
             for (first, last), c in zip(spans, array.chunks, strict=True)]
  out = None
  for index in itertools.product(*touched):
    chunk = _read_chunk(store, f'{path}/{array.key(index)}', array)
    if out is None:  # not before a first chunk of the size claimed is there
      out = np.empty([last - first for first, last in spans], array.dtype)
    # The last chunk of an axis is stored whole and sticks out.
    common = [(max(i * c, first), min((i + 1) * c, last))
              for i, c, (first, last) in zip(
                  index, array.chunks, spans, strict=True)]
    out[tuple(slice(start - first, stop - first) for (start, stop), (first, _)
              in zip(common, spans, strict=True))] = chunk[tuple(
                  slice(start - i * c, stop - i * c) for (start, stop), i, c
                  in zip(common, index, array.chunks, strict=True))]
  assert out is not None  # neither shapes nor parts have zeros
  return out


def open_array(store: Store, path: str) -> leaf_lib.Leaf:
  """The array in folder `path` of `store`; only its metadata is read yet."""
  array = _metadata(store, path)
  _check_stored(store, path, array)
  everything = (slice(None),) * len(array.shape)
  return leaf_lib.Leaf(
      array.shape, array.dtype, lambda: _read(store, path, array, everything),
      lambda part: _read(store, path, array, part))


def _chunk_shape(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
  """Halves the longest side until a chunk has at most 64 MiB."""
  chunks = list(shape)
  while math.prod(chunks) * itemsize > _CHUNK_BYTES:
    longest = chunks.index(max(chunks))
    chunks[longest] = -(-chunks[longest] // 2)
  return tuple(chunks)


def write_array(folder: pathlib.Path, x: np.ndarray) -> dict[str, Any]:
  """Writes `x` as a gzip array, as T5X does; returns its metadata."""
  # The first name of a dtype is the one to write.
  names = {dtype: name for name, dtype in reversed(_DTYPES.items())}
  array = _Array(x.shape, _chunk_shape(x.shape, x.dtype.itemsize), x.dtype,
                 'gzip', '.')
  metadata = {
      'zarr_format': 2, 'shape': list(array.shape),
      'chunks': list(array.chunks), 'dtype': names[x.dtype],
      'compressor': {'id': 'gzip', 'level': 1}, 'fill_value': None,
      'filters': None, 'order': 'C'}
  folder.mkdir()
  (folder / '.zarray').write_text(json.dumps(metadata))
  for index in array.grid():
    chunk = np.zeros(array.chunks, x.dtype)
    part = x[tuple(slice(i * c, (i + 1) * c)
                   for i, c in zip(index, array.chunks, strict=True))]
    chunk[tuple(map(slice, part.shape))] = part
    (folder / array.key(index)).write_bytes(
        gzip.compress(chunk.tobytes(), compresslevel=1, mtime=0))
  return metadata
