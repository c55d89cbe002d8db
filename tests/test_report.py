"""Reports: slow cases as plain as fast ones, missing figures as missing."""

import json

import pytest

from specdec_jax import metrics
from specdec_jax import records
from specdec_jax import report
from tests.rows import CONFIG
from tests.rows import COST
from tests.rows import row


def workdir(tmp_path, rows, costs=(COST,)):
  records.append(tmp_path / 'examples.jsonl', rows)
  records.append(tmp_path / 'costs.jsonl', costs)
  (tmp_path / 'config.json').write_text(json.dumps(CONFIG))
  report.write(tmp_path)
  return (tmp_path / 'report.md').read_text()


def test_faster_and_slower_settings_are_both_named(tmp_path):
  text = workdir(tmp_path, [
      row(decoder_seconds=1.0, beta=[0.9]),
      row(gamma=2, decoder_seconds=0.5), row(gamma=4, decoder_seconds=2.0)])
  assert 'Faster than plain: D γ=2 (2.00×)' in text
  assert 'Slower than plain: D γ=4 (0.50×)' in text


def test_a_draft_as_dear_as_the_target_shows_a_factor_below_one(tmp_path):
  cost = {**COST, 'c': 1.0, 'verify_ratio': {'4': 1.0}}
  text = workdir(tmp_path, [row(beta=[0.9]),
                            row(gamma=4, decoder_seconds=1.3)], [cost])
  assert '| 1.000 |' in text and '| 0.82 |' in text and '| 0.77 |' in text


def test_what_was_not_measured_is_not_a_number(tmp_path):
  text = workdir(tmp_path, [
      row(rounds=1, output_length=1, ids=[1]),
      row(gamma=4, rounds=1, drafted=[0], accepted=[0], discarded=[0],
          output_length=1, ids=[1])], [])
  assert report.MISSING in text and 'nan' not in text.lower()
  (setting,) = records.read(tmp_path / 'settings.jsonl')
  assert setting['acceptance'] is None and setting['c'] is None


def test_a_workdir_without_records_still_renders(tmp_path):
  assert 'No setting has been decoded' in workdir(tmp_path, [], [])


def test_a_cut_last_line_still_renders(tmp_path):
  workdir(tmp_path, [row(), row(gamma=2)])
  path = tmp_path / 'examples.jsonl'
  path.write_bytes(path.read_bytes() + b'{"draft": "D", "te')
  report.write(tmp_path)
  assert len(records.read(tmp_path / 'settings.jsonl')) == 1


def test_outputs_cut_by_the_budget_are_counted(tmp_path):
  text = workdir(tmp_path, [
      row(), row(gamma=2, finish_reason='length', source_truncated=True)])
  assert 'Up to 1 outputs' in text and '1 sources were cut' in text


def test_text_cannot_leave_its_cell(tmp_path):
  text = workdir(tmp_path, [row(draft='a|b\n# c'),
                            row(draft='a|b\n# c', gamma=2)], [])
  assert '| a\\|b # c | 2 |' in text


def test_every_key_of_the_record_is_there():
  keys = ('task target draft temperature gamma batch_size sentences tokens '
          'alpha alpha_se acceptance acceptance_by_position tokens_per_round c '
          'verify_ratio speedup speedup_low speedup_high speedup_with_encoder '
          'predicted_thm38 predicted_with_verify identical differing bleu '
          'bleu_plain tokens_per_second').split()
  setting = metrics.setting([row(beta=[0.5])], [row(gamma=2)], COST)
  assert set(keys) <= setting.keys()


def test_a_folder_that_is_no_run_is_refused(tmp_path):
  with pytest.raises(records.WorkdirError, match='config.json: not readable'):
    report.write(tmp_path)
