"""Experiments as functions of records: no model, no run."""

import json
import math
import pathlib
import types

import pytest

from experiments import all as all_experiments
from experiments import common
from experiments import draft_size
from experiments import figures
from experiments import lenience
from experiments import table1
from experiments import table2
from experiments import table3
from experiments import table4
from experiments import worked_example
from specdec_jax import examples as examples_lib
from specdec_jax import metrics
from specdec_jax import records
from tests.rows import COST
from tests.rows import row


def setting(**values):
  """A line of settings.jsonl: exactly as predicted unless told otherwise."""
  return {
      **metrics.setting([row(beta=[0.5])], [row(gamma=2)], None),
      'draft': 'x/small', 'alpha': 0.5, 'alpha_se': 0.01, 'c': 0.1,
      'verify_ratio': 1.2, 'tokens_per_round': 1.75, 'speedup': 1.25,
      'predicted_thm38': 1.75 / 1.2, 'predicted_with_verify': 1.25, **values}


EMPTY = metrics.setting(
    [], [row(gamma=2, rounds=0, drafted=[], accepted=[], discarded=[],
             output_length=0, ids=[], decoder_seconds=0.0)], None)


def test_table_1_prints_twelve_numbers_equal_to_print(capsys):
  table1.make(common.Lab(None))
  assert '12 of 12 numbers are equal to print' in capsys.readouterr().out


def test_the_worked_example_has_the_factors_of_theorem_3_8():
  first = worked_example.lines()[0]
  assert first['tokens_per_round'] == pytest.approx(1.9375)
  assert first['factor_0.05'] == pytest.approx(1.9375 / 1.2)
  assert first['factor_0.115'] == pytest.approx(1.9375 / 1.46)


def test_publishing_writes_what_it_prints_and_valid_json(tmp_path, capsys):
  worked_example.make(common.Lab(tmp_path / 'new'))
  page = (tmp_path / 'new' / 'worked_example.md').read_text()
  assert capsys.readouterr().out.strip() == page.strip()
  stored = json.loads((tmp_path / 'new' / 'worked_example.json').read_text())
  assert stored['lines'] == worked_example.lines()


def test_a_prediction_that_holds_has_no_difference_and_no_cause():
  found = table4.explain(setting())
  assert found['difference'] == pytest.approx(0)
  assert found['tokens_quotient'] == pytest.approx(1)
  assert found['cost_quotient'] == pytest.approx(1.4 / 1.4)


def test_a_difference_is_split_into_tokens_and_cost():
  few = setting(tokens_per_round=1.25, speedup=1.25 / 1.4)
  dear = setting(speedup=1.75 / 2.1)
  for one, tokens, cost, words in (
      (few, 1.25 / 1.75, 1.0, 'Eq. 1 gives 1.75'),
      (dear, 1.0, 1.5, 'a round costs 2.10 plain steps')):
    found = {**one, **table4.explain(one)}
    assert found['tokens_quotient'] == pytest.approx(tokens)
    assert found['cost_quotient'] == pytest.approx(cost)
    assert table4.is_outlier(found) and words in table4.outliers([found])


def test_the_median_leaves_out_what_was_not_measured():
  rows = [{'difference': d} for d in (0.1, None, -0.3, 0.2)]
  assert table4.median_difference(rows) == pytest.approx(0.2)
  assert table4.median_difference([{'difference': None}]) is None
  assert table4.outliers([{'difference': None}]).startswith('No setting')


def test_the_papers_own_table_names_what_does_not_follow():
  notes = [(r['study'], r['role']) for r in table4.printed()
           if r['note'] == 'does not follow from print']
  assert notes == [('EnDe', 'large'), ('CNNDM', 'large')]


@pytest.mark.parametrize('columns', [
    table2.COLUMNS, table4.MEASURED, draft_size.COLUMNS])
@pytest.mark.parametrize('value', [None, math.nan])
def test_what_was_not_measured_is_printed_as_missing(columns, value):
  names = ('alpha', 'c', 'verify_ratio', 'tokens_per_round', 'speedup',
           'predicted_with_verify', 'predicted_thm38', 'alpha_se', 'bleu')
  bad = {**setting(**dict.fromkeys(names, value)), 'difference': None,
         'eq1': None, 'round_cost': None, 'round_parts': None, 'needed': None,
         'parameters': None, 'printed_gamma': None, 'printed_alpha': None,
         'printed_speed': None}
  text = common.Table('t', columns, [bad]).markdown()
  assert 'n/a' in text and 'nan' not in text


def test_a_missing_figure_has_a_reason():
  text = common.Table('t', table4.MEASURED, [
      {**EMPTY, **table4.explain(EMPTY)}]).markdown()
  assert 'n/a: alpha in 1 of 1 lines, because no token' in text
  assert 'n/a: c in 1 of 1 lines, because costs.jsonl' in text
  assert 'n/a: speedup in 1 of 1' in text


def test_no_setting_at_all_is_said():
  assert common.Table('t', table2.COLUMNS, []).markdown() == (
      'n/a: nothing was measured here.\n')
  assert table2.lines([EMPTY]) == []


def test_table_2_takes_the_fastest_gamma_and_puts_print_beside():
  rows = table2.lines([
      setting(task='ende_mini', gamma=2, speedup=1.2),
      setting(task='ende_mini', gamma=4, speedup=1.3),
      setting(task='ende_mini', draft='mine/other', gamma=4),
      setting(task='tfds:cnn_dailymail'), setting(task='tsv:ende.tsv')])
  assert [(r['gamma'], r['printed_speed']) for r in rows] == [
      (4, 3.4), (4, None), (2, 3.1), (2, None)]


@pytest.mark.parametrize(('name', 'role'), [
    ('mini/small', 'small'), ('runs/t5_1_1_large/', 'large'),
    ('x/flan_t5_base', 'base'), ('lookup', 'lookup')])
def test_a_draft_is_what_the_paper_calls_it(name, role):
  assert common.role({'draft': name}) == role


def test_lossy_and_synthetic_drafts_are_marked():
  assert common.draft(setting(lenience=0.5)) == 'x/small (lossy)'
  assert common.draft(setting(synthetic=0.8)) == 'x/small (synthetic)'
  assert common.draft(setting()) == 'x/small'


def test_table_3_counts_the_tokens_that_alpha_rests_on():
  lines = [row(beta=[0.5, 0.6]), row(index=1, beta=[0.4]), row(gamma=2)]
  tokens = table3.verified(lines)
  assert tokens == {('D', 0.0): 3}
  assert '3 target tokens, fewer than the 4' in table3.short(tokens, 4)
  assert table3.short(tokens, 3) == ''
  (line,) = table3.lines([setting(draft='D')], tokens)
  assert line['alpha_0'] == 0.5 and line['tokens_0'] == 3


def test_table_3_has_a_line_a_draft_with_both_temperatures():
  (line,) = table3.lines(
      [setting(draft='m/bigram'), setting(draft='m/bigram', temperature=1.0)],
      {})
  assert line['printed_0'] == 0.20 and line['printed_1'] == 0.19
  assert line['alpha_1'] == 0.5 and line['tokens_1'] is None


def test_enough_sentences_are_taken_for_the_tokens_asked_for():
  data = [examples_lib.Example(i, 's', 'x' * 150) for i in range(9)]
  assert table3.sentences_for(data, 100) == 4
  assert table3.sentences_for(data, 10**6) == 9


def test_lenience_below_one_is_called_lossy():
  rows = lenience.lines([
      setting(temperature=1.0), setting(temperature=1.0, lenience=0.3)])
  text = common.Table('t', lenience.COLUMNS, rows).markdown()
  assert [r['printed_alpha'] for r in rows] == [0.62, 0.76]
  assert '| yes |' in text and '| **lossy** |' in text
  assert 'x/small (lossy)' in text


def test_the_alpha_that_a_draft_needs_rises_with_its_cost():
  assert draft_size.needed_alpha(2, 0, {1: 1}) == 1
  cheap, dear = (draft_size.needed_alpha(1.5, c, {1: 1.0, 3: 1.0})
                 for c in (0.01, 0.3))
  assert cheap and dear and cheap < dear
  assert draft_size.needed_alpha(2, 0.5, {1: 1}) is None


def test_a_larger_draft_is_held_against_the_first():
  rows = draft_size.lines([
      setting(), setting(draft='x/large', alpha=0.55, c=0.4)])
  assert rows[0]['needed'] == pytest.approx(0.5, abs=1e-3)
  assert rows[1]['needed'] > rows[1]['alpha']
  assert rows[0]['parameters'] is None


def test_calls_of_a_sentence_stand_in_their_order():
  cost = {'draft_step_seconds': 1.0, 'target_step_seconds': 10.0,
          'verify_ratio': {'2': 1.5}}
  found = figures.calls(
      row(gamma=2, rounds=2, drafted=[2, 1], encoder_seconds=4.0), cost)
  assert found == [('encoder', 4.0), ('draft', 1.0), ('draft', 1.0),
                   ('target', 15.0), ('draft', 1.0), ('target', 15.0)]
  plain = figures.calls(row(rounds=3), cost)
  assert plain[1:] == [('target', 10.0)] * 3


def test_the_timeline_adds_up_and_stands_beside_what_was_measured():
  lane = ('plain', [('encoder', 0.004), ('target', 0.01)], 0.015)
  (found,) = figures.timeline_rows([lane])
  assert found == {'lane': 'plain', 'encoder': 4.0, 'draft': 0,
                   'target': 10.0, 'sum': 14.0, 'measured': 15.0}


def test_a_gamma_that_was_not_run_has_no_lane():
  study = common.Study(pathlib.Path(), {}, [], [row(gamma=3), row()], [
      {**COST, 'verify_ratio': {'3': 1.5}, 'draft_step_seconds': 0.1,
       'target_step_seconds': 1.0}])
  assert [lane[0] for lane in figures.lanes(study)] == ['γ = 3', 'plain']
  empty = common.Study(pathlib.Path(), {}, [], [], [])
  assert figures.lanes(empty) == [] and 'n/a' in figures.figure_1(empty)


def test_a_trace_shows_accepted_rejected_and_corrected_pieces():
  rounds = [
      {'pieces': ['▁a', '▁b', '▁c'], 'accepted': 1, 'next_piece': '▁d'},
      {'pieces': ['▁e`|'], 'accepted': 1, 'next_piece': '.'}]
  assert figures.trace_lines(rounds) == (
      "1. `▁a` ~~`▁b`~~ **`▁d`**\n1. `▁e'|` **`.`**\n")


def test_figure_1_is_the_first_trace_of_the_run(tmp_path):
  records.append(tmp_path / 'traces.jsonl', [
      {'draft': 'D', 'gamma': 3, 'temperature': 0.0, 'source': 'a *b*',
       'rounds': [{'pieces': ['x'], 'accepted': 1, 'next_piece': 'y'}]}])
  text = figures.figure_1(common.Study(tmp_path, {}, [], [], []))
  assert text == (
      'D, γ = 3, temperature 0: a \\*b\\*\n\n1. `x` **`y`**\n')


def test_names_of_others_cannot_leave_their_cell():
  rows = [setting(draft='a|b\n<i>`*')]
  line = common.Table('t', {'draft': common.draft}, rows).markdown()
  assert line.endswith('| a\\|b \\<i\\>\\`\\* |\n')


def test_one_experiment_that_fails_stops_no_other_and_is_named(tmp_path):
  done = []

  def fail(lab):
    raise ValueError('no such draft')
  modules = [
      types.SimpleNamespace(__name__='experiments.bad', make=fail),
      types.SimpleNamespace(__name__='experiments.good', make=done.append)]
  with pytest.raises(ValueError, match='1 of 2 .*bad: no such draft'):
    all_experiments.make(common.Lab(tmp_path), modules)
  assert done == [common.Lab(tmp_path)]


def test_every_experiment_opens_with_its_command_result_and_time():
  for module in (*all_experiments.EXPERIMENTS, all_experiments):
    name, text = module.__name__, ' '.join((module.__doc__ or '').split())
    assert f'python -m {name}' in text, name
    assert 'Expected result:' in text and 'Time:' in text, name
