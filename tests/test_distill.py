"""Divergences of two laws: against NumPy, and what must hold of them."""

import jax
from jax import numpy as jnp
import numpy as np
import pytest

from specdec_jax import accept
from specdec_jax import config
from specdec_jax import distill

KINDS = tuple(distill.DIVERGENCES)


def logits(seed: int, scale: float = 3.0):
  return scale * jax.random.normal(jax.random.key(seed), (4, 5, 7))


def softmax(x):
  x = np.exp(np.asarray(x, np.float64))
  return x / x.sum(axis=-1, keepdims=True)


def numpy_kl(p, q):
  return (p * np.log(p / q)).sum(axis=-1)


def expected(kind, p, q):
  m = (p + q) / 2
  return {
      'forward_kl': lambda: numpy_kl(p, q),
      'reverse_kl': lambda: numpy_kl(q, p),
      'total_variation': lambda: 1 - np.minimum(p, q).sum(axis=-1),
      'jensen_shannon': lambda: (numpy_kl(p, m) + numpy_kl(q, m)) / 2,
  }[kind]()


def test_every_loss_of_the_config_exists():
  assert KINDS == config.DISTILL_LOSSES


@pytest.mark.parametrize('temperature', [1.0, 2.5])
@pytest.mark.parametrize('kind', KINDS)
def test_loss_equals_numpy_s(kind, temperature):
  teacher, student = logits(0), logits(1)
  found = distill.loss(kind, temperature, teacher, student)
  assert found.shape == (4, 5)
  np.testing.assert_allclose(
      found, expected(kind, softmax(teacher / temperature),
                      softmax(student / temperature)), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize('kind', KINDS)
def test_loss_is_0_only_where_the_laws_are_the_same(kind):
  teacher = logits(0)
  same = teacher + 2.0  # a shift is no other law
  np.testing.assert_allclose(
      distill.loss(kind, 1.0, teacher, same), 0, atol=1e-5)
  assert np.all(distill.loss(kind, 1.0, teacher, logits(1)) > 1e-2)


def test_total_variation_is_the_chance_of_a_rejection():
  teacher, student = logits(0), logits(1)
  alpha = accept.beta(jax.nn.softmax(teacher), jax.nn.softmax(student))
  np.testing.assert_allclose(
      distill.total_variation(teacher, student), 1 - alpha, atol=1e-6)


def test_worked_example_of_total_variation():
  p, q = (jnp.log(jnp.array(law))
          for law in ([0.2, 0.4, 0.4], [0.6, 0.3, 0.1]))
  np.testing.assert_allclose(distill.total_variation(p, q), 0.4, atol=1e-6)


@pytest.mark.parametrize('kind, limit', [
    ('jensen_shannon', np.log(2)), ('total_variation', 1.0)])
def test_bounded_losses_reach_their_bound_on_disjoint_laws(kind, limit):
  teacher = jnp.array([200.0, 0.0, 0.0])
  found = distill.loss(kind, 1.0, teacher, teacher[::-1])
  np.testing.assert_allclose(found, limit, rtol=1e-6)
  assert np.all(distill.loss(kind, 1.0, logits(0), logits(1)) <= limit)


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('far', [0.0, 3.0, 300.0])
def test_gradients_are_finite_even_where_probabilities_are_0(kind, far):
  # far 0: equal laws; far 300: probabilities that round to 0.
  teacher, student = logits(0, far), logits(1, far)
  grads = jax.grad(lambda x: distill.loss(kind, 1.0, teacher, x).sum())(student)
  assert np.all(np.isfinite(grads))


@pytest.mark.parametrize('kind', KINDS)
def test_a_step_down_the_gradient_lowers_the_loss(kind):
  teacher, student = logits(0, 1.0), logits(1, 1.0)

  def mean(x):
    return distill.loss(kind, 1.0, teacher, x).mean()
  grads = jax.grad(mean)(student)
  assert mean(student - 0.1 * grads) < mean(student)
