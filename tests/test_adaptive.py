"""Gamma round by round: the choice, and that it changes nothing but time."""

import dataclasses
import functools

import jax
from jax import numpy as jnp
import numpy as np
import pytest

from specdec_jax import adaptive
from specdec_jax import cache as cache_lib
from specdec_jax import decode
from specdec_jax import rounds as rounds_lib
from specdec_jax import sampling
from specdec_jax import theory
from tests import scripted

POLICY = adaptive.timed_policy({1: 1.2, 3: 1.6, 5: 2.0})


def run(target, draft, budget, *, rows=(0,), temperature=0.0, seed=0,
        index=None, policy=POLICY):
  """As `scripted.run`, with gammas from `policy`."""
  rows = jnp.asarray(rows, jnp.int32)[:, None]
  index = jnp.arange(len(rows)) if index is None else jnp.asarray(index)
  bound, drafter = scripted.model(target), scripted.drafter_of(draft)
  gamma = max(policy.gammas)
  spec = rounds_lib.Spec(
      bound.extend, drafter, gamma, budget, budget + gamma + 1)

  # Compiled fast rather than well: it runs once.
  @functools.partial(
      jax.jit, compiler_options={'xla_backend_optimization_level': 0})
  def program(rows, keys, sampling):
    return dataclasses.replace(decode.generate(
        spec, {}, {}, bound.start({}, rows, spec.sizes[0]),
        drafter.start({}, rows, spec.sizes[0]), sampling, keys,
        jnp.full(len(rows), budget, jnp.int32), policy), caches=None)
  return jax.device_get(program(
      rows, decode.sentence_keys(jnp.asarray(seed), index),
      sampling.make(temperature)))


def test_coins_of_the_docstring_example():
  found = adaptive.coins(np.array([3, 3, 0]), np.array([1, 3, 0]))
  assert found.tolist() == [2, 3, 0]


def test_alpha_of_the_docstring_example():
  estimate = adaptive.alpha(jnp.array([[3, 3, 0]]), jnp.array([[1, 3, 0]]))
  np.testing.assert_allclose(estimate, [13.6 / 21], rtol=1e-6)


def test_choice_of_the_docstring_example():
  policy = adaptive.Policy((0, 1, 3), jnp.array([1.0, 1.2, 1.6]))
  assert adaptive.choose(policy, jnp.array([0.6, 0.1])).tolist() == [3, 0]


def test_a_row_begins_with_the_alpha_of_its_policy():
  never_ends, wrong = scripted.path([5] * 60), scripted.path([6] * 60)
  first = lambda alpha: run(
      never_ends, wrong, 40, policy=adaptive.timed_policy(
          {1: 1.2, 3: 1.4, 5: 1.6}, alpha)).log.drafted[0][0]
  assert first(0.9) == 5 and first(0.02) == 0


@pytest.mark.parametrize('alpha', [0.05, 0.3, 0.55, 0.8, 0.97])
def test_the_choice_maximises_the_factor_with_the_measured_verify_ratio(alpha):
  ratios = {1: 1.1, 2: 1.2, 4: 1.35, 8: 1.7}
  factors = {0: 1.0} | {
      g: theory.walltime_factor(alpha, g, 0.07, v) for g, v in ratios.items()}
  policy = adaptive.timed_policy({
      g: g * 0.07 + v for g, v in ratios.items()})
  [chosen] = adaptive.choose(policy, jnp.array([alpha])).tolist()
  assert chosen == max(factors, key=lambda g: factors[g])


def test_reduced_of_the_docstring_example():
  policy = adaptive.reduced(
      adaptive.Policy((0, 1, 3), jnp.array([1.0, 1.5, 1.6])))
  assert policy.gammas == (0, 3)
  np.testing.assert_array_equal(policy.costs, np.float32([1, 1.6]))


def test_a_policy_that_begins_with_0_is_reduced_to_it():
  policy = adaptive.timed_policy({1: 1.5, 3: 1.6}, 0.05)
  assert adaptive.reduced(policy).gammas == (0,)


@pytest.mark.parametrize('costs', [{1: 1.5, 3: 1.6, 5: 2.5}, {1: 1.1, 7: 2}])
def test_a_reduced_policy_chooses_the_same(costs):
  policy = adaptive.timed_policy(costs, 0.8)
  alphas = jnp.asarray(np.random.default_rng(0).uniform(size=999), jnp.float32)
  np.testing.assert_array_equal(
      adaptive.choose(adaptive.reduced(policy), alphas),
      adaptive.choose(policy, alphas))


def test_width_of_the_docstring_example():
  policy = adaptive.Policy((0, 1, 3, 7), jnp.ones(4))
  assert int(adaptive.width(policy, jnp.array([2, 0]))) == 3
  assert int(adaptive.width(policy, jnp.array([0, 0]))) == 0


@pytest.mark.parametrize('gammas', [(1, 2), (0, 3, 2), (0, 1, 1)])
def test_gammas_that_do_not_ascend_from_0_are_refused(gammas):
  with pytest.raises(ValueError, match=r'gammas=.*ascending'):
    adaptive.Policy(gammas, jnp.ones(len(gammas)))


@pytest.mark.parametrize('budget', [1, 2, 24])
@pytest.mark.parametrize('draft_seed', [1, 2])
def test_greedy_output_is_plain_output(budget, draft_seed):
  target, draft = scripted.noisy(1, 8), scripted.noisy(draft_seed, 8)
  rows = (0, 3, 5)
  plain = scripted.run(target, None, 0, budget, rows=rows)
  adapted = run(target, draft, budget, rows=rows)
  np.testing.assert_array_equal(adapted.tokens, plain.tokens)
  np.testing.assert_array_equal(adapted.length, plain.length)


def test_good_drafts_lengthen_the_block_and_bad_ones_end_drafting():
  never_ends = scripted.path([5] * 60)
  good = run(never_ends, never_ends, 40)
  assert good.log.drafted[0].max() == 5
  bad = run(never_ends, scripted.path([6] * 60), 40)
  drafted = bad.log.drafted[0][:bad.rounds[0]]
  assert drafted[0] > 0 and drafted[-2:].tolist() == [0, 0]
  assert bad.length[0] == 40


def test_a_rows_sample_does_not_depend_on_its_batch():
  target, draft = scripted.noisy(1, 8, 1.0), scripted.noisy(4, 8, 1.0)
  together = run(target, draft, 20, rows=(0, 3, 5), temperature=1.0)
  alone = run(target, draft, 20, rows=(3,), temperature=1.0, index=[1])
  np.testing.assert_array_equal(together.tokens[1], alone.tokens[0])


def test_sampled_tokens_keep_the_targets_law():
  p = np.log(np.array([1e-9, 1e-9, 0.2, 0.4, 0.4]))
  q = np.log(np.array([1e-9, 1e-9, 0.6, 0.3, 0.1]))

  def constant(logits):
    return lambda history, count, row: jnp.asarray(logits, jnp.float32)
  keys = 4000
  decoded = run(constant(p), constant(q), 5, rows=[0] * keys, temperature=1.0)
  for place in range(5):
    found = np.bincount(decoded.tokens[:, place], minlength=5)[2:] / keys
    np.testing.assert_allclose(found, [0.2, 0.4, 0.4], atol=0.035)


def test_caches_that_grow_change_no_choice(monkeypatch):
  def never_ends(seed):
    law = scripted.noisy(seed, 12)
    return lambda *prefix: law(*prefix).at[1].set(-1e9)

  def found():
    return run(never_ends(0), never_ends(2), 130, rows=(3, 4), temperature=1.0,
               policy=adaptive.timed_policy({1: 1.2, 3: 1.6}))
  grown = found()
  monkeypatch.setattr(cache_lib, 'sizes', lambda slots, _: (slots,))
  jax.tree.map(np.testing.assert_array_equal, grown, found())
  assert len(np.unique(grown.log.drafted[0, :grown.rounds[0]])) > 1
