"""How far a student's law q is from its teacher's law p, token by token.

A draft is accepted with probability sum min(p, q) (Leviathan et al. 2023,
Theorem 3.5), which is 1 minus the total variation: that is the loss to lower,
but its gradient is weak where p and q hardly overlap, as at the start. The
others are smoother and lower it too (Zhou et al. 2023, DistillSpec).

Every function takes logits (..., v) of teacher and student and gives one number
of 0 and above for each token, 0 only where both laws are the same.
"""

from collections.abc import Callable

import jax
from jax import numpy as jnp
from jaxtyping import Array, Float

Logits = Float[Array, '... v']
PerToken = Float[Array, '...']


def _kl(log_p: Logits, log_q: Logits) -> PerToken:
  return jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)


def forward_kl(teacher: Logits, student: Logits) -> PerToken:
  """KL(p || q) in nats: the student covers all that the teacher does."""
  return _kl(jax.nn.log_softmax(teacher), jax.nn.log_softmax(student))


def reverse_kl(teacher: Logits, student: Logits) -> PerToken:
  """KL(q || p) in nats: the student does nothing that the teacher does not."""
  return forward_kl(student, teacher)


def total_variation(teacher: Logits, student: Logits) -> PerToken:
  """Half the sum of |p - q|, the chance that a draft is rejected.

  Example: p = (0.2, 0.4, 0.4), q = (0.6, 0.3, 0.1) give 0.4, as sum min(p, q)
  is 0.6.
  """
  p, q = jax.nn.softmax(teacher), jax.nn.softmax(student)
  return jnp.sum(jnp.abs(p - q), axis=-1) / 2


def jensen_shannon(teacher: Logits, student: Logits) -> PerToken:
  """Mean KL of p and of q to (p + q) / 2; at most log 2."""
  log_p, log_q = jax.nn.log_softmax(teacher), jax.nn.log_softmax(student)
  log_m = jnp.logaddexp(log_p, log_q) - jnp.log(2.0)
  return (_kl(log_p, log_m) + _kl(log_q, log_m)) / 2


DIVERGENCES: dict[str, Callable] = {
    'forward_kl': forward_kl, 'reverse_kl': reverse_kl,
    'total_variation': total_variation, 'jensen_shannon': jensen_shannon}


def loss(
    kind: str, temperature: float, teacher: Logits, student: Logits
) -> PerToken:
  """One of `DIVERGENCES` between the laws at a temperature above 0."""
  return DIVERGENCES[kind](teacher / temperature, student / temperature)
