"""Bytes of weights and caches, counted from shapes."""

import jax
from jax import numpy as jnp
import pytest

from experiments import memory as script
from specdec_jax import architecture
from specdec_jax import memory
from specdec_jax import t5
from tests import tiny

SHAPE = memory.Shape(batch_size=3, source_length=11, slots=7)


def size(tree):
  return sum(x.nbytes for x in jax.tree.leaves(tree))


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_bytes_are_those_of_arrays_that_are_really_made(dtype):
  found = memory.of_model(tiny.TARGET, dtype, SHAPE)
  params = jax.tree.map(
      lambda x: x.astype(dtype), t5.init_params(tiny.TARGET, jax.random.key(0)))
  start = t5.bind(tiny.TARGET, dtype=jnp.dtype(dtype)).start
  cache = start(params, jnp.ones((3, 11), jnp.int32), 7)
  assert found == memory.Need(size(params), size(cache))


def test_all_sizes_that_a_cache_grows_through_are_counted():
  def cache(slots):
    found = memory.of_model(
        tiny.TARGET, 'float32', memory.Shape(3, 11, slots)).cache
    assert found is not None
    return found
  slot = cache(7) - cache(6)
  assert cache(264) == cache(66) + (132 + 264) * slot


def test_caches_grow_with_batch_source_and_slots_and_weights_do_not():
  small = memory.of_model(tiny.TARGET, 'float32', SHAPE)
  for larger in (memory.Shape(4, 11, 7), memory.Shape(3, 12, 7),
                 memory.Shape(3, 11, 8)):
    found = memory.of_model(tiny.TARGET, 'float32', larger)
    assert found.weights == small.weights
    assert found.cache and small.cache and found.cache > small.cache


def test_a_model_of_eleven_billion_allocates_nothing():
  found = memory.of_model(
      architecture.SIZES['t5_1_1_xxl'], 'bfloat16', memory.Shape(1, 512, 264))
  assert 22e9 < found.weights < 23e9
  assert memory.fit([found], memory.CHIPS['TPU v4']).verdict == 'yes'
  assert memory.fit([found], memory.CHIPS['TPU v5e']).verdict == 'no'


def fp8(draft):
  return [memory.of_count(70.55e9, 'float8'), memory.of_count(draft, 'float8')]


def test_70b_and_8b_in_fp8_fit_an_h200_and_in_practice_no_h100():
  needs = fp8(8.03e9)
  assert sum(n.weights for n in needs) == pytest.approx(78.6e9, abs=0.1e9)
  assert memory.fit(needs, memory.CHIPS['H100']).verdict == 'not in practice'
  h200 = memory.fit(needs, memory.CHIPS['H200'])
  assert h200.verdict == 'yes' and h200.left == pytest.approx(62e9, abs=0.5e9)


def test_a_draft_of_1b_adds_one_gigabyte_and_fits_an_h100():
  target, draft = fp8(1e9)
  assert draft.weights == memory.GB
  assert memory.fit([target, draft], memory.CHIPS['H100']).verdict == 'yes'


def test_the_least_that_is_too_much_does_not_fit():
  one = [memory.Need(90, 10)]
  assert memory.fit(one, 99).verdict == 'no'
  assert memory.fit(one, 100) == memory.Fit(0, 'not in practice')
  assert memory.fit(one, 106).verdict == 'yes'


@pytest.mark.parametrize('call', [
    lambda: memory.of_model(tiny.TARGET, 'float8', SHAPE),
    lambda: memory.of_count(1e9, 'int3')])
def test_an_unknown_dtype_is_refused_with_what_is_allowed(call):
  with pytest.raises(ValueError, match='dtype=.*allowed are float32'):
    call()


@pytest.mark.parametrize('count', ['0', '-1', 'inf', 'nan'])
def test_a_number_of_parameters_must_be_finite_and_above_zero(count):
  with pytest.raises(ValueError, match='allowed are finite numbers above 0'):
    script.need(count, 'float8', SHAPE)


def test_a_model_is_a_size_a_folder_or_a_number():
  sizes = [script.need(m, 'bfloat16', SHAPE).weights
           for m in ('t5_small', 'mini/small', '1e6')]
  assert sizes[0] > sizes[1] > 0 and sizes[2] == 2_000_000


def test_a_chip_of_your_own_has_a_line_and_unknown_caches_are_said():
  pair = script.Pair('1e9', '1e8', 'float8')
  (row,) = script.lines(pair, {'your own': 2e9})
  assert row['left'] == 900_000_000 and row['fits'] == 'yes, before caches'
  assert row['target_cache'] is None
