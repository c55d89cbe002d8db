"""A msgpack file is mapped without reading or trusting its payloads."""

import io

import msgpack
import numpy as np
import pytest

from specdec_jax.checkpoint import msgpack_index
from specdec_jax.checkpoint.msgpack_index import Span


def _index(data: bytes):
  return msgpack_index.index(io.BytesIO(data), 0, len(data))


def test_worked_example():
  assert _index(msgpack.packb({'a': [1, b'xyz']})) == {'a': [1, Span(7, 3)]}


@pytest.mark.parametrize('value', [
    None, True, False, 0, 127, 128, 255, 256, 65535, 65536, 1 << 32, -1, -32,
    -33, -128, -129, -32768, -32769, -(1 << 31) - 1, 1.5, '', 'ä' * 20,
    'x' * 300, 'x' * 70000, [], [1] * 20, {},
    {str(i): i for i in range(20)}],
    ids=lambda value: str(value)[:12])
def test_every_plain_type_equals_msgpack(value):
  assert _index(msgpack.packb(value)) == value


@pytest.mark.parametrize('size', [1, 2, 4, 8, 16, 3, 300, 70000])
def test_extensions_and_bytes_are_spans(size):
  payload = np.random.default_rng(0).bytes(size)
  for value, code in ((msgpack.ExtType(1, payload), 1), (payload, None)):
    data = msgpack.packb([value, 5])
    (span, five) = _index(data)
    assert five == 5 and span.code == code and span.length == size
    assert data[span.start:span.start + size] == payload


def test_counts_of_four_bytes():
  assert _index(b'\xdd\0\0\0\2\x07\x08') == [7, 8]
  assert _index(b'\xdf\0\0\0\1\xa1a\x07') == {'a': 7}


def test_single_precision_float():
  assert _index(msgpack.packb(1.5, use_single_float=True)) == 1.5


@pytest.mark.parametrize('data, message', [
    (b'', 'announced'),
    (b'\xc1', 'no msgpack type'),
    (b'\x91', 'more than bytes are left'),
    (b'\xdd\xff\xff\xff\xff', 'more than bytes are left'),
    (b'\xdf\xff\xff\xff\xff', 'more than bytes are left'),
    (b'\xc6\xff\xff\xff\xff', 'bytes announced'),
    (b'\xdb\xff\xff\xff\xffabc', 'bytes announced'),
    (b'\xc9\xff\xff\xff\xff\x01', 'bytes announced'),
    (b'\x01\x01', '1 bytes after the end'),
    (b'\x91' * 100_000 + b'\x01', 'levels'),
    (b'\x81\xa1a' * 100_000 + b'\x01', 'levels'),
    (b'\x81\x01\x01', 'allowed are different texts'),
    (b'\x82\xa1a\x01\xa1a\x02', 'allowed are different texts'),
    (b'\xa1\xff', 'utf-8'),
], ids=lambda value: str(value)[:30])
def test_damage_is_a_value_error(data, message):
  with pytest.raises(ValueError, match=message):
    _index(data)


def test_number_of_values_is_bounded(monkeypatch):
  monkeypatch.setattr(msgpack_index, '_MAX_VALUES', 100)
  assert _index(msgpack.packb([None] * 99)) == [None] * 99
  with pytest.raises(ValueError, match='100 values'):
    _index(msgpack.packb([None] * 100))
