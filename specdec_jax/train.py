"""Train one T5 model on parallel text; goes on where it stopped.

    python -m specdec_jax.train --config=configs/ladder.py:small,corpus=DIR \\
        --workdir=runs/ladder/small

Teacher forcing over length buckets, Adam with parameter-scaled steps,
warm-up, constant, linear decay; with `--teacher=DIR` also towards a teacher's
law. Writes into the workdir `config.json`,
`metrics.jsonl`, `checkpoints/` (Orbax, with optimizer state) and at the end
`model/`, a folder that `specdec_jax.load` reads.

A step's batch and dropout are functions of the seed and the step number, so a
killed run that goes on ends with the weights of an undisturbed one.
"""

from collections.abc import Sequence
import dataclasses
import math
import pathlib
import sys
import time
from typing import Any

from absl import app
from absl import flags
from absl import logging
import jax
from ml_collections import config_flags
import numpy as np
import optax
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as managers
import tqdm

from specdec_jax import batches as batches_lib
from specdec_jax import checkpoint
from specdec_jax import config as config_lib
from specdec_jax import environment
from specdec_jax import records
from specdec_jax import t5
from specdec_jax import train_step as step_lib
from specdec_jax import vocab


def init_params(
    config: config_lib.TrainConfig, vocabulary: vocab.Vocabulary
) -> t5.Params:
  """Float32 weights of `config.init`, or random ones."""
  if not config.init:
    return t5.init_params(config.architecture, jax.random.key(config.seed))
  loaded = checkpoint.load(config.init, config=config.architecture)
  vocab.check_same(vocabulary, loaded.vocabulary)
  return loaded.params


@dataclasses.dataclass(frozen=True)
class Teacher:
  """The model to distil from and its weights."""
  model: t5.Model
  params: t5.Params


def load_teacher(
    config: config_lib.TrainConfig, vocabulary: vocab.Vocabulary
) -> Teacher | None:
  """`config.teacher`, if any, which must have the same vocabulary."""
  if not config.teacher:
    return None
  loaded = checkpoint.load(config.teacher)
  vocab.check_same(vocabulary, loaded.vocabulary)
  model = t5.bind(loaded.config, text_size=vocabulary.text_size)
  return Teacher(model, loaded.params)


def open_workdir(config: config_lib.TrainConfig, workdir: pathlib.Path) -> None:
  """Claims the workdir for this config; only `steps` may change later."""
  options = dataclasses.asdict(config) | {'model': dict(config.model)}
  del options['steps']
  records.claim(workdir, options, environment.machine())


def open_metrics(path: pathlib.Path, step: int) -> None:
  """Drops the lines past `step`, which will be written again."""
  kept = [row for row in records.read(path) if row['step'] <= step]
  records.replace_rows(path, kept)


def open_checkpoints(
    config: config_lib.TrainConfig, workdir: pathlib.Path
) -> ocp.CheckpointManager:
  """Keeps the last two, with `patience` the best, and every `keep_every`."""
  def quality(metrics) -> float:
    return -metrics['nll']
  policies: list[Any] = [managers.LatestN(2)]
  if config.patience:
    policies.append(managers.BestN(
        get_metric_fn=quality, n=1, keep_checkpoints_without_metrics=False))
  if config.keep_every:
    policies.append(managers.EveryNSteps(config.keep_every))
  return ocp.CheckpointManager(
      (workdir / 'checkpoints').absolute(),
      options=ocp.CheckpointManagerOptions(
          # Metrics are stored only where there is a `best_fn`.
          best_fn=quality if config.patience else None,
          preservation_policy=managers.AnyPreservationPolicy(policies)))


def restore(
    manager: ocp.CheckpointManager, state: step_lib.TrainState,
    step: int | None = None
) -> step_lib.TrainState:
  """The checkpoint of a step, by default the last; `state` if there is none.

  Args:
    state: what to shape and place it like.
  """
  step = manager.latest_step() if step is None else step
  if step is None:
    return state
  args: Any = ocp.args.StandardRestore(state)  # pyright: ignore
  restored: Any = manager.restore(step, args=args)
  return restored


def best_step(rows: Sequence[records.Row]) -> int | None:
  """The step with the lowest validation loss, the latest of several."""
  evaluated = [row for row in rows if 'nll' in row]
  if not evaluated:
    return None
  return min(reversed(evaluated), key=lambda row: row['nll'])['step']


def out_of_patience(rows: Sequence[records.Row], patience: int) -> bool:
  """Whether `patience` evaluations (0: never) have come after the best.

  Example: validation losses 3, 2, 2.5, 2.2 are out of patience 2, not of 3.
  """
  best = best_step(rows)
  if not patience or best is None:
    return False
  later = [row for row in rows if 'nll' in row and row['step'] > best]
  return len(later) >= patience


def train(config: config_lib.TrainConfig, workdir: pathlib.Path) -> None:
  """Trains `config.model` to `config.steps` and writes `workdir/model`.

  Raises:
    ValueError: of the modules' own kinds, before any compute, naming the
      option, its value and what is allowed.
    FloatingPointError: where the loss is no number any more.
  """
  vocabulary = vocab.Vocabulary(pathlib.Path(config.vocabulary))
  if config.architecture.vocab_size < vocabulary.text_size:
    raise config_lib.ConfigError(
        f'model.vocab_size={config.architecture.vocab_size}: allowed are '
        f'{vocabulary.text_size}, the ids of {config.vocabulary}, and above')
  teacher = load_teacher(config, vocabulary)
  pairs, validation = (
      batches_lib.load_pairs(names, vocabulary, max(config.buckets))
      for names in (config.train_data, config.validation_data))
  optimizer = step_lib.make_optimizer(config)
  state = step_lib.init_state(
      config, optimizer, init_params(config, vocabulary))
  open_workdir(config, workdir)
  with open_checkpoints(config, workdir) as manager:
    state = restore(manager, state)
    logging.info('%d pairs, %d for validation; steps %d to %d',
                 len(pairs), len(validation), state.step, config.steps)
    state = run_steps(config, workdir, manager, optimizer, teacher, state,
                      pairs, validation)
    if config.patience:
      manager.wait_until_finished()
      best = best_step(records.read(workdir / 'metrics.jsonl'))
      logging.info('step %s had the lowest validation loss', best)
      state = restore(manager, state, best)
  checkpoint.save(
      workdir / 'model', step_lib.weights_to_use(state), config.architecture,
      vocabulary)


def run_steps(
    config: config_lib.TrainConfig,
    workdir: pathlib.Path,
    manager: ocp.CheckpointManager,
    optimizer: optax.GradientTransformation,
    teacher: Teacher | None,
    state: step_lib.TrainState,
    pairs: Sequence[batches_lib.Pair],
    validation: Sequence[batches_lib.Pair],
) -> step_lib.TrainState:
  """The steps that `state` lacks, with their log lines and checkpoints."""
  first = int(state.step)
  metrics = workdir / 'metrics.jsonl'
  open_metrics(metrics, first)
  stop = out_of_patience(records.read(metrics), config.patience)
  train_step = step_lib.make_train_step(
      config, optimizer, teacher and teacher.model)
  teacher_params = teacher and teacher.params
  evaluate = step_lib.make_evaluate(config)
  stream = batches_lib.stream(
      first, pairs, config.buckets, config.batch_tokens, config.seed)
  losses, tokens, began = [], 0, time.monotonic()
  for done in tqdm.trange(
      first + 1, config.steps + 1, initial=first, total=config.steps,
      mininterval=5):
    if stop:
      logging.info('out of patience after step %d', done - 1)
      break
    batch = next(stream)
    state, loss = train_step(state, batch, teacher_params)
    losses.append(loss)
    tokens += int(np.sum(batch['targets'] != vocab.PAD_ID))
    last, scores = done == config.steps, None
    if done % config.log_every == 0 or last:
      mean = float(np.mean(jax.device_get(losses)))
      if not math.isfinite(mean):
        raise FloatingPointError(f'step {done}: the loss is {mean}')
      rate = tokens / (time.monotonic() - began)
      records.append(metrics, [
          {'step': done, 'loss': mean, 'tokens_per_second': rate}])
      losses, tokens, began = [], 0, time.monotonic()
    if done % config.eval_every == 0 or last:
      paused = time.monotonic()
      scores = evaluate(step_lib.weights_to_use(state), validation)
      records.append(metrics, [{'step': done, **scores}])
      stop = out_of_patience(records.read(metrics), config.patience)
      began += time.monotonic() - paused
    if done % config.checkpoint_every == 0 or last or (
        config.patience and scores):
      manager.save(
          done, args=ocp.args.StandardSave(state),  # pyright: ignore
          metrics=scores if config.patience else None)
  return state


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments {argv[1:]}')
  try:
    given = flags.FLAGS.config
    if flags.FLAGS.teacher:
      given = given.copy_and_resolve_references()
      given.teacher = flags.FLAGS.teacher
    config = config_lib.resolve(given, config_lib.TrainConfig)
    train(config, pathlib.Path(flags.FLAGS.workdir))
  except (ValueError, FloatingPointError) as error:
    sys.exit(f'error: {error}')


if __name__ == '__main__':
  config_flags.DEFINE_config_file('config', None, 'Training config.')
  flags.DEFINE_string('workdir', None, 'Folder to write.')
  flags.DEFINE_string(
      'teacher', None, 'Model folder to distil from; as --config.teacher.')
  flags.mark_flags_as_required(['config', 'workdir'])
  app.run(main)
