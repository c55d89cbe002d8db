"""Standardised sampling: logits to the law that is really drawn from.

Argmax, temperature, top-k and nucleus all become sampling from an adjusted law
(paper, section 2.2); p and q always mean the adjusted laws, and both models get
the same adjustment.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
from jax import numpy as jnp
from jaxtyping import Array, Bool, Float, Int
import numpy as np

# Below this a float32 logit cannot tell two tokens apart more finely than the
# temperature does, so the law is argmax itself.
ARGMAX_BELOW = 1e-5

_BLOCK = 64  # ids summed together in `draw`
_BELOW_ONE = float(np.nextafter(np.float32(1), np.float32(0)))


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=['temperature'], meta_fields=['greedy', 'top_k', 'top_p'])
@dataclasses.dataclass(frozen=True)
class Sampling:
  """How logits become a law. `make` checks the values.

  The temperature is an array, so that changing it compiles nothing; the rest
  shapes the program.
  """
  temperature: Float[Array, '']
  greedy: bool
  top_k: int    # 0: off
  top_p: float  # 1: off


def check(temperature: Any, top_k: Any = 0, top_p: Any = 1.0) -> None:
  """Raises ValueError naming the option, its value and what is allowed."""
  if not (math.isfinite(temperature) and temperature >= 0):
    raise ValueError(
        f'temperature={temperature}: allowed are finite numbers of 0 and above')
  if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 0:
    raise ValueError(
        f'top_k={top_k!r}: allowed are whole numbers of 0 (off) and above')
  if not 0 < top_p <= 1:
    raise ValueError(
        f'top_p={top_p}: allowed are numbers above 0 and up to 1 (off)')


def make(temperature: float, top_k: int = 0, top_p: float = 1.0) -> Sampling:
  """Returns a checked `Sampling`; below `ARGMAX_BELOW` it is argmax."""
  check(temperature, top_k, top_p)
  return Sampling(
      temperature=jnp.asarray(temperature, jnp.float32),
      greedy=temperature < ARGMAX_BELOW, top_k=top_k, top_p=float(top_p))


def law(
    logits: Float[Array, '... v'], sampling: Sampling
) -> Float[Array, '... v']:
  """The adjusted law, float32: temperature, then top-k, then nucleus.

  Exact ties go to the lowest id: the argmax law is one-hot there, and top-k and
  nucleus keep the lower id first.
  """
  logits = logits.astype(jnp.float32)
  top = jnp.max(logits, axis=-1, keepdims=True)
  if sampling.greedy:
    return jax.nn.one_hot(
        first(logits == top), logits.shape[-1], dtype=jnp.float32)
  # The maximum is taken away first, so that a small temperature overflows to
  # exp(-inf) = 0 and never to inf - inf.
  logits = (logits - top) / sampling.temperature
  if sampling.top_k:
    logits = jnp.where(
        _largest(logits, sampling.top_k), logits, -jnp.inf)
  probabilities = jax.nn.softmax(logits, axis=-1)
  if sampling.top_p < 1:
    kept = jnp.where(_nucleus(probabilities, sampling.top_p), probabilities, 0)
    probabilities = kept / jnp.sum(kept, axis=-1, keepdims=True)
  return probabilities


def _largest(x: Float[Array, '... v'], k: int):
  """Marks the k largest, exactly k: among equals the lowest ids.

  Example: of (2, 5, 5, 5, 1) the two largest are at ids 1 and 2.
  """
  k = min(k, x.shape[-1])
  above, level = _split(x, jnp.ones_like(x), k)
  room = k - jnp.sum(above, axis=-1, keepdims=True)
  return above | (level & (jnp.cumsum(level, axis=-1) <= room))


def _nucleus(probabilities: Float[Array, '... v'], top_p: float):
  """Marks the smallest set of most probable ids that holds `top_p`.

  Example: (0.5, 0.3, 0.15, 0.05) with 0.9 keeps the first three.
  """
  above, level = _split(probabilities, probabilities, top_p)
  before = jnp.sum(jnp.where(above, probabilities, 0), axis=-1, keepdims=True)
  # How many on the level have lower ids.
  equals = jnp.cumsum(level, axis=-1).astype(jnp.float32) - 1
  return above | (level & (before + equals * probabilities < top_p))


def _split(
    x: Float[Array, '... v'], weights: Float[Array, '... v'], amount: float
) -> tuple[Bool[Array, '... v'], Bool[Array, '... v']]:
  """Marks what is above the level at which weights, from the largest x down,
  reach `amount`, and what is on that level.

  The level is found bit by bit, by 32 sums: to sort a vocabulary takes tens of
  times as long.

  Example: x = (2, 5, 5, 5, 1), each of weight 1, amount 4: the level is 2, the
  three ids of 5 are above it.
  """
  bits = jax.lax.bitcast_convert_type(
      jnp.where(x == 0, 0.0, x).astype(jnp.float32), jnp.uint32)
  sign = jnp.uint32(1 << 31)
  keys = jnp.where(bits >= sign, ~bits, bits | sign)  # ordered as x is

  def lower(i, level):
    raised = level | (sign >> i.astype(jnp.uint32))
    held = jnp.sum(jnp.where(keys >= raised, weights, 0), axis=-1,
                   keepdims=True)
    return jnp.where(held >= amount, raised, level)
  level = jax.lax.fori_loop(
      0, 32, lower, jnp.zeros((*x.shape[:-1], 1), jnp.uint32))
  return keys > level, keys == level


def first(marked: Bool[Array, '... v']) -> Int[Array, '...']:
  """The lowest marked id; the last id where none is.

  A minimum over ids: XLA's argmax carries index and value through a scalar
  loop, which on a CPU costs more than the rest of a small model's step.
  """
  v = marked.shape[-1]
  ids = jax.lax.broadcasted_iota(jnp.int32, marked.shape, marked.ndim - 1)
  return jnp.min(jnp.where(marked, ids, v - 1), axis=-1)


def draw(
    weights: Float[Array, '... v'], uniform: Float[Array, '...']
) -> Int[Array, '...']:
  """Draws from weights (a law up to its scale) with one uniform in [0, 1).

  The inverse of the cumulative sum, in two steps: a block of ids by the sums of
  the blocks, then an id in it by what is left of the uniform. An id of weight 0
  is never drawn, whatever the rounding. A row that is all 0 gives the last id.

  Example: weights (0.2, 0, 0.6, 0.2) give 0 for uniforms below 0.2, 2 below
  0.8, else 3.
  """
  if uniform.shape != weights.shape[:-1]:
    raise ValueError(
        f'uniform of shape {uniform.shape}: weights {weights.shape} need one a '
        'row')
  *rows, v = weights.shape
  padding = [(0, 0)] * len(rows) + [(0, -v % _BLOCK)]
  blocks = jnp.pad(weights, padding).reshape(*rows, -1, _BLOCK)
  sums = jnp.sum(blocks, axis=-1)
  block, left = _invert(sums, uniform)
  chosen = jnp.take_along_axis(blocks, block[..., None, None], axis=-2)
  place, _ = _invert(chosen[..., 0, :], left)
  return jnp.minimum(block * _BLOCK + place, v - 1)


def sample(
    law: Float[Array, '... v'], uniform: Float[Array, '...'],
    sampling: Sampling
) -> Int[Array, '...']:
  """Draws from a standardised law; the argmax law needs no uniform."""
  return first(law > 0) if sampling.greedy else draw(law, uniform)


def _invert(weights, uniform):
  """The id drawn, and where in its share of the sum the uniform lies, [0, 1).

  Example: weights (1, 3) and uniform 0.625 give id 1 and 0.5.
  """
  cumulative = jnp.cumsum(weights, axis=-1)
  aim = uniform[..., None] * jnp.max(cumulative, axis=-1, keepdims=True)
  drawn = first((cumulative > aim) & (weights > 0))
  at = drawn[..., None]
  share = jnp.take_along_axis(weights, at, axis=-1)
  before = jnp.take_along_axis(cumulative, at, axis=-1) - share
  left = (aim - before) / jnp.where(share > 0, share, 1)
  return drawn, jnp.clip(left[..., 0], 0, _BELOW_ONE)


def is_finite(logits: Float[Array, '... v']):
  """Whether the largest logit of each row is a number (NaN and inf show)."""
  return jnp.isfinite(jnp.max(logits, axis=-1))
