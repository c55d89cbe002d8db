"""The paper's formulas against its own printed numbers."""

import numpy as np
import pytest

from specdec_jax import theory


@pytest.mark.parametrize(('alpha', 'gamma', 'printed'), [
    (0.6, 2, 1.96), (0.7, 3, 2.53), (0.8, 2, 2.44), (0.8, 5, 3.69),
    (0.9, 2, 2.71), (0.9, 10, 6.86)])
def test_table_1_speed_is_equal_to_print(alpha, gamma, printed):
  assert round(float(theory.walltime_factor(alpha, gamma, 0)), 2) == printed


@pytest.mark.parametrize(('alpha', 'c', 'gamma', 'factor'), [
    (0.75, 0.02, 7, 3.16), (0.80, 0.04, 7, 3.25), (0.82, 0.11, 7, 2.50),
    (0.62, 0.02, 7, 2.26), (0.68, 0.04, 5, 2.35), (0.71, 0.11, 3, 1.93)])
def test_table_4_of_english_to_german_recomputed(alpha, c, gamma, factor):
  found = float(theory.walltime_factor(alpha, gamma, c))
  assert abs(found - factor) < 0.005 + 1e-9


def test_equation_1_is_the_geometric_sum():
  alpha, gamma = 0.37, 6
  expected = sum(alpha**i for i in range(gamma + 1))
  assert abs(theory.tokens_per_round(alpha, gamma) - expected) < 1e-12


def test_certain_acceptance_gives_gamma_plus_one():
  np.testing.assert_array_equal(
      theory.tokens_per_round([0, 1], [7, 7]), [1, 8])


def test_a_verify_ratio_takes_the_place_of_one():
  free = theory.walltime_factor(0.8, 5, 0.1)
  dear = theory.walltime_factor(0.8, 5, 0.1, 1.5)
  np.testing.assert_allclose(dear / free, 1.5 / 2.0)


def test_a_draft_as_dear_as_its_target_slows_down():
  assert round(float(theory.walltime_factor(0.9, 4, 1.0)), 2) == 0.82


@pytest.mark.parametrize(('gamma', 'rate', 'tokens'), [
    (3, 0.65, 2.95), (7, 0.45, 4.16)])
def test_accepted_per_drafted_falls_while_tokens_rise(gamma, rate, tokens):
  assert round(float(theory.accepted_per_drafted(0.8, gamma)), 2) == rate
  assert round(float(theory.tokens_per_round(0.8, gamma)), 2) == tokens


@pytest.mark.parametrize(('name', 'arguments'), [
    ('alpha', (1.1, 2, 0.1)), ('alpha', (float('nan'), 2, 0.1)),
    ('c', (0.5, 2, -0.1)), ('gamma', (0.5, -1, 0.1))])
def test_values_outside_their_range_are_refused_by_name(name, arguments):
  with pytest.raises(ValueError, match=f'{name}=.*allowed'):
    theory.walltime_factor(*arguments)
