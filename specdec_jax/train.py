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

from collections.abc import Iterator, Sequence
import dataclasses
import functools
import json
import pathlib
import time
from typing import Any

from absl import app
from absl import flags
from absl import logging
import jax
from jax import numpy as jnp
import ml_collections
from ml_collections import config_flags
import numpy as np
import optax
import orbax.checkpoint as ocp
import tqdm

from specdec_jax import checkpoint
from specdec_jax import examples
from specdec_jax import t5
from specdec_jax import vocab


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
  step: jax.Array
  params: Any
  opt_state: Any


@dataclasses.dataclass(frozen=True)
class Pair:
  """Ids of one training pair, EOS included on both sides."""
  source: Sequence[int]
  target: Sequence[int]


def load_pairs(
    names: Sequence[str], vocabulary: vocab.Vocabulary, limit: int
) -> list[Pair]:
  """Encodes data sets; pairs with a side of over `limit` ids are left out."""
  pairs = []
  for name in names:
    for example in examples.load(name):
      if example.reference is None:
        raise examples.DataError(f'data {name}: training needs references')
      sides = [(*vocabulary.encode(text), vocab.EOS_ID)
               for text in (example.source, example.reference)]
      if max(map(len, sides)) <= limit:
        pairs.append(Pair(*sides))
  return pairs


def batch_plan(
    sizes: Sequence[int], buckets: Sequence[int], batch_tokens: int,
    key: tuple[int, ...]
) -> list[tuple[int, list[int]]]:
  """One epoch: (bucket, indices) batches of about `batch_tokens` positions.

  A pure function of its arguments: `key` (seed, epoch) gives the order. Batches
  of a bucket all have the same shape; the last, incomplete one is filled up
  with pairs of its own bucket.

  Example: sizes (3, 9, 4), buckets (4, 16), 8 tokens a batch: two pairs of
  bucket 4 in one batch, the pair of bucket 16 in a batch of one row.
  """
  generator = np.random.default_rng(key)
  of_bucket: dict[int, list[int]] = {size: [] for size in buckets}
  for i in generator.permutation(len(sizes)):
    of_bucket[vocab.bucket(sizes[i], buckets)].append(int(i))
  batches = []
  for size, indices in of_bucket.items():
    rows = max(1, batch_tokens // size)
    for start in range(0, len(indices), rows):
      chunk = indices[start:start + rows]
      fill = [indices[i % len(indices)] for i in range(rows - len(chunk))]
      batches.append((size, chunk + fill))
  order = generator.permutation(len(batches))
  return [batches[i] for i in order]


def make_batch(
    pairs: Sequence[Pair], bucket: int, indices: Sequence[int]
) -> dict[str, np.ndarray]:
  """Arrays (rows, bucket): `source`, decoder `inputs` (from 0) and `targets`."""
  targets = [pairs[i].target for i in indices]
  return {
      'source': vocab.pad([pairs[i].source for i in indices], bucket),
      'inputs': vocab.pad([(vocab.START_ID, *t[:-1]) for t in targets], bucket),
      'targets': vocab.pad(targets, bucket),
  }


def batches_from(
    step: int, pairs: Sequence[Pair], config: ml_collections.ConfigDict
) -> Iterator[dict[str, np.ndarray]]:
  """Yields the batches from `step` on, for ever."""
  sizes = [max(len(p.source), len(p.target)) for p in pairs]
  epoch, skipped = 0, 0
  while True:
    plan = batch_plan(
        sizes, config.buckets, config.batch_tokens, (config.seed, epoch))
    for bucket, indices in plan[max(0, step - skipped):]:
      yield make_batch(pairs, bucket, indices)
    epoch, skipped = epoch + 1, skipped + len(plan)


def token_losses(module, params, batch, label_smoothing, rngs=None):
  """Returns (smoothed loss, log-probability loss, hits), (b, t); pads are 0."""
  variables = {'params': params}
  slots = batch['inputs'].shape[1]

  def run(module):
    cache = module.start(batch['source'], slots)
    return module.extend(batch['inputs'], cache)[0]
  logits = module.apply(variables, rngs=rngs or {}, method=run)
  targets = batch['targets']
  real = targets != vocab.PAD_ID
  nll = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
  uniform = jax.nn.logsumexp(logits, axis=-1) - jnp.mean(logits, axis=-1)
  loss = (1 - label_smoothing) * nll + label_smoothing * uniform
  hits = (jnp.argmax(logits, axis=-1) == targets)
  return loss * real, nll * real, hits * real


def schedule(config: ml_collections.ConfigDict) -> optax.Schedule:
  """Linear warm-up, constant, linear decay to 0 over the last steps."""
  stable = config.steps - config.warmup_steps - config.decay_steps
  if min(config.warmup_steps, config.decay_steps, stable) < 0:
    raise ValueError(
        f'steps {config.steps}: allowed are warmup_steps + decay_steps = '
        f'{config.warmup_steps + config.decay_steps} and above')
  return optax.join_schedules(
      [optax.linear_schedule(0.0, config.learning_rate, config.warmup_steps),
       optax.constant_schedule(config.learning_rate),
       optax.linear_schedule(config.learning_rate, 0.0, config.decay_steps)],
      [config.warmup_steps, config.warmup_steps + stable])


def make_optimizer(config) -> optax.GradientTransformation:
  """Adam whose steps are relative to each parameter's size.

  T5's embedding has unit variance and its query kernels a hundredth of that;
  Adafactor, with which T5 was trained, scales its steps the same way.
  """
  return optax.chain(
      optax.clip_by_global_norm(config.clip_norm),
      optax.scale_by_adam(b1=0.9, b2=config.adam_b2),
      optax.scale_by_param_block_rms(config.min_param_rms),
      optax.scale_by_learning_rate(schedule(config)))


def make_train_step(module, optimizer, config):
  """Returns the jitted step (state, batch) -> (state, loss per token)."""
  @functools.partial(jax.jit, donate_argnums=0)
  def step(state: TrainState, batch):
    key = jax.random.fold_in(jax.random.key(config.seed), state.step)

    def loss_fn(params):
      loss, _, _ = token_losses(
          module, params, batch, config.label_smoothing, {'dropout': key})
      return jnp.sum(loss) / jnp.sum(batch['targets'] != vocab.PAD_ID)
    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    return TrainState(state.step + 1, params, opt_state), loss
  return step


def make_evaluate(model_config, config):
  """Returns evaluate(params, pairs) -> {'nll', 'accuracy'} per target token."""
  module = t5.T5(model_config)
  losses = jax.jit(functools.partial(token_losses, module, label_smoothing=0.0))

  def evaluate(params, pairs):
    sizes = [max(len(p.source), len(p.target)) for p in pairs]
    nll = hits = tokens = 0.0
    for size, indices in batch_plan(
        sizes, config.buckets, config.batch_tokens, (0, 0)):
      batch = make_batch(pairs, size, indices)
      _, batch_nll, batch_hits = losses(params, batch)
      nll += float(jnp.sum(batch_nll))
      hits += float(jnp.sum(batch_hits))
      tokens += int(np.sum(batch['targets'] != vocab.PAD_ID))
    return {'nll': nll / tokens, 'accuracy': hits / tokens}
  return evaluate


class Metrics:
  """`metrics.jsonl`; lines past the restored step are dropped on resume."""

  def __init__(self, path: pathlib.Path, step: int):
    old = path.read_text().splitlines() if path.exists() else []
    kept = [line for line in old if json.loads(line)['step'] <= step]
    path.write_text(''.join(line + '\n' for line in kept))
    self._path = path

  def write(self, **values):
    with self._path.open('a') as out:
      out.write(json.dumps(values) + '\n')


def train(config: ml_collections.ConfigDict, workdir: pathlib.Path) -> None:
  """Trains `config.model` and writes `workdir/model`."""
  vocabulary = vocab.Vocabulary(pathlib.Path(config.vocabulary))
  model_config = t5.T5Config(**config.model)
  pairs = load_pairs(config.train_data, vocabulary, max(config.buckets))
  validation = load_pairs(
      config.validation_data, vocabulary, max(config.buckets))
  workdir.mkdir(parents=True, exist_ok=True)
  (workdir / 'config.json').write_text(config.to_json_best_effort(indent=2))
  logging.info('%d training pairs, %d validation pairs, %d parameters',
               len(pairs), len(validation), t5.count_params(model_config))

  optimizer = make_optimizer(config)
  params = t5.init_params(model_config, jax.random.key(config.seed))
  state = TrainState(
      jnp.zeros((), jnp.int32), params, optimizer.init(params))
  options = ocp.CheckpointManagerOptions(
      max_to_keep=2, keep_period=config.keep_period)
  manager = ocp.CheckpointManager(
      (workdir / 'checkpoints').absolute(), options=options)
  if manager.latest_step() is not None:
    state = manager.restore(
        manager.latest_step(), args=ocp.args.StandardRestore(state))
  first = int(state.step)
  logging.info('from step %d to %d', first, config.steps)

  train_step = make_train_step(
      t5.T5(model_config, dropout_rate=config.dropout_rate), optimizer, config)
  evaluate = make_evaluate(model_config, config)
  metrics = Metrics(workdir / 'metrics.jsonl', first)
  batches = batches_from(first, pairs, config)
  losses, began, tokens = [], time.monotonic(), 0
  for step in tqdm.trange(first, config.steps, initial=first,
                          total=config.steps, mininterval=5):
    batch = next(batches)
    state, loss = train_step(state, batch)
    losses.append(loss)
    tokens += int(np.sum(batch['targets'] != vocab.PAD_ID))
    done = step + 1
    if done % config.log_every == 0:
      mean = float(np.mean(jax.device_get(losses)))
      seconds = time.monotonic() - began
      metrics.write(step=done, loss=mean, tokens_per_second=tokens / seconds)
      losses, began, tokens = [], time.monotonic(), 0
    if done % config.eval_every == 0 or done == config.steps:
      metrics.write(step=done, **evaluate(state.params, validation))
      began, tokens = time.monotonic(), 0
    if done % config.checkpoint_every == 0 or done == config.steps:
      manager.save(done, args=ocp.args.StandardSave(state))
  manager.wait_until_finished()
  checkpoint.save(workdir / 'model', state.params, model_config, vocabulary)


_CONFIG = config_flags.DEFINE_config_file('config', None, 'Training config.')
_WORKDIR = flags.DEFINE_string('workdir', None, 'Folder to write.')


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments {argv[1:]}')
  train(_CONFIG.value, pathlib.Path(_WORKDIR.value))


if __name__ == '__main__':
  flags.mark_flags_as_required(['config', 'workdir'])
  app.run(main)
