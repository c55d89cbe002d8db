"""The whole job on tiny models: records, resume, refusal, report."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import ml_collections
import pytest

from configs import ende
from specdec_jax import checkpoint
from specdec_jax import ngram
from specdec_jax import records
from specdec_jax import run
from specdec_jax import vocab
from tests import tiny

ROOT = pathlib.Path(__file__).parent.parent


@pytest.fixture(scope='module')
def options(tmp_path_factory):
  return tiny.job(
      tmp_path_factory.mktemp('job'), sentences=3, gammas=(1, 3),
      max_new_tokens=8, repeats=2)


def config(options, **changes) -> ml_collections.ConfigDict:
  found = ende.get_config('mini')
  found.update({**options, **changes})
  return found


@pytest.fixture(scope='module')
def finished(options, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('run')
  run.run(config(options), workdir)
  return workdir


def test_there_is_a_line_for_each_setting_sentence_and_repeat(finished):
  rows = records.read(finished / 'examples.jsonl')
  assert len(rows) == 2 * 2 * 3 * (1 + 2)
  assert {row['gamma'] for row in rows} == {0, 1, 3}
  assert all(row['decoder_seconds'] > 0 for row in rows)


def test_every_setting_at_temperature_zero_is_identical(finished):
  settings = records.read(finished / 'settings.jsonl')
  assert len(settings) == 2 * 2
  for setting in settings:
    if setting['temperature'] == 0:
      assert setting['identical'] == setting['sentences'] == 3
      assert setting['bleu'] == setting['bleu_plain']
    assert 0 <= setting['alpha'] <= 1 and setting['c'] > 0
    assert setting['predicted_with_verify'] > 0


@pytest.mark.parametrize('gammas', [(1, 3, 'auto'), ('auto',)])
def test_auto_is_found_on_a_few_sentences(options, tmp_path, gammas):
  run.run(config(options, drafts=options['drafts'][:1], temperatures=(0.0,),
                 gammas=gammas, repeats=1), tmp_path)
  [cost] = records.read(tmp_path / 'costs.jsonl')
  tried = [str(g) for g in gammas if g != 'auto'] or ['1', '3', '5', '7']
  assert list(cost['round_costs']) == tried
  assert min(cost['round_costs'].values()) > 0
  assert 0 <= cost['prior_alpha'] <= 1
  assert str(cost['fastest']) in ('0', *tried, 'auto')
  ids = {gamma: [row['ids'] for row in records.read(
      tmp_path / 'examples.jsonl') if row['gamma'] == gamma]
         for gamma in (0, 'auto')}
  assert ids['auto'] == ids[0]


def test_config_and_report_say_where_and_how(finished):
  stored = json.loads((finished / 'config.json').read_text())
  assert stored['environment']['random_generator'] == 'threefry2x32'
  assert stored['environment']['dtype'] == 'float32'
  report = (finished / 'report.md').read_text()
  assert 'threefry2x32' in report and 'Slower than plain' in report


def test_each_group_has_traces_that_end_in_the_recorded_ids(finished):
  traces = records.read(finished / 'traces.jsonl')
  assert [(t['temperature'], t['index']) for t in traces] == [
      (t, i) for t in (0.0, 1.0) for i in range(3)]
  recorded = {(r['temperature'], r['index'], r['gamma']): r['ids']
              for r in records.read(finished / 'examples.jsonl')}
  for found in traces:
    key = (found['temperature'], found['index'], found['gamma'])
    assert found['ids'] == recorded[key] and found['gamma'] == 3
  assert 'data-trace="next"' in (finished / 'report.html').read_text()


def test_a_finished_run_loads_no_model(finished, options, monkeypatch):
  def refuse(settings):
    raise AssertionError('models were loaded')
  monkeypatch.setattr(run.job_lib, 'load_models', refuse)
  before = tiny.untimed(finished)
  run.run(config(options), finished)
  assert tiny.untimed(finished) == before


def test_drafts_without_a_model_run_measured_and_lossy_ones_say_so(
    options, tmp_path):
  table = tmp_path / 'table'
  words = tiny.vocabulary()
  ngram.save(table, ngram.train(
      [[*words.encode(text), 1] for text in tiny.TEXTS], words.text_size, 4),
      words)
  run.run(config(options, drafts=(str(table), 'copy'), gammas=(2,), repeats=1,
                 temperatures=(0.0,), lenience=0.5), tmp_path / 'w')
  settings = records.read(tmp_path / 'w' / 'settings.jsonl')
  assert [s['draft'] for s in settings] == [str(table), 'copy']
  for setting in settings:
    assert setting['lenience'] == 0.5 and setting['c'] > 0
    assert 0 <= setting['alpha'] <= 1
    assert setting['identical'] + setting['differing'] == 3


def test_another_config_is_refused_with_field_and_values(finished, options):
  with pytest.raises(records.WorkdirError, match='seed is 0 there and 5 now'):
    run.run(config(options, seed=5), finished)


def test_a_record_cut_in_the_middle_is_completed_to_the_same_records(
    finished, options, tmp_path):
  for name in ('config.json', 'costs.jsonl', 'traces.jsonl'):
    (tmp_path / name).write_bytes((finished / name).read_bytes())
  whole = (finished / 'examples.jsonl').read_bytes()
  (tmp_path / 'examples.jsonl').write_bytes(whole[:len(whole) * 9 // 10])
  run.run(config(options), tmp_path)
  assert tiny.untimed(tmp_path) == tiny.untimed(finished)


def command(options, workdir, **changes):
  overrides = {**options, **changes}
  return [sys.executable, '-m', 'specdec_jax.main',
          f'--config={ROOT / "configs/ende.py"}:mini', f'--workdir={workdir}',
          *(f'--config.{name}={value}' for name, value in overrides.items())]


def test_a_killed_run_goes_on_to_the_same_records(finished, options, tmp_path):
  environment = {**os.environ, 'PYTHONPATH': str(ROOT)}
  arguments = command(options, tmp_path)
  child = subprocess.Popen(
      arguments, env=environment, stderr=subprocess.DEVNULL)
  path = tmp_path / 'examples.jsonl'
  while child.poll() is None and not (
      path.exists() and path.read_bytes().count(b'\n') > 10):
    time.sleep(0.05)
  child.send_signal(signal.SIGKILL)
  assert child.wait() == -signal.SIGKILL
  kept = path.read_bytes().count(b'\n')
  subprocess.run(arguments, env=environment, check=True, capture_output=True)
  assert tiny.untimed(tmp_path) == tiny.untimed(finished)
  assert kept > 10


@pytest.mark.parametrize(('changes', 'message'), [
    ({'gammas': '(-1,)'}, r'gammas=-1: allowed are whole numbers of 1'),
    ({'temperatures': '(-1.0,)'}, r'temperatures=-1.0: allowed are finite'),
    ({'target': 'nowhere'}, r'model nowhere: no such file or folder'),
    ({'task': 'tsv:nowhere.tsv'}, r'data nowhere.tsv: no such file'),
    ({'repetition_penalty': '1.3'}, r'repetition_penalty'),
])
def test_bad_input_ends_with_status_1_before_any_compute(
    options, tmp_path, changes, message):
  done = subprocess.run(
      command(options, tmp_path / 'w', **changes), capture_output=True,
      env={**os.environ, 'PYTHONPATH': str(ROOT)}, text=True)
  assert done.returncode == 1
  assert message in done.stderr
  assert not (tmp_path / 'w' / 'examples.jsonl').exists() or not (
      tmp_path / 'w' / 'examples.jsonl').read_bytes()


def test_vocabularies_that_differ_are_refused_before_any_compute(
    options, tmp_path, monkeypatch):
  other = tiny.loaded(tiny.DRAFTS['small'], 1)
  checkpoint.save(tmp_path / 'other', other.params, other.config,
                      tiny.vocabulary(swapped=True))
  monkeypatch.setattr(run, 'decode_turns', None)
  with pytest.raises(vocab.VocabularyError, match='differ at id'):
    run.run(config(options, drafts=(str(tmp_path / 'other'),)),
            tmp_path / 'w')


def test_order_of_the_docstring_example():
  assert run.in_turn([0, 1, 3], 1, 0) == [1, 3, 0]
  assert run.in_turn([0, 1, 3], 1, 1) == [1, 0, 3]


@pytest.mark.parametrize('repeat', range(3))
def test_each_gamma_is_decoded_at_each_place_as_often(repeat):
  gammas = [0, 1, 3, 5, 'auto']
  orders = [run.in_turn(gammas, batch, repeat) for batch in range(10)]
  for place in zip(*orders, strict=True):
    assert all(place.count(gamma) == 2 for gamma in gammas)


def test_a_plan_lists_each_turn_once_in_the_order_of_writing():
  settings = run.config_lib.resolve(
      ende.get_config('mini'), run.config_lib.RunConfig)
  examples = run.examples_lib.load('ende_mini', 32)
  turns = run.plan(settings, examples)
  assert len(turns) == 2 * 3 * settings.repeats * 32
  keys = [tuple(k.items()) for t in turns for k in run.turn_keys(t, (1, 3))]
  assert len(set(keys)) == len(keys)
