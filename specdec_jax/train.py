"""Train one T5 model on parallel text; goes on where it stopped.

    python -m specdec_jax.train --config=configs/ladder.py:small,corpus=DIR \\
        --workdir=runs/ladder/small

Teacher forcing over length buckets, Adam with parameter-scaled steps,
warm-up, constant, linear decay. Writes into the workdir `config.json`,
`metrics.jsonl`, `checkpoints/` (Orbax, with optimizer state) and at the end
`model/`, a folder that `specdec_jax.load` reads.

A step's batch and dropout are functions of the seed and the step number, so a
killed run that goes on ends with the weights of an undisturbed one.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import math
import pathlib
import sys
import time
from typing import Any

from absl import app
from absl import flags
from absl import logging
import jax
from jax import numpy as jnp
from ml_collections import config_flags
import numpy as np
import optax
import orbax.checkpoint as ocp
import tqdm

from specdec_jax import batches as batches_lib
from specdec_jax import checkpoint
from specdec_jax import config as config_lib
from specdec_jax import environment
from specdec_jax import records
from specdec_jax import t5
from specdec_jax import vocab


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
  """What a checkpoint holds."""
  step: Any  # int32 scalar: how many steps have been taken
  params: Any
  opt_state: Any


def token_losses(module, params, batch, label_smoothing, rngs=None):
  """Returns (smoothed loss, log-probability loss, hits), (b, t); pads are 0."""
  def logits_of(module):
    cache = module.start(batch['source'], batch['inputs'].shape[1])
    return module.extend(batch['inputs'], cache)[0]
  logits = module.apply(
      {'params': params}, rngs=rngs or {}, method=logits_of)
  targets = batch['targets']
  real = targets != vocab.PAD_ID
  nll = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
  uniform = jax.nn.logsumexp(logits, axis=-1) - jnp.mean(logits, axis=-1)
  loss = (1 - label_smoothing) * nll + label_smoothing * uniform
  hits = jnp.argmax(logits, axis=-1) == targets
  return jnp.where(real, loss, 0.0), jnp.where(real, nll, 0.0), hits & real


def schedule(config: config_lib.TrainConfig) -> optax.Schedule:
  """Linear warm-up, constant, linear decay to 0 over the last steps."""
  peak = config.learning_rate
  return optax.join_schedules(
      [optax.linear_schedule(0.0, peak, config.warmup_steps),
       optax.constant_schedule(peak),
       optax.linear_schedule(peak, 0.0, config.decay_steps)],
      [config.warmup_steps, config.steps - config.decay_steps])


def make_optimizer(
    config: config_lib.TrainConfig
) -> optax.GradientTransformation:
  """Adam whose steps are relative to each parameter's size.

  T5's embedding has unit variance and its query kernels a hundredth of that;
  Adafactor, with which T5 was trained, scales its steps the same way.
  """
  return optax.chain(
      optax.clip_by_global_norm(config.clip_norm),
      optax.scale_by_adam(b1=0.9, b2=config.adam_b2),
      optax.scale_by_param_block_rms(config.min_param_rms),
      optax.scale_by_learning_rate(schedule(config)))


def init_state(
    config: config_lib.TrainConfig, optimizer: optax.GradientTransformation
) -> TrainState:
  params = t5.init_params(config.architecture, jax.random.key(config.seed))
  return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))


def make_train_step(
    config: config_lib.TrainConfig, optimizer: optax.GradientTransformation
) -> Callable:
  """Returns the jitted step (state, batch) -> (state, loss per token)."""
  module = t5.T5(config.architecture, dropout_rate=config.dropout_rate)

  @functools.partial(jax.jit, donate_argnums=0)
  def step(state: TrainState, batch):
    key = jax.random.fold_in(jax.random.key(config.seed), state.step)

    def loss_fn(params):
      loss, _, _ = token_losses(
          module, params, batch, config.label_smoothing, {'dropout': key})
      real = batch['targets'] != vocab.PAD_ID
      return jnp.sum(loss) / jnp.sum(real, dtype=jnp.float32)

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    return TrainState(state.step + 1, params, opt_state), loss
  return step


def make_evaluate(config: config_lib.TrainConfig) -> Callable:
  """Returns evaluate(params, pairs) -> {'nll', 'accuracy'} per target token."""
  module = t5.T5(config.architecture)
  losses = jax.jit(functools.partial(token_losses, module, label_smoothing=0.0))

  def evaluate(params, pairs: Sequence[batches_lib.Pair]) -> dict[str, float]:
    # By pair, because the last batch of a bucket repeats some.
    nll, hits = np.zeros((2, len(pairs)))
    for size, indices in batches_lib.plan(
        [pair.length for pair in pairs], config.buckets, config.batch_tokens,
        (0, 0)):
      batch = batches_lib.make(pairs, size, indices)
      _, nll_bt, hits_bt = jax.device_get(losses(params, batch))
      nll[indices], hits[indices] = nll_bt.sum(axis=1), hits_bt.sum(axis=1)
    tokens = sum(len(pair.target) for pair in pairs)
    return {'nll': nll.sum() / tokens, 'accuracy': hits.sum() / tokens}
  return evaluate


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
  return ocp.CheckpointManager(
      (workdir / 'checkpoints').absolute(),
      options=ocp.CheckpointManagerOptions(
          max_to_keep=2, keep_period=config.keep_every or None))


def restore(manager: ocp.CheckpointManager, state: TrainState) -> TrainState:
  """The last checkpoint, shaped and placed like `state`; `state` if none."""
  if manager.latest_step() is None:
    return state
  args: Any = ocp.args.StandardRestore(state)  # pyright: ignore
  restored: Any = manager.restore(manager.latest_step(), args=args)
  return restored


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
  pairs, validation = (
      batches_lib.load_pairs(names, vocabulary, max(config.buckets))
      for names in (config.train_data, config.validation_data))
  open_workdir(config, workdir)
  optimizer = make_optimizer(config)
  with open_checkpoints(config, workdir) as manager:
    state = restore(manager, init_state(config, optimizer))
    logging.info('%d pairs, %d for validation; steps %d to %d',
                 len(pairs), len(validation), state.step, config.steps)
    state = run_steps(config, workdir, manager, optimizer, state, pairs,
                      validation)
  checkpoint.save(
      workdir / 'model', state.params, config.architecture, vocabulary)


def run_steps(
    config: config_lib.TrainConfig,
    workdir: pathlib.Path,
    manager: ocp.CheckpointManager,
    optimizer: optax.GradientTransformation,
    state: TrainState,
    pairs: Sequence[batches_lib.Pair],
    validation: Sequence[batches_lib.Pair],
) -> TrainState:
  """The steps that `state` lacks, with their log lines and checkpoints."""
  first = int(state.step)
  metrics = workdir / 'metrics.jsonl'
  open_metrics(metrics, first)
  train_step = make_train_step(config, optimizer)
  evaluate = make_evaluate(config)
  stream = batches_lib.stream(
      first, pairs, config.buckets, config.batch_tokens, config.seed)
  losses, tokens, began = [], 0, time.monotonic()
  for done in tqdm.trange(
      first + 1, config.steps + 1, initial=first, total=config.steps,
      mininterval=5):
    batch = next(stream)
    state, loss = train_step(state, batch)
    losses.append(loss)
    tokens += int(np.sum(batch['targets'] != vocab.PAD_ID))
    last = done == config.steps
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
      records.append(metrics, [
          {'step': done, **evaluate(state.params, validation)}])
      began += time.monotonic() - paused
    if done % config.checkpoint_every == 0 or last:
      manager.save(done, args=ocp.args.StandardSave(state))  # pyright: ignore
  return state


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments {argv[1:]}')
  try:
    config = config_lib.resolve(flags.FLAGS.config, config_lib.TrainConfig)
    train(config, pathlib.Path(flags.FLAGS.workdir))
  except (ValueError, FloatingPointError) as error:
    sys.exit(f'error: {error}')


if __name__ == '__main__':
  config_flags.DEFINE_config_file('config', None, 'Training config.')
  flags.DEFINE_string('workdir', None, 'Folder to write.')
  flags.mark_flags_as_required(['config', 'workdir'])
  app.run(main)
