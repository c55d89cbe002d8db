"""The paper's formulas against its own printed numbers."""

import numpy as np
import pytest

from experiments import paper_tables
from specdec_jax import theory
from specdec_jax.report import paper


@pytest.mark.parametrize('line', paper_tables.TABLE_1)
def test_table_1_is_equal_to_print(line):
  speed = float(theory.walltime_factor(line.alpha, line.gamma, 0))
  operations = float(theory.operations_factor(line.alpha, line.gamma, 0))
  assert round(speed, 2) == line.speed
  assert round(operations, 2) == line.operations


def named(rows) -> list[tuple]:
  return [(row.study, row.role, row.temperature) for row in rows]


def test_table_4_follows_from_print_except_for_the_two_that_are_named():
  away = [row for row in paper.ROWS if not row.follows]
  assert named(away) == [('EnDe', 'large', 1), ('CNNDM', 'large', 1)]
  assert all(abs(theory.walltime_factor(row.alpha, row.gamma, row.c)
                 - row.expected) > 0.05 for row in away)


def test_one_of_table_4_follows_only_when_rounded_twice():
  twice = [row for row in paper.ROWS if row.follows
           and round(row.recomputed, 1) != row.expected]
  assert named(twice) == [('EnDe', 'base', 1)]


def test_all_of_table_4_lies_within_what_alpha_and_c_were_rounded_from():
  for line in paper.ROWS:
    low = theory.walltime_factor(
        line.alpha - 0.005, line.gamma, line.c + 0.005)
    high = theory.walltime_factor(
        line.alpha + 0.005, line.gamma, line.c - 0.005)
    assert low <= line.expected + 0.05 and line.expected - 0.05 <= high


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


def test_the_stated_factor_of_a_bigram_follows():
  alpha, gamma, c, stated = paper_tables.BIGRAM_EXAMPLE
  assert abs(theory.walltime_factor(alpha, gamma, c) - stated) < 0.005


@pytest.mark.parametrize('lenience', paper_tables.LENIENCE_GREEDY)
def test_factors_of_lenience_at_temperature_zero_follow(lenience):
  alpha, printed = paper_tables.LENIENCE_GREEDY[lenience]
  assert round(float(theory.walltime_factor(alpha, 8, 0.015)), 1) == printed


def test_the_best_gamma_is_the_argmax_over_whole_numbers():
  factors = theory.walltime_factor(0.8, np.arange(65), 0.04)
  assert theory.best_gamma(0.8, 0.04) == np.argmax(factors) == 9
  assert theory.best_gamma(0.9, 1.0) == 0


def test_the_best_gamma_broadcasts_and_knows_a_verify_ratio():
  found = theory.best_gamma([0.5, 0.9], [[0.01], [1.0]])
  np.testing.assert_array_equal(found, [[5, 24], [0, 0]])
  dear = theory.best_gamma(0.8, 0.04, lambda gamma: 1 + 0.1 * gamma)
  assert dear == 5


@pytest.mark.parametrize('c', [0.0, 0.05, 0.3])
def test_some_gamma_gains_what_the_corollary_promises(c):
  alpha = np.linspace(c + 0.01, 0.99, 20)
  best = theory.walltime_factor(alpha, theory.best_gamma(alpha, c), c)
  assert np.all(best >= theory.sure_factor(alpha, c) - 1e-12)


def test_the_corollary_promises_nothing_below_c():
  assert theory.sure_factor(0.1, 0.2) == 1


def test_an_oracle_bounds_every_fixed_gamma_by_about_sixty_percent():
  alpha, c = np.meshgrid(np.linspace(0, 0.95, 20), [0.01, 0.05, 0.1])
  gain = theory.oracle_gain(alpha, c)
  assert np.all(gain >= 1) and 1.5 < gain.max() < 1.6
  assert theory.oracle_tokens(0.8) == pytest.approx(5)
  assert theory.oracle_tokens(1.0) == np.inf


def test_an_oracle_pays_for_the_drafts_that_it_keeps():
  # alpha 0.5: one draft and two tokens a round on average.
  assert theory.oracle_factor(0.5, 0.1) == pytest.approx(2 / 1.1)


def test_lenience_raises_acceptance_and_one_is_exact():
  p, q = [0.2, 0.8], [0.6, 0.4]
  np.testing.assert_allclose(
      theory.lenient_acceptance(p, q, [1, 0.5]), [0.6, 0.8])


def test_lenience_at_temperature_zero_is_argmax_at_one():
  p = [0.2, 0.8]
  np.testing.assert_array_equal(
      theory.lenient_argmax_accepts(p, 0, [1, 0.25]), [False, True])
  assert theory.lenient_argmax_accepts(p, 1, 1)


@pytest.mark.parametrize('lenience', [0, -0.1, 1.5])
def test_lenience_outside_its_range_is_refused(lenience):
  with pytest.raises(ValueError, match='lenience=.*allowed'):
    theory.lenient_acceptance([1.0], [1.0], lenience)


def test_a_negative_cost_in_operations_is_refused_by_name():
  with pytest.raises(ValueError, match='c_hat=-1: allowed'):
    theory.operations_factor(0.5, 2, -1)


@pytest.mark.parametrize(('name', 'arguments'), [
    ('alpha', (1.1, 2, 0.1)), ('alpha', (float('nan'), 2, 0.1)),
    ('c', (0.5, 2, -0.1)), ('gamma', (0.5, -1, 0.1))])
def test_values_outside_their_range_are_refused_by_name(name, arguments):
  with pytest.raises(ValueError, match=f'{name}=.*allowed'):
    theory.walltime_factor(*arguments)
