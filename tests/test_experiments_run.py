"""Experiments on tiny models: runs, tables, files, going on."""

import json
import pathlib
import subprocess
import sys

import pytest

from configs import paper
from experiments import batch_sweep
from experiments import common
from experiments import draft_size
from experiments import figures
from experiments import table2
from experiments import table3
from experiments import table4
from specdec_jax import job
from specdec_jax import records
from specdec_jax import run
from tests import tiny

ROOT = pathlib.Path(__file__).parent.parent
SMALL = dict(drafts=('mini/small',), temperatures=(0.0,), gammas=(3,),
             repeats=1)


@pytest.fixture(scope='module')
def lab(tmp_path_factory):
  """A workdir, and options that lead to a tiny ladder and a few sentences."""
  folder = tmp_path_factory.mktemp('lab')
  tiny.save(folder / 'target', tiny.TARGET)
  tiny.save(folder / 'small', tiny.DRAFTS['small'], 1)
  data = folder / 'data.tsv'
  data.write_text(''.join(f'{text}\t{text}\n' for text in tiny.TEXTS))
  return common.Lab(
      folder / 'work',
      f'ladder={folder},task=tsv:{data},sentences=2,max_new_tokens=8')


@pytest.fixture(autouse=True)
def small_studies(monkeypatch):
  for name in paper.STUDIES:
    monkeypatch.setitem(paper.STUDIES, name, SMALL)


def table(lab, name, part):
  return json.loads((lab.folder / f'{name}.json').read_text())[part]


def test_tables_of_one_grid_share_its_run(lab, monkeypatch):
  table2.make(lab)
  (row,) = table(lab, 'table2', 'lines')
  assert row['identical'] == row['sentences'] == 2 and row['speedup'] > 0

  def refuse(*arguments):
    raise AssertionError('models were loaded again')
  monkeypatch.setattr(job, 'load_models', refuse)
  table4.make(lab)
  draft_size.make(lab)
  (row,) = table(lab, 'table4', 'measured')
  assert row['tokens_quotient'] * row['eq1'] == pytest.approx(
      row['tokens_per_round'])
  (row,) = table(lab, 'draft_size', 'lines')
  assert row['parameters'] > 0
  assert 'Median absolute difference' in (
      lab.folder / 'table4.md').read_text()


def test_figures_are_written_for_light_and_dark_pages(lab):
  figures.make(lab)
  names = {path.name for path in (lab.folder / 'figures').iterdir()}
  for name in (*figures.DRAWN, 'figure5_timeline'):
    assert {f'{name}.light.svg', f'{name}.dark.svg'} <= names
  assert [r['lane'] for r in table(lab, 'figures', 'timeline')] == [
      'γ = 3', 'plain']


def test_a_workdir_of_the_main_job_is_read_as_it_is(lab, monkeypatch):
  monkeypatch.setattr(run, 'run', None)
  inner = common.Lab(lab.folder / 'grid')
  table2.make(inner)
  assert (inner.folder / 'table2.md').exists()


def test_records_that_were_cut_leave_missing_figures(lab, tmp_path, capsys):
  for name in ('config.json', 'costs.jsonl'):
    (tmp_path / name).write_bytes((lab.folder / 'grid' / name).read_bytes())
  whole = (lab.folder / 'grid' / 'examples.jsonl').read_bytes()
  for content in (b'', whole[:50]):
    (tmp_path / 'examples.jsonl').write_bytes(content)
    table4.make(common.Lab(tmp_path))
    printed = capsys.readouterr().out
    assert 'nothing was measured here' in printed
    assert 'measured factor: n/a' in printed


def test_table_3_takes_sentences_for_the_tokens_asked_for(lab):
  table3.make(lab, tokens=10)
  rows = records.read(lab.folder / 'table3' / 'examples.jsonl')
  assert {row['index'] for row in rows} == {0, 1}
  (row,) = table(lab, 'table3', 'lines')
  assert row['tokens_0'] == sum(
      len(r['beta']) for r in rows if r['gamma'] == 0)


def test_a_batch_size_has_a_run_of_its_own(lab):
  batch_sweep.make(lab, sizes=(2,))
  (row,) = table(lab, 'batch_sweep', 'lines')
  assert row['batch_size'] == 2
  assert (lab.folder / 'batch_sweep' / '2' / 'report.md').exists()


@pytest.mark.parametrize(('arguments', 'status', 'text'), [
    (['table1'], 0, '12 of 12'),
    (['table2'], 1, 'workdir'),
    (['memory', '--target=nowhere'], 1, 'nowhere: no such file or folder'),
])
def test_the_command_line_prints_or_says_what_is_wrong(
    arguments, status, text):
  done = subprocess.run(
      [sys.executable, '-m', f'experiments.{arguments[0]}', *arguments[1:]],
      cwd=ROOT, capture_output=True, text=True)
  assert done.returncode == status
  assert text in done.stdout + done.stderr
