"""What a msgpack file holds and where, without reading the arrays.

flax writes checkpoints as msgpack with arrays as extension type 1. Reading one
with flax would take the optimizer's state along and trust every length; here
payloads stay in the file as `Span`s, lengths are compared with the bytes that
are left, and nesting is bounded.
"""

import dataclasses
import io
import struct
from typing import Any, IO

_MAX_DEPTH = 32
_MAX_VALUES = 1_000_000  # T5-11B with its optimizer has under 100,000
_FIXED = {  # type byte: struct format
    0xca: '>f', 0xcb: '>d', 0xcc: '>B', 0xcd: '>H', 0xce: '>I', 0xcf: '>Q',
    0xd0: '>b', 0xd1: '>h', 0xd2: '>i', 0xd3: '>q'}
_CONSTANTS = {0xc0: None, 0xc2: False, 0xc3: True}
_SIZED = {  # type byte: (kind, struct format of its size)
    0xc4: ('bin', '>B'), 0xc5: ('bin', '>H'), 0xc6: ('bin', '>I'),
    0xc7: ('ext', '>B'), 0xc8: ('ext', '>H'), 0xc9: ('ext', '>I'),
    0xd9: ('str', '>B'), 0xda: ('str', '>H'), 0xdb: ('str', '>I'),
    0xdc: ('array', '>H'), 0xdd: ('array', '>I'),
    0xde: ('map', '>H'), 0xdf: ('map', '>I')}


@dataclasses.dataclass(frozen=True)
class Span:
  """Bytes of the file; `code` is the extension type, None for plain bytes."""
  start: int
  length: int
  code: int | None = None


class _Index:
  """Walks one value; `stop` is the first byte that is not its own."""

  def __init__(self, file: io.IOBase | IO[bytes], start: int, stop: int):
    self._file, self._at, self._stop = file, start, stop
    self._left = _MAX_VALUES
    file.seek(start)

  def whole(self) -> Any:
    value = self._value(0)
    if self._at != self._stop:
      raise ValueError(f'{self._stop - self._at} bytes after the end')
    return value

  def _take(self, length: int) -> bytes:
    self._claim(length)
    data = self._file.read(length)
    if len(data) != length:
      raise ValueError('the file is cut')
    return data

  def _claim(self, length: int) -> int:
    """Moves over `length` bytes that must be there; returns their start."""
    if length > self._stop - self._at:
      raise ValueError(
          f'{length} bytes announced, {self._stop - self._at} are left: the '
          'file is cut or damaged')
    start, self._at = self._at, self._at + length
    return start

  def _skip(self, length: int, code: int | None) -> Span:
    span = Span(self._claim(length), length, code)
    self._file.seek(self._at)
    return span

  def _value(self, depth: int) -> Any:
    self._left -= 1
    if depth > _MAX_DEPTH or self._left < 0:
      raise ValueError(
          f'allowed are {_MAX_DEPTH} levels and {_MAX_VALUES} values')
    kind = self._take(1)[0]
    if kind <= 0x7f or kind >= 0xe0:
      return kind if kind <= 0x7f else kind - 0x100
    if kind in _CONSTANTS:
      return _CONSTANTS[kind]
    if kind in _FIXED:
      return self._number(_FIXED[kind])
    if kind in _SIZED:
      name, size = _SIZED[kind]
      return self._sized(name, self._number(size), depth)
    if kind <= 0x8f:
      return self._sized('map', kind & 0x0f, depth)
    if kind <= 0x9f:
      return self._sized('array', kind & 0x0f, depth)
    if kind <= 0xbf:
      return self._sized('str', kind & 0x1f, depth)
    if 0xd4 <= kind <= 0xd8:
      return self._sized('ext', 1 << (kind - 0xd4), depth)
    raise ValueError(f'no msgpack type has the byte {kind:#x}')

  def _number(self, form: str) -> Any:
    return struct.unpack(form, self._take(struct.calcsize(form)))[0]

  def _sized(self, kind: str, size: int, depth: int) -> Any:
    if kind == 'str':
      return self._take(size).decode('utf-8')
    if kind == 'bin':
      return self._skip(size, None)
    if kind == 'ext':
      code = self._number('>b')
      return self._skip(size, code)
    if size > self._stop - self._at:  # every entry has one byte at least
      raise ValueError(f'{size} entries announced, more than bytes are left')
    if kind == 'array':
      return [self._value(depth + 1) for _ in range(size)]
    entries = {}
    for _ in range(size):
      key = self._value(depth + 1)
      if not isinstance(key, str) or key in entries:
        raise ValueError(f'key {str(key)[:200]!r}: allowed are different texts')
      entries[key] = self._value(depth + 1)
    return entries


def index(file: io.IOBase | IO[bytes], start: int, stop: int) -> Any:
  """The one value between two bytes of a file; arrays and bytes as `Span`s.

  Example: the ten bytes of `{'a': [1, b'xyz']}` give `{'a': [1, Span(7, 3)]}`.

  Raises:
    ValueError: for anything but one whole value of at most 32 levels.
  """
  return _Index(file, start, stop).whole()
