"""Records to figures: what is divided by what, and what is not known."""

import math

import pytest

from specdec_jax import metrics
from tests.rows import COST
from tests.rows import row


def test_speedup_is_a_ratio_of_totals_not_a_mean_of_ratios():
  plain = [row(0, decoder_seconds=1.0), row(1, decoder_seconds=1.0)]
  other = [row(0, 2, decoder_seconds=0.5), row(1, 2, decoder_seconds=2.0)]
  assert metrics.speedup(plain, other, 'decoder_seconds') == 0.8


def test_spread_is_the_smallest_and_largest_repeat():
  plain = [row(repeat=k, decoder_seconds=1.0) for k in range(3)]
  other = [row(gamma=2, repeat=k, decoder_seconds=s)
           for k, s in enumerate((0.5, 1.0, 2.0))]
  assert metrics.spread(plain, other) == (0.5, 2.0)
  assert metrics.spread(plain[:1], other[:1]) == (None, None)


def test_alpha_is_the_mean_over_tokens_with_an_error_over_sentences():
  plain = [row(0, beta=[1.0, 0.5, 0.0]), row(1, beta=[1.0])]
  alpha, error = metrics.alpha(plain)
  assert alpha == 0.625
  # Sums of beta - alpha: -0.375 and 0.375.
  assert math.isclose(error, math.sqrt(2 * 0.375**2 * 2) / 4)


def test_alpha_without_a_token_is_not_known():
  assert metrics.alpha([row(beta=[])]) == (None, None)


def test_rates_and_tokens_a_round_are_two_figures():
  wrong = metrics.setting(
      [row(beta=[0.0])],
      [row(gamma=4, rounds=10, drafted=[4] * 10, accepted=[0] * 10,
           discarded=[0] * 10, output_length=10)], COST)
  right = metrics.setting(
      [row(beta=[1.0])],
      [row(gamma=4, rounds=10, drafted=[4] * 10, accepted=[4] * 10,
           discarded=[0] * 10, output_length=50)], COST)
  assert (wrong['acceptance'], wrong['tokens_per_round']) == (0.0, 1.0)
  assert (right['acceptance'], right['tokens_per_round']) == (1.0, 5.0)


def test_the_denominator_is_what_was_really_drafted():
  setting = metrics.setting(
      [row()], [row(gamma=4, rounds=2, drafted=[4, 1], accepted=[4, 1],
                    discarded=[0, 0], output_length=7)], COST)
  assert setting['acceptance'] == 1.0
  assert setting['acceptance_by_position'] == [1.0, 1.0, 1.0, 1.0]


def test_positions_are_counted_apart():
  rows = [row(gamma=3, drafted=[3, 3, 1], accepted=[2, 0, 1])]
  assert metrics.acceptance_by_position(rows, 3) == [2 / 3, 1 / 2, 0.0]


def test_where_no_draft_counted_the_rate_is_none():
  setting = metrics.setting(
      [row()], [row(gamma=4, rounds=1, drafted=[0], accepted=[0],
                    discarded=[0], output_length=1)], None)
  assert setting['acceptance'] is None
  assert setting['acceptance_by_position'] == [None] * 4
  assert setting['c'] is None and setting['predicted_thm38'] is None


def test_predictions_follow_the_formula_with_and_without_v():
  setting = metrics.setting(
      [row(beta=[0.8, 0.8])], [row(gamma=2)], COST)
  tokens = 1 + 0.8 + 0.64
  assert math.isclose(setting['predicted_thm38'], tokens / 1.2)
  assert math.isclose(setting['predicted_with_verify'], tokens / 1.4)


def test_a_sentence_that_differs_in_one_repeat_is_not_identical():
  plain = [row(i, repeat=k) for k in range(2) for i in range(3)]
  other = [row(i, 2, repeat=k) for k in range(2) for i in range(3)]
  other[4] = row(1, 2, repeat=1, ids=[5, 7, 1])
  setting = metrics.setting(plain, other, COST)
  assert (setting['identical'], setting['differing']) == (2, 1)


def test_sampled_settings_are_not_compared_by_ids():
  options = {'greedy': False, 'temperature': 1.0}
  setting = metrics.setting(
      [row(**options)], [row(gamma=2, **options)], None)
  assert setting['identical'] is None and setting['differing'] is None


def test_tokens_a_second_are_output_tokens_with_and_without_encoder():
  timed = {'output_length': 16, 'source_length': 64, 'encoder_seconds': 0.04,
           'decoder_seconds': 0.08}
  setting = metrics.setting([row()], [row(gamma=2, **timed)], None)
  assert math.isclose(setting['tokens_per_second'], 200)
  assert round(setting['tokens_per_second_with_encoder']) == 133


def test_bleu_of_wrong_text_is_low_and_of_the_reference_is_100():
  references = ['der Hund beißt den Mann', 'ein Haus am See ist schön',
                'wir öffnen die Datei']
  right = metrics.bleu(references, references)
  assert right == {'bleu': pytest.approx(100)}
  assert metrics.bleu(['x y z'] * 3, references)['bleu'] < 1


def test_rouge_is_the_mean_over_sentences():
  found = metrics.rouge(['the cat sat', 'x'], ['the cat sat', 'y'])
  assert found == {'rouge1': 50, 'rouge2': 50, 'rougeLsum': 50}


def test_rouge_stands_beside_bleu_when_asked_for():
  setting = metrics.setting([row()], [row(gamma=2)], None, ('bleu', 'rouge'))
  assert setting['rouge1'] == setting['rouge1_plain'] == 100
  assert 'rouge1' not in metrics.setting([row()], [row(gamma=2)], None)


@pytest.mark.parametrize(('hypotheses', 'references'), [
    (['a', 'b', 'c'], [['a'], ['b'], ['c']]), (['a'], ['a', 'b']),
    ('text', 'text'), ([], [])])
@pytest.mark.parametrize('score', [metrics.bleu, metrics.rouge])
def test_scores_take_two_lists_of_equal_length_only(
    score, hypotheses, references):
  with pytest.raises(ValueError, match='allowed'):
    score(hypotheses, references)


def test_sentences_without_references_have_no_bleu():
  setting = metrics.setting(
      [row(reference=None)], [row(gamma=2, reference=None)], COST,
      ('bleu', 'rouge'))
  assert setting['bleu'] is None and setting['rouge1'] is None


def test_settings_keep_drafts_and_temperatures_apart():
  examples = [row(draft=d, temperature=t, gamma=g, decoder_seconds=s)
              for d, t, s in (('D', 0.0, 1.0), ('E', 0.0, 2.0), ('D', 1.0, 4.0))
              for g in (0, 2)]
  found = metrics.settings(examples, [COST])
  assert [(s['draft'], s['temperature'], s['c']) for s in found] == [
      ('D', 0.0, 0.1), ('E', 0.0, None), ('D', 1.0, None)]
  assert [s['speedup'] for s in found] == [1.0, 1.0, 1.0]


def test_a_setting_says_its_lenience_and_records_without_one_are_exact():
  exact = metrics.setting([row()], [row(gamma=2)], None)
  lossy = metrics.setting([row()], [row(gamma=2, lenience=0.5)], None)
  assert (exact['lenience'], lossy['lenience']) == (1.0, 0.5)
