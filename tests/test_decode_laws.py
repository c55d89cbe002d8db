"""The law of sampled output, by counts over 20,000 keys in one call."""

import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax import accept
from tests import scripted

FREQUENCY = 0.015  # over 20,000 keys: more than four standard errors
KEYS = 20_000


def frequencies(decoded, place=0, size=4):
  return np.bincount(decoded.tokens[:, place], minlength=size) / KEYS


def sample(target, draft, gamma, budget, **options):
  return scripted.run(target, draft, gamma, budget, rows=[2] * KEYS,
                      temperature=1.0, **options)


def rate(decoded):
  return decoded.log.accepted.sum() / decoded.log.drafted.sum()


def test_a_certain_draft_against_a_uniform_target():
  draft = scripted.path([0], 4)
  decoded = sample(scripted.fixed_law(np.ones(4) / 4), draft, 1, 2)
  np.testing.assert_allclose(
      frequencies(decoded), np.ones(4) / 4, atol=FREQUENCY)
  first = decoded.log.accepted[:, 0].sum() / decoded.log.drafted[:, 0].sum()
  assert abs(first - 0.25) < FREQUENCY


@pytest.mark.parametrize('gamma', [1, 4])
def test_draft_acceptance_and_correction_use_separate_randomness(gamma):
  p = [0.2, 0.4, 0.4]
  # Token 1 is EOS, so the vocabulary is shifted by two.
  shifted = scripted.fixed_law([0, 0, *p])
  draft = scripted.fixed_law([0, 0, 0.6, 0.3, 0.1])
  decoded = sample(shifted, draft, gamma, 5)
  for place in range(5):
    np.testing.assert_allclose(
        frequencies(decoded, place, 5), [0, 0, *p], atol=FREQUENCY)


def test_a_filter_is_applied_to_both_models():
  law = [0, 0, 0.5, 0.3, 0.15, 0.05]
  decoded = sample(scripted.fixed_law(law),
                   scripted.fixed_law([0, 0, 0.25, 0.25, 0.25, 0.25]), 3, 4,
                   top_p=0.9)
  for place in range(4):
    found = frequencies(decoded, place, 6)
    np.testing.assert_allclose(
        found, [0, 0, 0.526, 0.316, 0.158, 0], atol=FREQUENCY)
    assert found[5] == 0


def test_equal_models_accept_everything():
  law = scripted.fixed_law([0, 0, *np.ones(8) / 8])
  decoded = sample(law, law, 4, 10)
  assert rate(decoded) > 0.999
  assert np.all(decoded.length == 10)


@pytest.mark.parametrize('gamma', [1, 2, 5])
def test_sampled_tokens_that_depend_on_their_history_follow_the_target(gamma):
  def law(seed):
    table = np.random.default_rng(seed).dirichlet(np.ones(3), size=(5, 5))
    logits = jnp.log(jnp.asarray(
        np.pad(table, ((0, 0), (0, 0), (2, 0))) + 1e-30, jnp.float32))
    def script(history, count, row):
      before = history[jnp.maximum(count - 2, 0)]
      return logits[before, history[count - 1]]
    return script, table
  (target, p), (draft, _) = law(0), law(1)
  decoded = sample(target, draft, gamma, 3)
  expected = np.zeros((3, 3, 3))
  for a, b, c in np.ndindex(3, 3, 3):
    expected[a, b, c] = (p[0, 0, a] * p[0, a + 2, b] * p[a + 2, b + 2, c])
  found = np.zeros_like(expected)
  for a, b, c in decoded.tokens[:, :3] - 2:
    found[a, b, c] += 1 / KEYS
  np.testing.assert_allclose(found, expected, atol=FREQUENCY)


def test_acceptance_rate_is_sum_of_minimum():
  p, q = [0, 0, 0.1, 0.2, 0.3, 0.4], [0, 0, 0.4, 0.3, 0.2, 0.1]
  decoded = sample(scripted.fixed_law(p), scripted.fixed_law(q), 1, 2)
  beta = float(accept.beta(jnp.asarray(p), jnp.asarray(q)))
  assert abs(rate(decoded) - beta) < FREQUENCY


def test_top_k_on_the_draft_changes_q_in_the_ratio_too():
  # The draft proposes only what top-k leaves it, and the ratio knows it.
  q = scripted.fixed_law([0, 0, 0.4, 0.3, 0.2, 0.1])
  p = scripted.fixed_law([0, 0, 0.1, 0.2, 0.3, 0.4])
  decoded = sample(p, q, 2, 3, top_k=2)
  np.testing.assert_allclose(
      frequencies(decoded, 0, 6), [0, 0, 0, 0, 3 / 7, 4 / 7], atol=FREQUENCY)


# Lenience: lossy on purpose, and by as much as the formulas say.


def test_lenient_sampling_follows_the_lenient_law():
  p, q = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.6, 0.3, 0.1, 0.0])
  decoded = sample(scripted.fixed_law([0, 0, *p]),
                   scripted.fixed_law([0, 0, *q]), 2, 3, lenience=0.5)
  kept = np.minimum(p / 0.5, q)
  other = (1 - kept.sum()) * np.maximum(p - q, 0) / np.maximum(p - q, 0).sum()
  np.testing.assert_allclose(
      frequencies(decoded, 0, 6), [0, 0, *(kept + other)], atol=FREQUENCY)
  first = np.mean(decoded.log.accepted[:, 0] > 0)
  assert abs(first - kept.sum()) < FREQUENCY


def lenient_greedy(target, draft, gamma, budget, lenience, row):
  """The rule at temperature 0, one token after the other."""
  out: list[int] = []

  def logits(script):
    history = np.zeros(64, np.int32)
    history[1:len(out) + 1] = out
    return np.asarray(script(
        jnp.asarray(history), jnp.asarray(len(out) + 1), jnp.asarray(row)))
  while len(out) < budget and 1 not in out:
    for _ in range(min(gamma, budget - len(out) - 1)):
      law = np.exp(logits(target) - logits(target).max())
      token = int(logits(draft).argmax())
      kept = law[token] >= lenience
      out.append(token if kept else int(law.argmax()))
      if not kept or token == 1:
        break
    else:
      out.append(int(logits(target).argmax()))
  return out


@pytest.mark.parametrize('lenience', [0.5, 0.1])
def test_lenience_at_temperature_zero_keeps_what_is_near_the_largest(lenience):
  target, draft = (scripted.noisy(seed, 12, 1.0) for seed in (0, 2))
  decoded = scripted.run(
      target, draft, 3, [9, 8, 6], rows=(3, 4, 5), lenience=lenience)
  expected = [lenient_greedy(target, draft, 3, budget, lenience, row)
              for budget, row in ((9, 3), (8, 4), (6, 5))]
  assert scripted.outputs(decoded) == expected
  exact = scripted.run(target, draft, 3, [9, 8, 6], rows=(3, 4, 5))
  assert scripted.outputs(exact) != expected


def test_the_last_token_of_a_budget_is_the_targets_own_with_lenience_too():
  # Row 1 needs drafts, so they are made for row 0 as well, and not counted.
  target = scripted.fixed_law([0, 0, 0.5, 0.45, 0.05])
  decoded = scripted.run(target, scripted.path([3], 5), 2, [1, 6],
                         rows=(0, 1), lenience=0.5)
  assert scripted.outputs(decoded) == [[2], [3, 3, 2, 3, 3, 2]]
