"""alpha's terms and costs, on models whose values are known."""

import time

import jax
from jax import numpy as jnp
import numpy as np

from specdec_jax import copying
from specdec_jax import draft as draft_lib
from specdec_jax import generate
from specdec_jax import measure
from specdec_jax import sampling
from tests import scripted
from tests import tiny

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


def test_q_of_a_model_is_that_of_one_pass_over_the_text():
  one = tiny.loaded(tiny.DRAFTS['small'], 1)
  model = generate.bind(one, 148)
  text = jnp.asarray([[0, 8, 9, 10, 11], [0, 20, 9, 9, 30]])
  source = jnp.asarray([[5, 6, 7, 1], [8, 1, 0, 0]])
  law = sampling.make(0.7)
  found = measure.forced_laws(
      draft_lib.model_drafter(model.start, model.extend), one.packed, source,
      text, law)
  logits, _ = model.extend(
      one.packed, text[:, :-1], model.start(one.packed, source, 4))
  np.testing.assert_allclose(found, sampling.law(logits, law), atol=1e-5)


def test_beta_of_a_copying_draft_is_the_targets_p_of_what_it_proposes():
  law = [0, 0.1, 0.2, 0.3, 0.4]
  source = jnp.asarray([[3, 4, 2, 1]])
  found = measure.betas(
      side(scripted.fixed_law(law)),
      measure.DraftSide(copying.copy(5), None), source,
      jnp.asarray([[3, 4, 4, 2]]), sampling.make(1.0))
  # It proposes 3 (first), 4 behind 3, 2 behind 4, 2 behind 4.
  np.testing.assert_allclose(found, [[0.3, 0.4, 0.2, 0.2]], atol=1e-6)


def test_lenient_beta_is_what_lenient_decoding_keeps():
  p, q = [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]
  for temperature, lenience, expected in (
      (1.0, 0.5, 0.8), (0.0, 0.5, 0.0), (0.0, 0.2, 1.0)):
    found = measure.betas(
        side(scripted.fixed_law(p)), draft(scripted.fixed_law(q)), SOURCE,
        jnp.asarray([[2, 3, 1]]), sampling.make(temperature), lenience)
    np.testing.assert_allclose(found, np.full((1, 3), expected), atol=1e-6)


def test_a_draft_without_a_model_has_a_cost_too():
  costs = measure.costs(
      side(scripted.noisy(0, 12)),
      measure.DraftSide(copying.lookup(12), None), SOURCE, 16, [2, 5],
      sampling.make(1.0))
  assert costs.draft_step > 0 and costs.c > 0


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
