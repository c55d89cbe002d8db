"""Logits to laws, and draws from them."""

import jax
from jax import numpy as jnp
import numpy as np
import pytest

from specdec_jax import sampling

LAW = np.array([0.5, 0.3, 0.15, 0.05])


def law_of(probabilities, **options):
  logits = jnp.log(jnp.asarray(probabilities, jnp.float32))
  return np.asarray(sampling.law(logits, sampling.make(**options)))


def test_temperature_one_is_the_softmax():
  np.testing.assert_allclose(law_of(LAW, temperature=1.0), LAW, atol=1e-6)


def test_temperature_half_squares_the_law():
  expected = LAW**2 / np.sum(LAW**2)
  np.testing.assert_allclose(law_of(LAW, temperature=0.5), expected, atol=1e-6)


@pytest.mark.parametrize('temperature', [0.0, 1e-38, 1e-6])
def test_zero_and_tiny_temperatures_are_argmax(temperature):
  np.testing.assert_array_equal(
      law_of(LAW, temperature=temperature), [1, 0, 0, 0])


def test_the_smallest_sampling_temperature_has_no_nan():
  law = law_of(LAW, temperature=sampling.ARGMAX_BELOW)
  np.testing.assert_array_equal(law, [1, 0, 0, 0])


@pytest.mark.parametrize('temperature', [-1.0, float('nan'), float('inf')])
def test_other_temperatures_are_refused_by_name(temperature):
  with pytest.raises(ValueError, match=f'temperature={temperature}: allowed'):
    sampling.make(temperature)


@pytest.mark.parametrize('top_k', [-1, 1.5, True, '4'])
def test_bad_top_k_is_refused_by_name(top_k):
  with pytest.raises(ValueError, match='top_k=.*: allowed'):
    sampling.check(1.0, top_k=top_k)


@pytest.mark.parametrize('top_p', [0.0, -0.1, 1.1, float('nan')])
def test_bad_top_p_is_refused_by_name(top_p):
  with pytest.raises(ValueError, match='top_p=.*: allowed'):
    sampling.make(1.0, top_p=top_p)


def test_nucleus_keeps_the_smallest_set():
  np.testing.assert_allclose(
      law_of(LAW, temperature=1.0, top_p=0.9),
      [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0], atol=1e-6)


def test_top_k_keeps_exactly_k_with_the_lowest_ids_among_equals():
  law = law_of([0.1, 0.3, 0.3, 0.3], temperature=1.0, top_k=2)
  np.testing.assert_allclose(law, [0, 0.5, 0.5, 0], atol=1e-6)


def test_top_k_wider_than_the_vocabulary_changes_nothing():
  np.testing.assert_allclose(
      law_of(LAW, temperature=1.0, top_k=99), LAW, atol=1e-6)


def ranked(x):
  """Ids from the largest down, the lowest first among equals."""
  return np.lexsort((np.arange(len(x)), -x))


@pytest.mark.parametrize('k', [1, 7, 40, 200, 300])
def test_the_k_largest_are_those_of_a_sort(k):
  # Few values, so many ties; both signs and both zeros.
  x = np.random.default_rng(k).integers(-9, 9, (5, 300)).astype(np.float32)
  x *= np.where(np.arange(300) % 2, 1, -1)
  for row, marked in zip(x, sampling._largest(jnp.asarray(x), k), strict=True):
    np.testing.assert_array_equal(
        np.flatnonzero(marked), np.sort(ranked(row)[:k]))


@pytest.mark.parametrize('top_p', [1e-6, 0.25, 0.5, 0.9, 0.999])
def test_the_nucleus_is_that_of_a_sort(top_p):
  # Multiples of 1/1024, whose sums are exact; about a third of them are 0.
  counts = np.random.default_rng(0).multinomial(1024, np.ones(999) / 999, 5)
  laws = (counts / 1024).astype(np.float32)
  found = sampling._nucleus(jnp.asarray(laws), top_p)
  for law, marked in zip(laws, found, strict=True):
    order = ranked(law)
    before = np.cumsum(law[order]) - law[order]
    np.testing.assert_array_equal(
        np.flatnonzero(marked), np.sort(order[before < top_p]))


def test_split_of_the_docstring_example():
  x = jnp.asarray([2.0, 5, 5, 5, 1])
  above, level = sampling._split(x, jnp.ones(5), 4)
  assert above.tolist() == [False, True, True, True, False]
  assert level.tolist() == [True, False, False, False, False]


def test_a_law_whose_rounded_sum_misses_top_p_is_kept_whole():
  law = jnp.full(7, np.float32(1 / 7) * (1 - 2**-22))
  assert sampling._nucleus(law, 1 - 1e-9).all()


def test_equal_maxima_in_bfloat16_go_to_the_lowest_id():
  logits = jnp.zeros(16, jnp.bfloat16).at[jnp.array([5, 9])].set(3)
  law = sampling.law(logits, sampling.make(0.0))
  assert law.dtype == jnp.float32
  assert int(jnp.argmax(law)) == 5 and float(jnp.sum(law)) == 1


def test_draw_inverts_the_cumulative_sum():
  weights = jnp.broadcast_to(jnp.asarray([0.2, 0, 0.6, 0.2]), (4, 4))
  uniforms = jnp.asarray([0.1, 0.3, 0.79, 0.81])
  np.testing.assert_array_equal(
      sampling.draw(weights, uniforms), [0, 2, 2, 3])


def test_a_token_of_weight_zero_is_never_drawn():
  weights = jnp.asarray([0, 0.3, 0, 0.7, 0])
  uniforms = jnp.concatenate([jnp.linspace(0, 1, 5001)[:-1],
                              jnp.asarray([np.nextafter(np.float32(1), 0)])])
  drawn = sampling.draw(jnp.broadcast_to(weights, (5001, 5)), uniforms)
  assert set(np.unique(drawn)) == {1, 3}


def test_a_uniform_is_split_between_block_and_place():
  # 130 ids: two whole blocks and a part of a third.
  weights = jnp.zeros(130).at[jnp.asarray([3, 64, 129])].set(
      jnp.asarray([1.0, 2.0, 1.0]))
  uniforms = jnp.asarray([0, 0.24, 0.26, 0.74, 0.76, 0.999])
  np.testing.assert_array_equal(
      sampling.draw(jnp.broadcast_to(weights, (6, 130)), uniforms),
      [3, 3, 64, 64, 129, 129])


def test_first_is_the_lowest_marked_id_or_the_last_id():
  marked = jnp.asarray([[False, True, True], [False, False, False]])
  np.testing.assert_array_equal(sampling.first(marked), [1, 2])


def test_draw_needs_one_uniform_a_row():
  with pytest.raises(ValueError, match='uniform of shape'):
    sampling.draw(jnp.ones((3, 4)), jnp.ones((3, 2)))


def test_draws_over_a_real_vocabulary_follow_the_law():
  law = jax.nn.softmax(jax.random.normal(jax.random.key(0), (1000,)) * 2)
  uniforms = jnp.asarray((np.arange(20_000) + 0.5) / 20_000, jnp.float32)
  drawn = sampling.draw(jnp.broadcast_to(law, (20_000, 1000)), uniforms)
  counted = np.bincount(np.asarray(drawn), minlength=1000) / 20_000
  # An even grid of uniforms may miss each edge by one draw.
  np.testing.assert_allclose(counted, law, atol=2 / 20_000)


def test_finite_means_that_the_largest_logit_is_a_number():
  logits = jnp.asarray([[1, -jnp.inf], [1, jnp.nan], [1, jnp.inf],
                        [-jnp.inf, -jnp.inf]])
  np.testing.assert_array_equal(
      sampling.is_finite(logits), [True, False, False, False])
