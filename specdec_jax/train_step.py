"""One step of training and one evaluation, as pure functions.

Nothing here reads or writes a file. A step's dropout is a function of the seed
and the step number, and everything that a step changes is in `TrainState`.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
from typing import Any

import jax
from jax import numpy as jnp
import numpy as np
import optax

from specdec_jax import batches as batches_lib
from specdec_jax import config as config_lib
from specdec_jax import distill
from specdec_jax import t5
from specdec_jax import vocab


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
  """What a checkpoint holds."""
  step: Any  # int32 scalar: how many steps have been taken
  params: Any
  opt_state: Any
  average: Any  # of the weights over the steps; () where `ema_decay` is 0


def forward(module: t5.T5, params, batch, rngs=None):
  """Logits (b, t, v) of every target position, given the ones before."""
  def logits_of(module):
    cache = module.start(batch['source'], batch['inputs'].shape[1])
    return module.extend(batch['inputs'], cache)[0]
  logits: Any = module.apply(
      {'params': params}, rngs=rngs or {}, method=logits_of)
  return logits


def token_losses(logits, targets, label_smoothing):
  """Returns (smoothed loss, log-probability loss, hits), (b, t); pads are 0."""
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
    config: config_lib.TrainConfig, optimizer: optax.GradientTransformation,
    params: t5.Params
) -> TrainState:
  average = jax.tree.map(jnp.copy, params) if config.ema_decay else ()
  return TrainState(
      jnp.zeros((), jnp.int32), params, optimizer.init(params), average)


def update_average(decay: float, step, average, params):
  """Moves the average towards `params`; the first steps count for more.

  The decay of step t is at most (1 + t) / (10 + t), so that the average is not
  held up by the weights of the start.
  """
  t = step.astype(jnp.float32)
  kept = jnp.minimum(decay, (1 + t) / (10 + t))
  return jax.tree.map(lambda a, p: a + (1 - kept) * (p - a), average, params)


def weights_to_use(state: TrainState) -> t5.Params:
  """The weights to evaluate and to save: the average, where there is one."""
  return state.average or state.params


def make_train_step(
    config: config_lib.TrainConfig, optimizer: optax.GradientTransformation,
    teacher: t5.Model | None = None
) -> Callable:
  """Returns the jitted step (state, batch, teacher's weights) -> (state, loss).

  The loss is a mean over tokens. The teacher reads without dropout; only ids
  that have text count in its loss.
  """
  module = t5.T5(config.architecture, dropout_rate=config.dropout_rate)

  def token_loss(params, batch, key, taught):
    logits = forward(module, params, batch, {'dropout': key})
    loss, _, _ = token_losses(logits, batch['targets'], config.label_smoothing)
    if taught is None:
      return loss
    far = distill.loss(config.distill_loss, config.distill_temperature, taught,
                       logits[..., :taught.shape[-1]])
    far = jnp.where(batch['targets'] != vocab.PAD_ID, far, 0.0)
    return (1 - config.distill_weight) * loss + config.distill_weight * far

  @functools.partial(jax.jit, donate_argnums=0)
  def step(state: TrainState, batch, teacher_params: Any = None):
    key = jax.random.fold_in(jax.random.key(config.seed), state.step)
    taught = None
    if teacher is not None:
      cache = teacher.start(
          teacher_params, batch['source'], batch['inputs'].shape[1])
      taught, _ = teacher.extend(teacher_params, batch['inputs'], cache)

    def loss_fn(params):
      real = batch['targets'] != vocab.PAD_ID
      return (jnp.sum(token_loss(params, batch, key, taught))
              / jnp.sum(real, dtype=jnp.float32))

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    average = state.average and update_average(
        config.ema_decay, state.step, state.average, params)
    return TrainState(state.step + 1, params, opt_state, average), loss
  return step


def make_evaluate(config: config_lib.TrainConfig) -> Callable:
  """Returns evaluate(params, pairs) -> {'nll', 'accuracy'} per target token."""
  module = t5.T5(config.architecture)

  @jax.jit
  def losses(params, batch):
    return token_losses(forward(module, params, batch), batch['targets'], 0.0)

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
