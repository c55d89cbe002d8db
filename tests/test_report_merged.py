"""One report of several runs."""

import json
import pathlib
import subprocess
import sys

import pytest

from specdec_jax import records
from specdec_jax import report
from tests import rows as rows_lib
from tests.rows import CONFIG
from tests.rows import row

ROOT = pathlib.Path(__file__).parents[1]


def merged(tmp_path):
  rows_lib.write(tmp_path / 'a', [row(), row(gamma=2, decoder_seconds=0.5)])
  config = json.loads(json.dumps(CONFIG))
  config['environment'] |= {'device': 'gpu', 'versions': {'jax': '9'}}
  rows_lib.write(
      tmp_path / 'b', [row(task='other'), row(gamma=2, task='other')],
      config=config)
  report.write_merged([tmp_path / 'a', tmp_path / 'b'], tmp_path / 'c')
  return tmp_path / 'c'


def test_merged_rows_keep_task_machine_and_run(tmp_path):
  rows = records.read(merged(tmp_path) / 'settings.jsonl')
  assert [(r['task'], r['machine'], r['run']) for r in rows] == [
      ('test', 'cpu, P', 'a'), ('other', 'gpu, P', 'b')]


def test_a_merged_report_has_a_table_for_each_task_and_tells_differences(
    tmp_path):
  folder = merged(tmp_path)
  text = (folder / 'report.md').read_text()
  found = (folder / 'report.html').read_text()
  assert '## Temperature 0: test, T, cpu, P (a)' in text
  assert '## Temperature 0: other, T, gpu, P (b)' in text
  for form in (text, found):
    assert 'The runs differ in device: cpu in a, gpu in b' in form
    assert 'The runs differ in jax version: 0 in a, 9 in b' in form


def test_a_merged_report_lists_its_runs_in_one_table(tmp_path):
  text = (merged(tmp_path) / 'report.md').read_text()
  _, runs = text.split('## Runs\n')
  lines = runs.split('\n\n')[0].strip().splitlines()
  assert lines[0].startswith('| run | task | sentences | repeats | batch |')
  assert [line.split(' | ')[:2] for line in lines[2:]] == [
      ['| a', 'test'], ['| b', 'other']]
  assert '\na: Target T on cpu' in text and '\nb: Target T on gpu' in text


def test_runs_of_one_name_are_told_apart_by_their_folders(tmp_path):
  folders = [tmp_path / name for name in ('a/1', 'b/1', 'c')]
  for folder in folders:
    folder.parent.mkdir(exist_ok=True)
    rows_lib.write(folder, [row(), row(gamma=2, decoder_seconds=0.5)])
  report.write_merged(folders, tmp_path / 'out')
  rows = records.read(tmp_path / 'out' / 'settings.jsonl')
  assert [r['run'] for r in rows] == ['a/1', 'b/1', 'c']
  text = (tmp_path / 'out' / 'report.md').read_text()
  assert 'test, cpu, P, run a/1)' in text


def test_a_merged_report_prints_a_row_of_the_paper_once(tmp_path):
  for name in 'ab':
    rows_lib.write(tmp_path / name, [
        row(task='ende', draft='m/small'),
        row(task='ende', draft='m/small', gamma=2, decoder_seconds=0.5)])
  report.write_merged([tmp_path / 'a', tmp_path / 'b'], tmp_path / 'c')
  text = (tmp_path / 'c' / 'report.md').read_text()
  table = text.split('## Against the paper')[1].split('\n## ')[0]
  assert 'a, best' in table and 'b, best' in table
  assert table.count('T5 small') == 1


@pytest.mark.parametrize(('count', 'folded'), [(6, False), (7, True)])
def test_verdicts_of_many_runs_are_folded_away(tmp_path, count, folded):
  folders = [tmp_path / str(i) for i in range(count)]
  for folder in folders:
    rows_lib.write(folder, [row(), row(gamma=2, decoder_seconds=0.5)])
  report.write_merged(folders, tmp_path / 'out')
  found = (tmp_path / 'out' / 'report.html').read_text()
  assert (f'<summary>Run by run ({count})</summary>' in found) == folded
  assert found.count('settings are faster than plain, best') == count


def test_a_merged_report_overwrites_no_run(tmp_path):
  merged(tmp_path)
  with pytest.raises(records.WorkdirError, match='is the workdir of a run'):
    report.write_merged([tmp_path / 'a', tmp_path / 'b'], tmp_path / 'a')


def test_the_command_needs_an_output_for_several_runs(tmp_path):
  merged(tmp_path)
  done = subprocess.run(
      [sys.executable, '-m', 'specdec_jax.report',
       f'--workdir={tmp_path / "a"}', f'--workdir={tmp_path / "b"}'],
      capture_output=True, text=True, check=False, cwd=ROOT)
  assert done.returncode == 1
  assert '--output: several runs need' in done.stderr
