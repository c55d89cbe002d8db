"""How many tokens to draft next: gamma from what has been seen (section 3.5).

Each row estimates its acceptance probability from its own coins and a prior
that is fixed before the run, so from nothing else in its batch, and takes the
gamma that maximises expected tokens a round (Eq. 1) over the round's measured
cost. What was drafted is accepted by the same rule as ever, so the choice
changes the time and never the law of the output.

Letters: `b` batch, `r` rounds, `k` gammas to choose from.
"""

from collections.abc import Mapping
import dataclasses
import functools
from typing import Any

import jax
from jax import numpy as jnp
from jaxtyping import Array, Float, Int

# A row begins as if it had seen this many coins: alpha (1 - alpha) over the
# variance of alpha from sentence to sentence, about 0.1 squared.
PRIOR_COINS = 16.0
PRIOR_ALPHA = 0.6  # where nothing is known of a draft


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=['costs', 'alpha'], meta_fields=['gammas'])
@dataclasses.dataclass(frozen=True)
class Policy:
  """What there is to choose from.

  Attributes:
    gammas: ascending, 0 first. A row that chooses 0 learns nothing more and
      stays plain; a draft's cache could not follow it back.
    costs: seconds of a round over those of a plain step: gamma c + v(gamma), or
      as timed.
    alpha: what a row supposes of its acceptance before it has seen a coin.
  """
  gammas: tuple[int, ...]
  costs: Float[Array, ' k']
  alpha: float | Float[Array, ''] = PRIOR_ALPHA

  def __post_init__(self):
    if self.gammas[0] != 0 or list(self.gammas) != sorted(set(self.gammas)):
      raise ValueError(
          f'gammas={self.gammas}: allowed are ascending whole numbers from 0')


def timed_policy(
    costs: Mapping[int, float], alpha: float = PRIOR_ALPHA
) -> Policy:
  """A policy from the cost of a round by gamma, a plain one being 1."""
  gammas = sorted(costs)
  return Policy(
      (0, *gammas), jnp.asarray([1.0, *(costs[g] for g in gammas)],
                                jnp.float32), jnp.asarray(alpha, jnp.float32))


def coins(drafted: Any, passed: Any) -> Any:
  """Coins that each round has flipped, of arrays of one shape.

  Example: of 3 drafts with 1 passed 2 coins, with all 3 passed 3.
  """
  return jnp.minimum(passed + 1, drafted)


def alpha(
    drafted_br: Int[Array, 'b r'], passed_br: Int[Array, 'b r'],
    prior: float | Float[Array, ''] = PRIOR_ALPHA
) -> Float[Array, ' b']:
  """Estimate of each row's acceptance probability.

  Example: rounds (3, 3) with (1, 3) passed are 2 + 3 coins, 4 of them passed;
  with 16 coins at 0.6 before them the estimate is 13.6 / 21.
  """
  coins_b = jnp.sum(coins(drafted_br, passed_br), axis=1)
  passed_b = jnp.sum(passed_br, axis=1)
  return ((prior * PRIOR_COINS + passed_b.astype(jnp.float32))
          / (PRIOR_COINS + coins_b.astype(jnp.float32)))


def choose(policy: Policy, alpha_b: Float[Array, ' b']) -> Int[Array, ' b']:
  """The gamma with the largest expected factor, the smallest among equals.

  Example: alpha 0.6, gammas (0, 1, 3) and costs (1, 1.2, 1.6) have factors
  1, 1.6 / 1.2 = 1.33 and 2.18 / 1.6 = 1.36: 3 is chosen. At alpha 0.1 they are
  1, 0.92 and 0.69: 0.
  """
  powers = jnp.arange(max(policy.gammas) + 1)
  terms_bg = alpha_b[:, None] ** powers.astype(jnp.float32)[None]
  tokens_bg = jnp.cumsum(terms_bg, axis=1)
  gammas = jnp.asarray(policy.gammas)
  factors_bk = tokens_bg[:, gammas] / policy.costs[None]
  return gammas[jnp.argmax(factors_bk, axis=1)]


def reduced(policy: Policy) -> Policy:
  """The policy without the gammas that no acceptance makes the best one.

  Where a row begins with 0 it stays there, and only 0 is left. It chooses the
  same as before, from fewer loops.

  Example: at costs (1, 1.5, 1.6) of (0, 1, 3), 1 is never best: (0, 3) remain.
  """
  [first] = choose(policy, jnp.full(1, policy.alpha)).tolist()
  best = set(choose(policy, jnp.linspace(0, 1, 1001)).tolist())
  gammas = [0] if first == 0 else sorted(best | {0})
  return Policy(
      tuple(gammas),
      policy.costs[jnp.asarray([policy.gammas.index(g) for g in gammas])],
      policy.alpha)


def width(policy: Policy, limit_b: Int[Array, ' b']) -> Int[Array, '']:
  """The smallest gamma to choose from that holds every row's limit.

  Example: of gammas (0, 1, 3, 7) the limits (2, 0) need 3.
  """
  gammas = jnp.asarray(policy.gammas)
  return gammas[jnp.argmax(gammas >= jnp.max(limit_b))]
