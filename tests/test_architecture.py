"""Architectures: the size table, the bucket functions, refused values."""

import dataclasses

import numpy as np
import pytest

from specdec_jax import architecture
from tests import oracle_t5
from tests import tiny_t5


def test_buckets_of_the_docstring_example():
  distances = np.array([0, 15, 16, 32, 1000])
  np.testing.assert_array_equal(
      architecture.relative_buckets(distances, 32, 128), [0, 15, 16, 21, 31])


@pytest.mark.parametrize('buckets', [16, 32])
@pytest.mark.parametrize('furthest', [20, 128, 256])
def test_causal_buckets_equal_the_exact_definition(buckets, furthest):
  distances = np.arange(2 * furthest)
  expected = [oracle_t5.bucket(-int(d), buckets, furthest, both_ways=False)
              for d in distances]
  np.testing.assert_array_equal(
      architecture.relative_buckets(distances, buckets, furthest), expected)


def test_encoder_buckets_equal_the_exact_definition():
  length = 150
  expected = [
      [oracle_t5.bucket(j - i, 32, 128, both_ways=True) for j in range(length)]
      for i in range(length)]
  np.testing.assert_array_equal(
      architecture.bidirectional_buckets(length, 32, 128), expected)


def test_later_keys_have_the_upper_half_of_the_encoder_buckets():
  # Query 1 of 3: one key before, itself, one key after.
  assert architecture.bidirectional_buckets(3, 32, 128)[1].tolist() == [
      1, 0, 17]


@pytest.mark.parametrize('field, value', [
    ('num_heads', 0), ('d_model', -1), ('d_ff', True), ('norm_epsilon', 0.0)])
def test_a_value_that_is_no_size_is_refused_by_name(field, value):
  with pytest.raises(ValueError, match=f'{field}={value!r}: allowed are'):
    dataclasses.replace(tiny_t5.CONFIGS['1.0'], **{field: value})


def test_1_0_sizes_are_tied_relu_and_1_1_sizes_untied_gated():
  for name, config in architecture.SIZES.items():
    is_1_1 = name.startswith('t5_1_1_')
    assert (config.gated, config.tied) == (is_1_1, not is_1_1), name
