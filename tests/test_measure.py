"""alpha's terms and costs, on models whose values are known."""

import time

import jax
from jax import numpy as jnp
import numpy as np

from specdec_jax import measure
from specdec_jax import sampling
from tests import scripted

SOURCE = jnp.zeros((1, 1), jnp.int32)


def side(script) -> measure.Side:
  return measure.Side(scripted.model(script), None)


def draft(script) -> measure.DraftSide:
  return measure.DraftSide(scripted.drafter_of(script), None)


def test_beta_is_the_overlap_of_the_adjusted_laws():
  p, q = [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]
  output = jnp.asarray([[2, 3, 1]])
  models = side(scripted.fixed_law(p)), draft(scripted.fixed_law(q))
  for temperature, expected in ((1.0, 0.6), (0.0, 0.0)):
    found = measure.betas(
        *models, SOURCE, output, sampling.make(temperature))
    np.testing.assert_allclose(found, np.full((1, 3), expected), atol=1e-6)


def test_beta_of_each_token_is_taken_behind_the_tokens_before_it():
  # The draft agrees behind an even number of tokens only.
  target = side(scripted.path([2, 3, 4, 5]))
  other = draft(scripted.path([2, 9, 4, 9]))
  found = measure.betas(target, other, SOURCE,
                        jnp.asarray([[2, 3, 4, 5]]), sampling.make(0.0))
  np.testing.assert_array_equal(found, [[1, 0, 1, 0]])


def sleepy(seconds: float):
  """A model whose every call takes at least `seconds`."""
  def wait(x):
    time.sleep(seconds)
    return x

  def script(history, count, row):
    # It depends on the step, so that no call is hoisted out of the loop.
    logits = jnp.zeros(4) + count.astype(jnp.float32)
    return jax.pure_callback(
        wait, jax.ShapeDtypeStruct((4,), jnp.float32), logits,
        vmap_method='expand_dims')
  return script


def test_the_timer_waits_for_the_device(monkeypatch):
  monkeypatch.setattr(measure, 'STEPS', 3)
  monkeypatch.setattr(measure, 'ROUNDS', 1)
  costs = measure.costs(
      side(sleepy(0.06)), draft(sleepy(0.02)), SOURCE, 16, [2],
      sampling.make(0.0))
  assert costs.target_step >= 0.06 and costs.draft_step >= 0.02
  assert 0.1 < costs.c < 0.9
  assert costs.verify_ratio(2) > 0.5
