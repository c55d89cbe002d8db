"""The law of Algorithm 1, by enumeration and by counts.

For small vocabularies every draft is enumerated and the coins are integrated:
the output law of a round must be the target's to 1e-12.
"""

import itertools

import jax
from jax import numpy as jnp
import numpy as np
import pytest

from specdec_jax import accept

EXACT = 1e-12
FREQUENCY = 0.015  # over 20,000 draws: more than four standard errors
LENIENCES = [0.9, 0.5, 0.1]
KINDS = ['random', 'equal', 'zeros', 'ties', 'one-hot', 'disjoint',
         'greedy draft']


def laws(kind: str, v: int, seed: int):
  """Functions prefix -> law for a target and a draft, float64."""
  def law_of(who):
    def law(prefix):
      rng = np.random.default_rng([seed, who, *[t + 1 for t in prefix]])
      x = rng.dirichlet(np.ones(v))
      if kind == 'equal':
        x = np.random.default_rng(
            [seed, *[t + 1 for t in prefix]]).dirichlet(np.ones(v))
      elif kind == 'zeros':
        x[rng.integers(v)] = 0
      elif kind == 'ties':
        x = np.ones(v)
        x[rng.integers(v)] = 2
      elif kind == 'one-hot':
        x = np.eye(v)[rng.integers(v)]
      elif kind == 'disjoint':
        x = x * (np.arange(v) % 2 == who)
      elif kind == 'greedy draft' and who:
        x = np.eye(v)[rng.integers(v)]
      return x / x.sum()
    return law
  return law_of(0), law_of(1)


def round_law(
    p, q, v: int, gamma: int, lenience: float = 1.0
) -> dict[tuple[int, ...], float]:
  """Law of a round's tokens, with `accept`'s own functions in float64."""
  out: dict[tuple[int, ...], float] = {}
  for draft in itertools.product(range(v), repeat=gamma):
    prefixes = [draft[:i] for i in range(gamma + 1)]
    p_bpv = np.stack([p(x) for x in prefixes])[None]
    q_bgv = np.stack([q(x) for x in prefixes[:-1]])[None]
    made = np.prod([q_bgv[0, i, x] for i, x in enumerate(draft)])
    if not made:
      continue
    keep = np.asarray(accept.keep_probability(
        jnp.asarray(p_bpv), jnp.asarray(q_bgv), jnp.asarray([draft]),
        lenience))[0]
    reached = made
    for i in range(gamma + 1):
      last = i == gamma
      q_here = np.zeros((1, v)) if last else q_bgv[:, i]
      after = np.asarray(accept.residual(
          jnp.asarray(p_bpv[:, i]), jnp.asarray(q_here)))[0]
      stops = reached * (1 if last else 1 - keep[i])
      for token in range(v):
        key = (*draft[:i], token)
        out[key] = out.get(key, 0) + stops * after[token]
      if not last:
        reached *= keep[i]
  return out


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize(('v', 'gamma'), [(2, 3), (3, 2), (4, 1), (4, 2)])
def test_a_round_followed_by_the_target_has_the_targets_law(kind, v, gamma):
  with jax.enable_x64(True):
    for seed in range(3):
      p, q = laws(kind, v, seed)
      emitted = round_law(p, q, v, gamma)
      # A round ends early or late; the target goes on from there.
      for text in itertools.product(range(v), repeat=gamma + 1):
        expected = np.prod([p(text[:i])[t] for i, t in enumerate(text)])
        got = sum(
            emitted.get(text[:n], 0) * np.prod(
                [p(text[:i])[text[i]] for i in range(n, gamma + 1)])
            for n in range(1, gamma + 2))
        assert abs(got - expected) < EXACT


def lenient_parts(p, q, lenience):
  """Of one position, from the formulas: what is kept, and what comes else."""
  kept = np.minimum(p / lenience, q)
  left = np.maximum(p - q, 0)
  rejected = 1 - kept.sum()
  if rejected < EXACT:
    return kept, np.zeros_like(p)
  return kept, rejected * left / left.sum()


@pytest.mark.parametrize('lenience', LENIENCES)
@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize(('v', 'gamma'), [(2, 3), (3, 2), (4, 2)])
def test_a_lenient_round_has_the_law_of_the_formulas(kind, v, gamma, lenience):
  with jax.enable_x64(True):
    for seed in range(3):
      p, q = laws(kind, v, seed)
      emitted = round_law(p, q, v, gamma, lenience)
      expected: dict[tuple[int, ...], float] = {}
      reached = {(): 1.0}  # drafts that were all kept
      for _ in range(gamma):
        longer = {}
        for prefix, mass in reached.items():
          kept, other = lenient_parts(p(prefix), q(prefix), lenience)
          for token in range(v):
            key = (*prefix, token)
            longer[key] = mass * kept[token]
            expected[key] = mass * other[token]
        reached = longer
      for prefix, mass in reached.items():
        for token in range(v):
          expected[(*prefix, token)] = mass * p(prefix)[token]
      for key, probability in expected.items():
        assert abs(emitted.get(key, 0) - probability) < EXACT


@pytest.mark.parametrize('lenience', LENIENCES)
@pytest.mark.parametrize('kind', KINDS)
def test_no_token_is_likelier_than_lenience_allows(kind, lenience):
  for seed in range(20):
    p, q = (law(()) for law in laws(kind, 4, seed))
    kept, other = lenient_parts(p, q, lenience)
    law = kept + other
    assert abs(law.sum() - 1) < EXACT
    assert np.all(law <= p / lenience + EXACT)
    assert np.all(law[p >= q] <= p[p >= q] + EXACT)
    # Nothing that the residual adds moves the law further from p.
    assert abs(np.maximum(law - p, 0).sum()
               - np.maximum(kept - p, 0).sum()) < EXACT


@pytest.mark.parametrize('lenience', LENIENCES)
def test_lenient_acceptance_is_the_sum_of_the_smaller_of_p_over_l_and_q(
    lenience):
  p, q = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.6, 0.3, 0.1, 0.0])
  keep = np.array([float(accept.keep_probability(
      jnp.asarray([[p, p]], jnp.float32), jnp.asarray([[q]], jnp.float32),
      jnp.asarray([[x]]), lenience)[0, 0]) for x in range(4)])
  np.testing.assert_allclose(
      accept.beta(jnp.asarray(p, jnp.float32), jnp.asarray(q, jnp.float32),
                  lenience), q @ keep, atol=1e-6)
  np.testing.assert_allclose(
      q @ keep, np.minimum(p / lenience, q).sum(), atol=1e-6)


def test_worked_example_of_near_argmax():
  logits = jnp.log(jnp.asarray([[0.5, 0.3, 0.2]] * 3))
  near = accept.near_argmax(logits, jnp.asarray([0, 1, 2]), 0.5)
  assert near.tolist() == [True, True, False]


def decide(p, q, tokens, uniforms, drafted=None):
  tokens = jnp.asarray(tokens, jnp.int32)
  b, g = tokens.shape
  drafted = jnp.full(b, g) if drafted is None else jnp.asarray(drafted)
  return accept.accept(
      jnp.asarray(p, jnp.float32), jnp.asarray(q, jnp.float32), tokens, drafted,
      jnp.asarray(uniforms, jnp.float32))


def test_worked_example_of_the_docstring():
  p, q = [[[0.2, 0.4, 0.4], [1, 0, 0]]], [[[0.6, 0.3, 0.1]]]
  kept = decide(p, q, [[0]], [[0.33, 0.9]])
  assert (int(kept.count[0]), int(kept.next[0])) == (1, 0)
  for last, token in ((0.1, 1), (0.24, 1), (0.26, 2), (0.99, 2)):
    failed = decide(p, q, [[0]], [[0.34, last]])
    assert (int(failed.count[0]), int(failed.next[0])) == (0, token)


def test_worked_example_of_the_residual():
  left = accept.residual(
      jnp.asarray([[0.2, 0.4, 0.4]]), jnp.asarray([[0.6, 0.3, 0.1]]))
  np.testing.assert_allclose(left, [[0, 0.25, 0.75]], atol=1e-6)


@pytest.mark.parametrize('p', [
    np.ones(8) / 8, np.eye(8)[3], np.array([0.9, 0.1, 0, 0, 0, 0, 0, 0])])
@pytest.mark.parametrize('shift', [0.0, 1e-8])
def test_residual_of_equal_laws_is_the_targets(p, shift):
  left = np.asarray(accept.residual(
      jnp.asarray(p[None], jnp.float32),
      jnp.asarray(p[None] + shift, jnp.float32)))[0]
  assert np.all(np.isfinite(left)) and abs(left.sum() - 1) < 1e-6
  np.testing.assert_allclose(left, p, atol=1e-6)


def test_a_token_that_the_target_never_gives_is_rejected_by_every_coin():
  kept = decide([[[0.0, 1.0], [1, 0]]], [[[1.0, 0.0]]], [[0]], [[0.0, 0.0]])
  assert (int(kept.count[0]), int(kept.next[0])) == (0, 1)


def test_a_likelier_token_is_kept_by_every_coin():
  coin = np.nextafter(np.float32(1), np.float32(0))
  kept = decide([[[0.3, 0.7], [1, 0]]], [[[0.3, 0.7]]], [[0]], [[coin, 0.0]])
  assert int(kept.count[0]) == 1


def test_only_leading_drafts_count():
  p = np.full((1, 4, 2), 0.5)
  q = np.full((1, 3, 2), 0.5)
  q[0, 1] = [1, 0]  # kept with probability one half
  kept = decide(p, q, [[0, 0, 0]], [[0.1, 0.6, 0.1, 0.1]])
  assert int(kept.count[0]) == 1 and int(kept.next[0]) == 1


def test_drafts_that_do_not_count_leave_the_targets_own_law():
  p = np.array([[[0.5, 0.5], [0.25, 0.75]]])
  q = np.array([[[1.0, 0.0]]])
  none = decide(p, q, [[0]], [[0.0, 0.4]], drafted=[0])
  assert (int(none.count[0]), int(none.next[0])) == (0, 0)


def test_no_drafts_at_all_is_plain_sampling():
  p = np.array([[[0.25, 0.75]]])
  kept = decide(p, np.zeros((1, 0, 2)), np.zeros((1, 0)), [[0.3]])
  assert (int(kept.count[0]), int(kept.next[0])) == (0, 1)


def test_more_positions_than_drafts_and_one_are_refused():
  with pytest.raises(ValueError, match='1 drafts need 2 positions'):
    decide(np.ones((3, 3, 2)) / 2, np.ones((3, 1, 2)) / 2,
           np.zeros((3, 1)), np.zeros((3, 3)))


def test_beta_is_one_minus_half_the_l1_distance():
  p, q = jnp.asarray([0.1, 0.2, 0.3, 0.4]), jnp.asarray([0.4, 0.3, 0.2, 0.1])
  np.testing.assert_allclose(accept.beta(p, q), 0.6, atol=1e-6)
  np.testing.assert_allclose(
      accept.beta(p, q), 1 - float(jnp.sum(jnp.abs(p - q))) / 2, atol=1e-6)


def test_counts_of_the_jitted_rule_follow_its_law():
  v, gamma, n = 3, 2, 20_000
  p, q = laws('random', v, 5)
  expected = round_law(p, q, v, gamma)
  rng = np.random.default_rng(0)
  first = rng.choice(v, size=n, p=q(()))
  second = np.array([rng.choice(v, p=q((x,))) for x in first])
  tokens = np.stack([first, second], axis=1)
  p_bpv = np.stack([np.stack([p(()), p((a,)), p((a, b))]) for a, b in tokens])
  q_bgv = np.stack([np.stack([q(()), q((a,))]) for a, _ in tokens])
  kept = jax.jit(accept.accept)(
      jnp.asarray(p_bpv, jnp.float32), jnp.asarray(q_bgv, jnp.float32),
      jnp.asarray(tokens, jnp.int32), jnp.full(n, gamma),
      jax.random.uniform(jax.random.key(1), (n, gamma + 1)))
  found: dict[tuple[int, ...], float] = {}
  for row, count, token in zip(tokens, kept.count, kept.next, strict=True):
    key = (*row[:int(count)].tolist(), int(token))
    found[key] = found.get(key, 0) + 1 / n
  assert found.keys() <= expected.keys()
  for key, probability in expected.items():
    assert abs(found.get(key, 0) - probability) < FREQUENCY
