"""Drafters that propose from a law: exact with any q that was really drawn."""

import functools

import jax
from jax import numpy as jnp
import numpy as np
import pytest

from specdec_jax import draft
from specdec_jax import sampling
from tests import scripted

FREQUENCY = 0.015  # over 20,000 keys: more than four standard errors
KEYS = 20_000
# Token 1 is EOS and 0 is pad: laws over four tokens begin at 2.
UNIFORM = scripted.fixed_law([0, 0, 0.25, 0.25, 0.25, 0.25])


@functools.cache
def constant(token: int, size: int = 6) -> draft.Drafter:
  """Proposes one token for certain, whatever the temperature."""
  return draft.proposer(lambda params, state, prefix, sampling, uniform_b:
                        draft.certain(jnp.full_like(prefix.length, token),
                                      size))


@functools.cache
def own_filter(law: tuple[float, ...], top_k: int) -> draft.Drafter:
  """Draws from its own law with a top-k that the target does not have."""
  own = sampling.make(1.0, top_k)

  def propose(params, state, prefix, sampling_, uniform_b):
    logits_bv = jnp.broadcast_to(
        jnp.log(jnp.asarray(law)), (*prefix.length.shape, len(law)))
    return draft.draw(logits_bv, own, uniform_b)
  return draft.proposer(propose)


def sample(target, drafter, gamma, budget):
  return scripted.run(target, drafter, gamma, budget, rows=[2] * KEYS,
                      temperature=1.0)


def frequencies(decoded, place, size=6):
  return np.bincount(decoded.tokens[:, place], minlength=size) / KEYS


def first_rate(decoded):
  """Accepted over drafted at the first place of each row's first round."""
  return np.mean(decoded.log.accepted[:, 0] > 0)


@pytest.mark.parametrize('gamma', [1, 3])
def test_a_certain_draft_is_kept_as_often_as_the_target_would_give_it(gamma):
  decoded = sample(UNIFORM, constant(2), gamma, 4)
  for place in range(4):
    np.testing.assert_allclose(
        frequencies(decoded, place), [0, 0, 0.25, 0.25, 0.25, 0.25],
        atol=FREQUENCY)
  assert abs(first_rate(decoded) - 0.25) < FREQUENCY


@pytest.mark.parametrize('gamma', [1, 3])
def test_q_in_the_ratio_is_the_law_that_was_drawn_from(gamma):
  p = [0.1, 0.2, 0.3, 0.4]
  decoded = sample(scripted.fixed_law([0, 0, *p]),
                   own_filter((0, 0, 0.4, 0.3, 0.2, 0.1), 2), gamma, 4)
  for place in range(4):
    np.testing.assert_allclose(
        frequencies(decoded, place), [0, 0, *p], atol=FREQUENCY)
  assert abs(first_rate(decoded) - 0.30) < FREQUENCY


def test_a_greedy_draft_at_temperature_one_has_a_one_hot_q():
  p = [0.1, 0.2, 0.3, 0.4]
  decoded = sample(scripted.fixed_law([0, 0, *p]),
                   own_filter((0, 0, 0.4, 0.3, 0.2, 0.1), 1), 2, 3)
  np.testing.assert_allclose(
      frequencies(decoded, 0), [0, 0, *p], atol=FREQUENCY)
  assert abs(first_rate(decoded) - 0.10) < FREQUENCY


def test_greedy_rejects_a_proposal_that_sampling_would_keep():
  target = scripted.fixed_law([0.0, 0.0, 0.30, 0.50, 0.10, 0.10])
  for drafter in (constant(2), constant(4)):
    decoded = scripted.run(target, drafter, 3, 4)
    assert scripted.outputs(decoded) == [[3] * 4]
    assert sum(scripted.counts(decoded, 'accepted')) == 0


def test_each_proposal_sees_the_ones_before_it_and_only_steps_are_made():
  @draft.proposer
  def next_one(params, state, prefix, sampling_, uniform_b):
    last_b1 = jnp.take_along_axis(
        prefix.tokens, prefix.length[:, None] - 1, axis=1)
    return draft.certain(last_b1[:, 0] + 1, 12)
  tokens = jnp.zeros((2, 10), jnp.int32).at[1, 1:4].set(
      jnp.asarray([5, 6, 7]))
  drafted = jax.jit(next_one.draft, static_argnums=3)(
      None, None, draft.Prefix(tokens, jnp.asarray([1, 4])), 4, jnp.asarray(3),
      sampling.make(0.0), jnp.zeros((2, 4)))
  assert drafted.tokens.tolist() == [[1, 2, 3, 0], [8, 9, 10, 0]]
  assert drafted.q[:, 3].sum() == 0 and bool(jnp.all(drafted.finite))
