"""Losses, schedule, average and one step, as pure functions."""

import dataclasses

import jax
from jax import numpy as jnp
import ml_collections
import numpy as np
import pytest

from configs import ladder
from specdec_jax import batches
from specdec_jax import config as config_lib
from specdec_jax import t5
from specdec_jax import train_step
from tests import fixtures_text

BUCKET = 48


@pytest.fixture(scope='module', autouse=True)
def usual_dtype_promotion():
  """optax counts steps in int32 and multiplies them with floats."""
  with jax.numpy_dtype_promotion('standard'):
    yield


def settings(**changes) -> config_lib.TrainConfig:
  """The ladder's config with a tiny model and a short schedule."""
  config = ladder.get_config('small').unlock()
  config.model = ml_collections.ConfigDict(dict(
      d_model=16, d_ff=24, num_heads=2, head_dim=8, encoder_layers=1,
      decoder_layers=1, vocab_size=192, gated=True, tied=True))
  config.update(dict(
      steps=30, learning_rate=0.05, warmup_steps=4, decay_steps=6,
      buckets=(BUCKET,), batch_tokens=BUCKET * 16) | changes)
  return config_lib.resolve(config, config_lib.TrainConfig)


def test_schedule_warms_up_stays_and_ends_at_0():
  rate = train_step.schedule(settings())
  np.testing.assert_allclose(
      [jnp.asarray(rate(step)) for step in (0, 2, 4, 15, 24, 27, 30)],
      [0, 0.025, 0.05, 0.05, 0.05, 0.025, 0], atol=1e-8)


def test_schedule_without_warm_up_and_decay_is_constant():
  rate = train_step.schedule(settings(warmup_steps=0, decay_steps=0))
  np.testing.assert_allclose([jnp.asarray(rate(s)) for s in (0, 1, 30)], 0.05)


@pytest.fixture(scope='module')
def parts(vocabulary):
  """(config, weights, pairs) for the tests of single functions."""
  config = settings()
  pairs = [batches.Pair(*((*vocabulary.encode(text), 1) for text in pair))
           for pair in fixtures_text.sentence_pairs()[:20]]
  return config, t5.init_params(config.architecture, jax.random.key(0)), pairs


def test_evaluation_counts_every_pair_once(parts):
  config, params, pairs = parts
  assert len(pairs) % 16  # so the last batch repeats some
  everything = dataclasses.replace(config, batch_tokens=BUCKET * len(pairs))
  one, many = (
      train_step.make_evaluate(c)(params, pairs) for c in (everything, config))
  np.testing.assert_allclose(one['nll'], many['nll'], rtol=1e-5)
  np.testing.assert_allclose(one['accuracy'], many['accuracy'], rtol=1e-5)


def test_losses_of_pads_are_0_and_of_tokens_are_log_probabilities(parts):
  config, params, pairs = parts
  module = t5.T5(config.architecture)
  batch = batches.make(pairs, BUCKET, [0, 1])
  loss, nll, hits = jax.jit(
      lambda params, batch: train_step.token_losses(
          train_step.forward(module, params, batch), batch['targets'], 0.3))(
              params, batch)
  pads = batch['targets'] == 0
  assert not np.any(np.asarray(loss)[pads]) and not np.any(hits & pads)

  model = t5.bind(config.architecture)

  @jax.jit
  def log_probabilities(params, source, inputs):
    cache = model.start(params, source, BUCKET)
    return jax.nn.log_softmax(model.extend(params, inputs, cache)[0])
  log_p = np.asarray(
      log_probabilities(params, batch['source'], batch['inputs']))
  expected = -np.take_along_axis(log_p, batch['targets'][..., None], 2)[..., 0]
  np.testing.assert_allclose(nll, np.where(pads, 0, expected), rtol=1e-4,
                             atol=1e-5)
  # Smoothing: cross-entropy with 0.7 of the target and 0.3 of all ids alike.
  smoothed = 0.7 * expected - 0.3 * log_p.mean(axis=-1)
  np.testing.assert_allclose(loss, np.where(pads, 0, smoothed), rtol=1e-4,
                             atol=1e-5)


def test_the_average_moves_slowly_and_faster_at_the_start():
  average, params = {'w': jnp.zeros(2)}, {'w': jnp.ones(2)}
  for step, moved in ((0, 0.9), (8, 0.5), (10**6, 0.1)):
    found = train_step.update_average(
        0.9, jnp.int32(step), average, params)['w']
    np.testing.assert_allclose(found, moved, rtol=1e-5)


def test_what_is_used_is_the_average_where_there_is_one(parts):
  config, params, _ = parts
  optimizer = train_step.make_optimizer(config)
  off = train_step.init_state(config, optimizer, params)
  assert train_step.weights_to_use(off) is off.params
  on = train_step.init_state(
      dataclasses.replace(config, ema_decay=0.9), optimizer, params)
  assert train_step.weights_to_use(on) is on.average


def test_with_weight_1_the_loss_is_the_distance_to_the_teacher_alone(parts):
  config, params, pairs = parts
  config = dataclasses.replace(
      config, teacher='some', distill_weight=1.0, ema_decay=0.5,
      distill_loss='total_variation')
  optimizer = train_step.make_optimizer(config)
  # Its table is larger and it reads 170 ids only.
  architecture = dataclasses.replace(config.architecture, vocab_size=256)
  teacher = t5.bind(architecture, text_size=170)
  teacher_params = t5.init_params(architecture, jax.random.key(1))
  batch = batches.make(pairs, BUCKET, [0, 1, 2, 3])

  @jax.jit
  def law(params, source, inputs):
    model = t5.bind(config.architecture, text_size=170)
    cache = model.start(params, source, BUCKET)
    return jax.nn.softmax(model.extend(params, inputs, cache)[0])

  @jax.jit
  def taught(source, inputs):
    cache = teacher.start(teacher_params, source, BUCKET)
    return jax.nn.softmax(teacher.extend(teacher_params, inputs, cache)[0])
  p = taught(batch['source'], batch['inputs'])
  q = law(params, batch['source'], batch['inputs'])
  real = batch['targets'] != 0
  expected = (1 - np.minimum(p, q).sum(axis=-1))[real].mean()

  step = train_step.make_train_step(config, optimizer, teacher)
  state = train_step.init_state(
      config, optimizer, jax.tree.map(jnp.copy, params))
  losses = []
  for _ in range(20):
    state, loss = step(state, batch, teacher_params)
    losses.append(float(loss))
  np.testing.assert_allclose(losses[0], expected, rtol=1e-4)
  assert losses[-1] < losses[0] - 0.1
  assert int(state.step) == 20
  distance = jax.tree.map(
      lambda a, p: float(jnp.abs(a - p).max()), state.average, state.params)
  assert max(jax.tree.leaves(distance)) > 0
