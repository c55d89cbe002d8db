"""Reports: slow cases as plain as fast ones, missing figures as missing."""

import json
import re
from typing import Any

import pytest

from specdec_jax import metrics
from specdec_jax import records
from specdec_jax import report
from specdec_jax.report import page
from specdec_jax.report import paper
from specdec_jax.report import plots
from specdec_jax.report import tables
from specdec_jax.report import words
from tests import rows as rows_lib
from tests.rows import CONFIG
from tests.rows import COST
from tests.rows import row

HOSTILE = '</script><img src=x onerror="alert(1)">|`\n# \u2028&\ud800'


def workdir(tmp_path, rows, costs=(COST,), traces=()):
  """Markdown of the report of some records."""
  rows_lib.write(tmp_path, rows, costs, traces)
  report.write(tmp_path)
  return (tmp_path / 'report.md').read_text()


def html(tmp_path):
  return (tmp_path / 'report.html').read_text()


def both(tmp_path):
  return (tmp_path / 'report.md').read_text(), html(tmp_path)


def line(text, start):
  """Cells of the first table line that starts with `start`."""
  (found, *_) = [x for x in text.splitlines() if x.startswith(f'| {start}')]
  return [cell.strip() for cell in found.strip('|').split('|')]


def test_faster_and_slower_settings_are_both_named(tmp_path):
  text = workdir(tmp_path, [
      row(decoder_seconds=1.0, beta=[0.9]),
      row(gamma=2, decoder_seconds=0.5), row(gamma=4, decoder_seconds=2.0)])
  assert 'Faster than plain: D γ=2 (2.00×)' in text
  assert 'Slower than plain: D γ=4 (0.50×)' in text


def test_the_headline_has_the_best_factor_and_the_losses(tmp_path):
  workdir(tmp_path, [row(), row(gamma=2, decoder_seconds=0.5),
                     row(gamma=4, decoder_seconds=2.0)])
  for text in both(tmp_path):
    assert ('2.00 times as fast as plain decoding at temperature 0, at best '
            '(D γ=2). 1 of 2 settings are slower than plain, the slowest D '
            'γ=4 (0.50×)') in text


def test_a_ladder_that_only_loses_is_not_called_fast(tmp_path):
  text = workdir(tmp_path, [row(), row(gamma=4, decoder_seconds=2.0)])
  assert '0.50 times the speed of plain decoding: no setting is faster' in text


def test_a_draft_as_dear_as_the_target_shows_a_factor_below_one(tmp_path):
  cost = {**COST, 'c': 1.0, 'verify_ratio': {'4': 1.0}}
  text = workdir(tmp_path, [row(beta=[0.9]),
                            row(gamma=4, decoder_seconds=1.3)], [cost])
  assert '| 1.000 |' in text and '| 0.82 |' in text and '| 0.77 |' in text
  assert '<td class="number below" data-v="0.76' in html(tmp_path)


def test_both_forms_carry_the_same_numbers(tmp_path):
  text = workdir(tmp_path, [
      row(i, gamma, decoder_seconds=1 - gamma / 10, beta=[0.1 * i])
      for i in range(1, 4) for gamma in (0, 2, 4)])
  cells = re.findall(r'<td[^>]*>([^<]*)</td>', html(tmp_path))
  tables_of_md = [x for x in text.splitlines()
                  if x.startswith('| D')]
  assert len(tables_of_md) == 1 + 2
  for found in tables_of_md:
    assert set(map(str.strip, found.strip('|').split('|'))) <= set(cells)


def test_the_paper_s_row_stands_behind_ours(tmp_path):
  rows = [row(gamma=g, task='ende_mini', draft='mini/small', decoder_seconds=s)
          for g, s in ((0, 1.0), (2, 0.5), (7, 0.9))]
  text = workdir(tmp_path, rows)
  found = [x for x in text.splitlines()
           if x.startswith(('| mini/small | 0 |', '| *T5 small*'))]
  assert [x.split('|')[3].strip() for x in found] == ['2', '7', '*7*']
  assert found[0].endswith('here, best γ |')
  assert found[1].endswith("here, the paper's γ |")
  assert found[2].split('|')[4:9] == [
      ' *0.75* ', ' *0.020* ', ' *3.2* ', ' *–* ', ' *3.4×* ']


@pytest.mark.parametrize(('task', 'draft', 'study', 'role'), [
    ('ende_mini', 'mini/large', 'EnDe', 'large'),
    ('wmt14', 'ckpt/t5_small/checkpoint_1000000', 'EnDe', 'small'),
    ('tfds:cnn_dailymail', 't5-base', 'CNNDM', 'base'),
    ('tsv:ende/file.tsv', 'lookup', None, None)])
def test_tasks_and_roles_are_read_from_names(task, draft, study, role):
  assert (paper.study(task), paper.role(draft)) == (study, role)


# Bad input: the report renders, says what is missing, invents nothing.


def test_what_was_not_measured_is_not_a_number(tmp_path):
  text = workdir(tmp_path, [
      row(rounds=1, output_length=1, ids=[1]),
      row(gamma=4, rounds=1, drafted=[0], accepted=[0], discarded=[0],
          output_length=1, ids=[1])], [])
  assert report.MISSING in text and 'nan' not in text.lower()
  assert 'γ=4: no drafted token was verified' in text
  (setting,) = records.read(tmp_path / 'settings.jsonl')
  assert setting['acceptance'] is None and setting['c'] is None


@pytest.mark.parametrize('content', [b'', b'{"draft": "D", "te', b'\0\xff\n'])
def test_a_workdir_without_a_usable_record_still_renders(tmp_path, content):
  workdir(tmp_path, [], [])
  (tmp_path / 'examples.jsonl').write_bytes(content)
  report.write(tmp_path)
  for text in both(tmp_path):
    assert 'No setting has been decoded' in text
    assert 'examples.jsonl has no usable line' in text


def test_a_workdir_with_a_config_alone_renders(tmp_path):
  (tmp_path / 'config.json').write_text(json.dumps(CONFIG))
  report.write(tmp_path)
  for name in ('examples', 'costs', 'traces'):
    assert f'{name}.jsonl is missing' in html(tmp_path)


def test_a_cut_last_line_is_left_out_and_told(tmp_path):
  workdir(tmp_path, [row(), row(gamma=2)])
  path = tmp_path / 'examples.jsonl'
  path.write_bytes(path.read_bytes() + b'{"draft": "D", "te')
  report.write(tmp_path)
  assert len(records.read(tmp_path / 'settings.jsonl')) == 1
  assert 'examples.jsonl: 1 lines are cut' in (
      tmp_path / 'report.md').read_text()


def test_a_turn_cut_in_the_middle_gives_no_uneven_factor(tmp_path):
  # The second sentence has its plain line only.
  text = workdir(tmp_path, [
      row(0), row(0, 2, decoder_seconds=0.5), row(1, decoder_seconds=9.0)])
  assert '(2.00×)' in text


def test_a_setting_without_plain_decoding_has_no_factor(tmp_path):
  text = workdir(tmp_path, [row(gamma=2)])
  (setting,) = records.read(tmp_path / 'settings.jsonl')
  assert setting['speedup'] is None and setting['acceptance'] == 0
  assert 'γ=2: no complete pair of times, so no factor' in text


@pytest.mark.parametrize('bad', [float('nan'), float('inf'), None, 'x'])
def test_seconds_that_are_no_number_give_no_factor(tmp_path, bad):
  rows = [row(0), row(0, 2, decoder_seconds=1.0), row(1), row(1, 2)]
  workdir(tmp_path, rows)
  rows[-1]['decoder_seconds'] = bad
  (tmp_path / 'examples.jsonl').write_text(
      ''.join(json.dumps(r) + '\n' for r in rows))
  report.write(tmp_path)
  text = (tmp_path / 'report.md').read_text()
  (setting,) = records.read(tmp_path / 'settings.jsonl')
  assert setting['speedup'] is None and setting['tokens'] == 6
  assert '1 of 4 lines have no usable decoder_seconds' in text


def test_a_beta_that_is_no_number_is_left_out_of_alpha(tmp_path):
  rows = [row(0, beta=[0.5]), row(1, beta=[0.7]), row(0, 2), row(1, 2)]
  workdir(tmp_path, rows)
  rows[1]['beta'] = [float('nan')]
  (tmp_path / 'examples.jsonl').write_text(
      ''.join(json.dumps(r) + '\n' for r in rows))
  report.write(tmp_path)
  (setting,) = records.read(tmp_path / 'settings.jsonl')
  assert setting['alpha'] == 0.5
  assert '1 of 2 lines of plain decoding have no usable beta' in html(tmp_path)


def test_a_draft_without_q_has_no_alpha_and_no_prediction(tmp_path):
  text = workdir(tmp_path, [row(), row(gamma=2)],
                 traces=[rows_lib.trace()])
  (setting,) = records.read(tmp_path / 'settings.jsonl')
  assert setting['alpha'] is None and setting['predicted_thm38'] is None
  assert 'γ=2: α was not measured, so nothing is predicted' in text


@pytest.mark.parametrize('key', [
    'ids', 'text', 'reference', 'rounds', 'drafted', 'accepted', 'discarded',
    'encoder_seconds', 'decoder_seconds', 'finish_reason', 'source_truncated',
    'greedy', 'batch_size', 'output_length'])
def test_lines_of_another_version_lack_keys_and_render(tmp_path, key):
  rows = [row(beta=[0.5]), row(gamma=2)]
  workdir(tmp_path, [{k: v for k, v in r.items() if k != key} for r in rows])
  (setting,) = records.read(tmp_path / 'settings.jsonl')
  known = metrics.setting([rows[0]], [rows[1]], COST)
  for name, value in setting.items():
    assert value is None or value == known.get(name) or name in (
        'cut_by_length', 'cut_sources', 'acceptance_by_position'), name


JUNK = ['x', None, -1, 1.5, True, [], [['x']], {'a': 1}, 1e400]


@pytest.mark.parametrize('junk', JUNK, ids=str)
def test_a_value_of_another_kind_in_any_place_still_renders(tmp_path, junk):
  def spoilt(whole):
    return [{**whole, key: junk} for key in whole]
  good = [row(0, beta=[0.5]), row(0, 2)]
  rows_lib.write(tmp_path, [], (), (), {
      'config': dict.fromkeys(('target', 'scores', 'lenience'), junk),
      'environment': dict.fromkeys(
          (*CONFIG['environment'], 'platform'), junk)})
  for name, rows in (
      ('examples', [*good, *spoilt(row(1, beta=[0.5])), *spoilt(row(1, 2))]),
      ('costs', [COST, *spoilt(COST)]),
      ('traces', [rows_lib.trace(), *spoilt(rows_lib.trace()), *[
          rows_lib.trace(rounds=[one])
          for one in spoilt(rows_lib.trace()['rounds'][0])]])):
    (tmp_path / f'{name}.jsonl').write_text(
        ''.join(json.dumps(r) + '\n' for r in rows))
  report.write(tmp_path)
  assert len(records.read(tmp_path / 'settings.jsonl')) >= 1


def test_lines_that_belong_to_no_setting_are_counted(tmp_path):
  lost = row(gamma=2)
  del lost['draft']
  text = workdir(tmp_path, [row(), row(gamma=2), lost])
  assert '1 lines are cut, damaged or of another version' in text


def test_a_config_without_environment_renders(tmp_path):
  rows_lib.write(tmp_path, [row(), row(gamma=2)],
                 config={'config': {'scores': ['bleu']}})
  report.write(tmp_path)
  assert 'Target n/a on n/a' in html(tmp_path)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
  with pytest.raises(records.WorkdirError, match='config.json: not readable'):
    report.write(tmp_path)


def test_outputs_cut_by_the_budget_are_counted(tmp_path):
  text = workdir(tmp_path, [
      row(), row(gamma=2, finish_reason='length', source_truncated=True)])
  assert 'Up to 1 outputs' in text and '1 sources were cut' in text


# Untrusted text.


def test_text_cannot_leave_its_cell(tmp_path):
  text = workdir(tmp_path, [row(draft='a|b\n# c'),
                            row(draft='a|b\n# c', gamma=2)], [])
  assert r'| a\|b \# c | 2 |' in text


def test_hostile_text_is_escaped_everywhere(tmp_path):
  text = HOSTILE.encode('utf-8', 'replace').decode()
  names: dict[str, Any] = dict.fromkeys(
      ('draft', 'task', 'target', 'source', 'text'), text)
  config = json.loads(json.dumps(CONFIG))
  config['config'] |= {'target': HOSTILE, HOSTILE: HOSTILE}
  config['environment'] |= {'processor': HOSTILE, 'versions': {'jax': HOSTILE}}
  trace: dict[str, Any] = {
      key: text for key in ('draft', 'source', 'text')}
  rows_lib.write(tmp_path, [row(**names), row(gamma=2, **names)], (),
                 [rows_lib.trace(**trace)], config)
  report.write(tmp_path)
  found = html(tmp_path)
  assert '<img' not in found and found.count('</script>') == 2
  assert '\u2028' not in found.split('id="trace-data"')[1]
  assert '&lt;/script&gt;&lt;img' in found


def test_json_cannot_leave_its_script():
  value = {'a': '</script><!--\u2028&'}
  text = page.script_json(value)
  assert not set('<>&\u2028') & set(text) and json.loads(text) == value
  assert page.script_json({'a': '</script>'}) == (
      '{"a": "\\u003c/script\\u003e"}')


def test_the_page_needs_no_network_and_runs_its_own_script_only(tmp_path):
  workdir(tmp_path, [row(), row(gamma=2)], traces=[rows_lib.trace()])
  found = html(tmp_path)
  assert not re.search(r'(src|href)="(?!#)', found)
  assert not re.search(r'url\((?!#)', found)
  assert "default-src 'none'" in found and "script-src 'sha256-" in found


# Marks and warnings.


@pytest.mark.parametrize(('values', 'mark'), [
    ({'lenience': 0.5}, 'lossy, lenience 0.5'),
    ({'synthetic': 0.8}, 'synthetic acceptance 0.8'),
    ({'draft': 'random/small'}, 'random weights')])
def test_doubtful_rows_are_marked_and_stand_in_no_headline(values, mark):
  setting = {**metrics.setting(
      [row()], [row(gamma=2, decoder_seconds=0.1)], COST), **values,
      'machine': 'M', 'run': 'R'}
  exact = {**metrics.setting([row()], [row(gamma=2)], COST), 'machine': 'M',
           'run': 'R'}
  (first, second) = tables.settings('', [setting, exact]).lines
  assert f'[{mark}]' in first.cells[0].text and first.kind == 'doubtful'
  assert second.kind == 'measured'
  assert words.honest([setting, exact]) == [exact]


def test_the_paper_s_numbers_are_called_not_comparable(tmp_path):
  workdir(tmp_path, [row(), row(gamma=2)])
  for text in both(tmp_path):
    assert 'T5-XXL (11B) on one TPU-v4' in text and 'On a CPU' in text


def test_a_verify_ratio_below_one_is_doubted(tmp_path):
  cost = {**COST, 'verify_ratio': {'2': 0.5, '4': 1.1}}
  text = workdir(tmp_path, [row(), row(gamma=2), row(gamma=4)], [cost])
  assert 'for 1 settings: D, temperature 0, γ=2.' in text
  assert '2 of 2 settings were timed in one repeat' in text


# Drawing.


@pytest.mark.parametrize(('low', 'high', 'expected'), [
    (0, 1.3, [0, 0.5, 1.0]), (0, 0.9, [0, 0.2, 0.4, 0.6, 0.8]),
    (0.8, 1.1, [0.8, 0.9, 1.0, 1.1]), (1, 1, [1])])
def test_ticks_are_round_values_inside(low, high, expected):
  assert plots.ticks(low, high) == pytest.approx(expected)


def test_a_point_without_a_measurement_is_not_drawn():
  setting = {**metrics.setting([], [row(gamma=2)], COST), 'machine': 'M',
             'run': 'R'}
  assert plots.figures([setting]) == []


def test_every_key_of_the_record_is_there():
  keys = ('task target draft temperature gamma batch_size sentences tokens '
          'alpha alpha_se acceptance acceptance_by_position tokens_per_round c '
          'verify_ratio speedup speedup_low speedup_high speedup_with_encoder '
          'predicted_thm38 predicted_with_verify identical differing bleu '
          'bleu_plain tokens_per_second').split()
  setting = metrics.setting([row(beta=[0.5])], [row(gamma=2)], COST)
  assert set(keys) <= setting.keys()
