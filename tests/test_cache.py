"""The cache: writes at each row's own length, rewinding by length alone."""

import dataclasses
import itertools

import jax
from jax import numpy as jnp
import numpy as np

from specdec_jax import cache as cache_lib


def _new(b=2, t=2):
  """A block (b, t, 1, 1) whose value at row r, position i is 10 r + i + 1."""
  values = 10 * np.arange(b)[:, None] + np.arange(t)[None] + 1
  return jnp.asarray(values[:, :, None, None], jnp.float32)


def _written(lengths, t=2, n=4):
  k, v = cache_lib.write(
      jnp.zeros((2, 1, n, 1)), jnp.zeros((2, 1, 1, n)), _new(t=t), _new(t=t),
      jnp.array(lengths))
  assert k[:, 0, :, 0].tolist() == v[:, 0, 0].tolist()
  return v[:, 0, 0].tolist()


def _cache():
  k, v = cache_lib.ordered(*[jnp.ones((2, 3, 4, 6), jnp.bfloat16)] * 2)
  cross = cache_lib.CrossKV(
      k=(k, k + 1), v=(v, v + 1), mask=jnp.ones((2, 3), bool))
  return cache_lib.init(cross, 5)


def test_write_of_the_docstring_example():
  assert _written([0, 2]) == [[1, 2, 0, 0], [0, 0, 11, 12]]


def test_what_is_past_the_end_is_dropped_and_never_moved_back():
  # case-24
  assert _written([0, 3]) == [[1, 2, 0, 0], [0, 0, 0, 11]]
  assert _written([4, 9]) == [[0, 0, 0, 0], [0, 0, 0, 0]]


def test_a_block_wider_than_the_slots_fills_them_from_its_start():
  assert _written([0, 1], t=6) == [[1, 2, 3, 4], [0, 11, 12, 13]]


def test_one_position_of_one_row_is_written_like_any_other():
  def written(length):
    k, v = cache_lib.write(
        jnp.zeros((1, 1, 4, 1)), jnp.zeros((1, 1, 1, 4)), _new(1, 1),
        _new(1, 1), jnp.array([length]))
    assert k[:, 0, :, 0].tolist() == v[:, 0, 0].tolist()
    return v[0, 0, 0].tolist()
  assert written(0) == [1, 0, 0, 0]
  assert written(3) == [0, 0, 0, 1]
  assert written(4) == written(9) == [0, 0, 0, 0]


def test_a_new_cache_is_empty_and_shaped_after_the_source():
  cache = _cache()
  assert cache.length.tolist() == [0, 0]
  assert cache.slots == 5
  assert [k.shape for k in cache.k] == [(2, 4, 5, 6)] * 2
  assert [v.shape for v in cache.v] == [(2, 4, 6, 5)] * 2
  assert cache.v[0].dtype == jnp.bfloat16


def test_rewind_changes_the_length_and_keeps_the_buffers():
  cache = dataclasses.replace(_cache(), length=jnp.array([4, 4]))
  back = cache_lib.rewind(cache, jnp.array([1, 3]))
  assert back.length.tolist() == [1, 3]
  assert cache.length.tolist() == [4, 4]
  assert all(a is b for a, b in zip(back.k + back.v, cache.k + cache.v,
                                    strict=True))
  assert back.cross is cache.cross


def test_sizes_of_the_docstring_example():
  assert cache_lib.sizes(264) == (66, 132, 264)
  assert cache_lib.sizes(126) == (126,)
  assert cache_lib.sizes(264, 40) == (132, 264)
  assert cache_lib.sizes(1) == (1,)


def test_sizes_end_with_all_slots_and_none_is_more_than_twice_the_last():
  for slots, block in itertools.product(range(1, 1500), (1, 8, 50)):
    found = cache_lib.sizes(slots, block)
    assert found[-1] == slots and found[0] >= min(slots, 2 * block)
    assert found[0] <= max(128, 4 * block)
    assert all(a < b <= 2 * a for a, b in itertools.pairwise(found))


def test_a_grown_cache_has_what_it_had_and_empty_slots_behind():
  cache = dataclasses.replace(_cache(), length=jnp.array([4, 5]))
  cache = dataclasses.replace(
      cache, k=tuple(k + 1 for k in cache.k), v=tuple(v + 2 for v in cache.v))
  state = cache_lib.grow({'cache': cache, 'other': jnp.arange(5)}, 9)
  grown = state['cache']
  assert grown.slots == 9 and grown.length is cache.length
  assert grown.cross is cache.cross and state['other'].shape == (5,)
  for k, v in zip(grown.k, grown.v, strict=True):
    assert k.shape == (2, 4, 9, 6) and v.shape == (2, 4, 6, 9)
    assert jnp.all(k[:, :, :5] == 1) and jnp.all(v[..., :5] == 2)
    assert not jnp.any(k[:, :, 5:]) and not jnp.any(v[..., 5:])


def test_a_donated_cache_is_rewound_without_a_copy():
  cache = _cache()
  before = [x.unsafe_buffer_pointer() for x in (*cache.k, *cache.v)]
  back = jax.jit(cache_lib.rewind, donate_argnums=0)(cache, jnp.array([1, 2]))
  after = [x.unsafe_buffer_pointer() for x in (*back.k, *back.v)]
  assert sorted(before) == sorted(after)
