"""Training: goes on after a kill as if nothing had happened, and learns."""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import jax
from jax import numpy as jnp
import ml_collections
import numpy as np
import orbax.checkpoint as ocp
import pytest

from configs import ladder
from specdec_jax import checkpoint
from specdec_jax import config as config_lib
from specdec_jax import records
from specdec_jax import train
from specdec_jax import train_step
from specdec_jax import vocab
from tests import fixtures_text
from tests import tiny

STEPS = 30


@pytest.fixture(scope='module', autouse=True)
def usual_dtype_promotion():
  """optax counts steps in int32 and multiplies them with floats."""
  with jax.numpy_dtype_promotion('standard'):
    yield


@pytest.fixture(scope='module', autouse=True)
def compile_once():
  """Runs of one config share their programs; a new process has its own."""
  def shared(make, programs):
    def make_once(config, *args):
      if repr(config) not in programs:
        programs[repr(config)] = make(config, *args)
      return programs[repr(config)]
    return make_once
  with pytest.MonkeyPatch.context() as patch:
    for name in ('make_train_step', 'make_evaluate'):
      patch.setattr(
          train_step, name, shared(getattr(train_step, name), {}))
    yield


@pytest.fixture(scope='module')
def options(tmp_path_factory, vocabulary):
  """Options of a tiny model on the synthetic sentences, by name."""
  folder = tmp_path_factory.mktemp('data')
  rows = [f'{en}\t{de}\n' for en, de in fixtures_text.sentence_pairs()]
  (folder / 'train.tsv').write_text(''.join(rows[:180]))
  (folder / 'validation.tsv').write_text(''.join(rows[180:]))
  return dict(
      model=dict(d_model=16, d_ff=24, num_heads=2, head_dim=8,
                 encoder_layers=1, decoder_layers=1, vocab_size=192,
                 gated=True, tied=True),
      vocabulary=str(vocabulary.path),
      train_data=(f'tsv:{folder / "train.tsv"}',),
      validation_data=(f'tsv:{folder / "validation.tsv"}',),
      init='', seed=0, buckets=(48,), batch_tokens=240, steps=STEPS,
      learning_rate=0.05, warmup_steps=4, decay_steps=6, adam_b2=0.98,
      min_param_rms=1e-3, clip_norm=1.0, dropout_rate=0.1, label_smoothing=0.05,
      ema_decay=0.0, teacher='', distill_loss='forward_kl', distill_weight=0.5,
      distill_temperature=1.0, patience=0,
      log_every=3, eval_every=10, checkpoint_every=10, keep_every=0)


def resolve(options, **changes) -> config_lib.TrainConfig:
  return config_lib.resolve(
      ml_collections.ConfigDict(options | changes), config_lib.TrainConfig)


def initial_state(config) -> train_step.TrainState:
  vocabulary = vocab.Vocabulary(pathlib.Path(config.vocabulary))
  return train_step.init_state(
      config, train_step.make_optimizer(config),
      train.init_params(config, vocabulary))


def last_state(options, workdir) -> train_step.TrainState:
  """The state of the last checkpoint."""
  config = resolve(options)
  empty = initial_state(config)
  with train.open_checkpoints(config, workdir) as manager:
    return train.restore(manager, empty)


def without_times(workdir) -> list[dict]:
  return [{k: v for k, v in row.items() if k != 'tokens_per_second'}
          for row in records.read(workdir / 'metrics.jsonl')]


@pytest.fixture(scope='module')
def undisturbed(options, tmp_path_factory):
  """The workdir of a run that nothing interrupted."""
  workdir = tmp_path_factory.mktemp('undisturbed') / 'run'
  train.train(resolve(options), workdir)
  return workdir


def assert_same_end(options, workdir, undisturbed):
  """Bit-equal weights and optimizer state; metrics without a line twice."""
  expected = last_state(options, undisturbed)
  assert int(expected.step) == STEPS
  jax.tree.map(np.testing.assert_array_equal,
               last_state(options, workdir), expected)
  rows, others = without_times(workdir), without_times(undisturbed)
  keys = [(row['step'], 'nll' in row) for row in rows]
  assert keys == sorted(set(keys))
  evaluated = [row for row in others if 'nll' in row]
  assert [row for row in rows if 'nll' in row] == evaluated
  assert rows[-1]['step'] == STEPS


class Killed(BaseException):
  """Stands in for the end of the process: nothing catches it."""


def test_a_run_killed_in_a_save_ends_with_the_same_weights(
    options, undisturbed, tmp_path, monkeypatch):
  save = ocp.CheckpointManager.save

  def killed_at_20(self, step, **kwargs):
    if step == 20:
      raise Killed
    return save(self, step, **kwargs)
  with monkeypatch.context() as patch:
    patch.setattr(ocp.CheckpointManager, 'save', killed_at_20)
    with pytest.raises(Killed):
      train.train(resolve(options), tmp_path / 'run')
  # The lines of steps 11 to 20 are there and will be written again.
  assert without_times(tmp_path / 'run')[-1]['step'] == 20
  with (tmp_path / 'run' / 'metrics.jsonl').open('a') as out:
    out.write('{"step": 21, "lo')  # a line that the kill cut in two
  train.train(resolve(options), tmp_path / 'run')
  assert_same_end(options, tmp_path / 'run', undisturbed)


def test_a_process_killed_at_any_time_ends_with_the_same_weights(
    options, undisturbed, tmp_path):
  config = tmp_path / 'config.py'
  config.write_text(
      'import ml_collections\n'
      f'def get_config():\n  return ml_collections.ConfigDict({options!r})\n')
  workdir, root = tmp_path / 'run', pathlib.Path(__file__).parents[1]
  command = [sys.executable, '-m', 'specdec_jax.train', f'--config={config}',
             f'--workdir={workdir}']
  process = subprocess.Popen(
      command, cwd=root, stderr=subprocess.DEVNULL,
      env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(root)})
  try:
    metrics = workdir / 'metrics.jsonl'
    while process.poll() is None and not (
        metrics.exists() and len(records.read(metrics)) >= 4):
      time.sleep(0.01)
  finally:
    process.send_signal(signal.SIGKILL)
    process.wait()
  train.train(resolve(options), workdir)
  assert_same_end(options, workdir, undisturbed)


@pytest.fixture(scope='module')
def taught(options, vocabulary, tmp_path_factory):
  """Options with a teacher, an average and early stopping."""
  folder = tmp_path_factory.mktemp('teacher')
  model = options['model'] | dict(d_model=24, vocab_size=200)
  config = resolve(options, model=model)
  checkpoint.save(folder / 'model', initial_state(config).params,
                  config.architecture, vocabulary)
  return options | dict(
      teacher=str(folder / 'model'), ema_decay=0.9, patience=2)


def test_with_teacher_and_average_a_killed_run_ends_with_the_same_weights(
    taught, tmp_path, monkeypatch):
  train.train(resolve(taught), tmp_path / 'undisturbed')
  append = records.append

  def killed_in_the_log_of_24(path, rows):
    if rows[0]['step'] == 24:
      raise Killed
    append(path, rows)
  with monkeypatch.context() as patch:
    patch.setattr(records, 'append', killed_in_the_log_of_24)
    with pytest.raises(Killed):
      train.train(resolve(taught), tmp_path / 'run')
  train.train(resolve(taught), tmp_path / 'run')
  assert_same_end(taught, tmp_path / 'run', tmp_path / 'undisturbed')
  one, other = (
      checkpoint.load(tmp_path / name / 'model').params
      for name in ('run', 'undisturbed'))
  jax.tree.map(np.testing.assert_array_equal, one, other)
  jax.tree.map(np.testing.assert_array_equal, one,
               last_state(taught, tmp_path / 'run').average)


def test_a_run_that_ended_trains_nothing_more(options, undisturbed):
  before = without_times(undisturbed)
  train.train(resolve(options), undisturbed)
  assert without_times(undisturbed) == before


def test_loss_goes_down(undisturbed):
  losses = [row['loss'] for row in without_times(undisturbed) if 'loss' in row]
  nll = [row['nll'] for row in without_times(undisturbed) if 'nll' in row]
  assert losses[-1] < losses[0] - 0.5
  assert nll == sorted(nll, reverse=True)


def test_every_row_of_the_metrics_has_its_step(undisturbed):
  rows = without_times(undisturbed)
  assert [r['step'] for r in rows if 'loss' in r] == [*range(3, 31, 3)]
  assert [r['step'] for r in rows if 'nll' in r] == [10, 20, 30]
  assert all(0 <= r['accuracy'] <= 1 for r in rows if 'nll' in r)


# -- the workdir


def test_workdir_says_what_made_it(options, undisturbed):
  stored = json.loads((undisturbed / 'config.json').read_text())
  assert stored['config']['model'] == options['model']
  assert stored['config']['learning_rate'] == 0.05
  assert stored['environment']['versions']['jax'] == jax.__version__


def test_another_config_on_the_same_workdir_is_refused_by_name(
    options, undisturbed):
  with pytest.raises(records.WorkdirError, match='seed is 0 there and 1 now'):
    train.train(resolve(options, seed=1), undisturbed)
  assert not list(undisturbed.glob('*.partial'))


def test_only_the_number_of_steps_may_change(options, tmp_path):
  train.open_workdir(resolve(options), tmp_path)
  train.open_workdir(resolve(options, steps=STEPS + 1), tmp_path)


# -- options


@pytest.mark.parametrize('model, message', [
    (dict(d_modle=16), r"model has unknown options \['d_modle'\]"),
    (dict(num_heads=0), 'model.num_heads=0: allowed are')])
def test_a_bad_field_of_the_model_is_refused_by_name(options, model, message):
  with pytest.raises(config_lib.ConfigError, match=message):
    resolve(options, model=options['model'] | model)


def test_a_missing_field_of_the_model_is_refused_by_name(options):
  model = {k: v for k, v in options['model'].items() if k != 'd_ff'}
  with pytest.raises(config_lib.ConfigError, match=r"lacks \['d_ff'\]"):
    resolve(options, model=model)


def test_an_unknown_option_is_refused_by_name(options):
  with pytest.raises(config_lib.ConfigError, match='learning_rat'):
    resolve(options, learning_rat=0.1)


def test_a_table_smaller_than_the_vocabulary_is_refused(options, tmp_path):
  config = resolve(options, model=options['model'] | dict(vocab_size=160))
  with pytest.raises(config_lib.ConfigError,
                     match='model.vocab_size=160: allowed are 170'):
    train.train(config, tmp_path)


@pytest.mark.parametrize('name', ladder.MODELS)
def test_the_ladder_s_configs_resolve(name):
  config = config_lib.resolve(
      ladder.get_config(f'{name},corpus=DIR'), config_lib.TrainConfig)
  assert config.architecture.d_model == ladder.MODELS[name]['d_model']


@pytest.mark.parametrize('arg', ['huge', 'small,corpse=DIR', 'small,steps=1'])
def test_the_ladder_refuses_leftovers(arg):
  with pytest.raises(ValueError, match='allowed are one of target, large'):
    ladder.get_config(arg)


# -- starting from a model, teachers, early stopping


def test_a_run_starts_from_the_weights_of_init(taught):
  # The teacher's folder serves as any model folder.
  config = resolve(taught, init=taught['teacher'], model=taught['model'] | dict(
      d_model=24, vocab_size=200))
  jax.tree.map(np.testing.assert_array_equal, initial_state(config).params,
               checkpoint.load(taught['teacher']).params)


def test_an_init_of_another_shape_is_refused_before_the_workdir_is_claimed(
    taught, tmp_path):
  config = resolve(taught, init=taught['teacher'])
  with pytest.raises(checkpoint.CheckpointError, match='d_model'):
    train.train(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize('option', ['init', 'teacher'])
def test_a_model_with_another_vocabulary_is_refused(
    options, tmp_path, option):
  folder = tiny.save(tmp_path / 'other', tiny.config(**options['model']))
  with pytest.raises(vocab.VocabularyError, match='vocabularies differ'):
    train.train(resolve(options, **{option: folder}), tmp_path / 'run')


def test_a_teacher_without_weight_is_refused(options):
  with pytest.raises(config_lib.ConfigError, match='distill_weight=0: allowed'):
    resolve(options, teacher='somewhere', distill_weight=0.0)


def test_the_flag_names_the_teacher(options, tmp_path):
  config = tmp_path / 'config.py'
  config.write_text(
      'import ml_collections\n'
      f'def get_config():\n  return ml_collections.ConfigDict({options!r})\n')
  result = subprocess.run(
      [sys.executable, '-m', 'specdec_jax.train', f'--config={config}',
       f'--workdir={tmp_path / "run"}', '--teacher=no/such/folder'],
      cwd=pathlib.Path(__file__).parents[1], capture_output=True, text=True,
      env={**os.environ, 'JAX_PLATFORMS': 'cpu'}, check=False)
  assert result.returncode == 1
  assert 'no/such/folder' in result.stderr.splitlines()[-1]


def test_worked_example_of_patience():
  rows = [{'step': i, 'nll': x} for i, x in enumerate((3, 2, 2.5, 2.2))]
  rows.insert(2, {'step': 1, 'loss': 1.0})
  assert train.best_step(rows) == 1
  assert train.out_of_patience(rows, 2)
  assert not train.out_of_patience(rows, 3)
  assert not train.out_of_patience(rows, 0)
  assert not train.out_of_patience([], 1)


def test_of_equal_losses_the_latest_is_the_best():
  rows = [{'step': i, 'nll': x} for i, x in enumerate((2, 1, 1, 3))]
  assert train.best_step(rows) == 2


def test_a_run_out_of_patience_stops_and_ships_its_best_weights(
    options, tmp_path, monkeypatch):
  losses = iter((3.0, 2.0, 2.5, 2.2, 1.0))
  monkeypatch.setattr(
      train_step, 'make_evaluate',
      lambda config: lambda *_: {'nll': next(losses), 'accuracy': 0.0})
  config = resolve(options, patience=2, eval_every=4, checkpoint_every=3)
  workdir = tmp_path / 'run'
  train.train(config, workdir)
  rows = without_times(workdir)
  assert [r['step'] for r in rows if 'nll' in r] == [4, 8, 12, 16]
  with train.open_checkpoints(config, workdir) as manager:
    assert manager.all_steps() == [8, 15, 16]
    best = train.restore(manager, initial_state(config), 8)
  shipped = checkpoint.load(workdir / 'model').params
  jax.tree.map(np.testing.assert_array_equal, shipped, best.params)
  # Run again, it has ended: nothing is trained or evaluated.
  train.train(config, workdir)
  assert without_times(workdir) == rows


def test_a_loss_that_is_no_number_stops_the_run_with_its_step(
    options, tmp_path, monkeypatch):
  def broken(*_):
    def step(state, *_):
      state = dataclasses.replace(state, step=state.step + 1)
      return state, jnp.float32(np.nan)
    return step
  monkeypatch.setattr(train_step, 'make_train_step', broken)
  with pytest.raises(FloatingPointError, match='step 3: the loss is nan'):
    train.train(resolve(options), tmp_path / 'run')
  assert not (tmp_path / 'run' / 'model').exists()
