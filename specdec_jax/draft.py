"""Drafters: tokens that a cheap model proposes, and the laws they came from.

A drafter is three things: `start` makes its state from the source, `draft`
proposes up to gamma tokens after each row's own prefix, and its parameters are
an argument. It never sees the target.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

import jax
from jax import numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from specdec_jax import cache as cache_lib
from specdec_jax import sampling as sampling_lib


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Prefix:
  """What a drafter may look at: each row's tokens and how many there are."""
  tokens: Int[Array, 'b n']  # the start token first
  length: Int[Array, ' b']


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Drafted:
  """`tokens[:, i]` was drawn from `q[:, i]`."""
  tokens: Int[Array, 'b g']
  q: Float[Array, 'b g v']
  finite: Bool[Array, 'b g']
  state: Any


@dataclasses.dataclass(frozen=True)
class Drafter:
  """Hashable pair of pure functions.

  Attributes:
    start: (params, source_ids, slots) -> state.
    draft: (params, state, prefix, gamma, steps, sampling, uniforms) -> Drafted.
      `gamma` is static; `steps` <= gamma of its positions are filled. A state
      holds nothing that a rejected draft could have spoilt.
  """
  start: Callable
  draft: Callable


@functools.cache
def model_drafter(start: Callable, extend: Callable) -> Drafter:
  """Drafts with a model, one token a call (section 2.3)."""
  return Drafter(start, lambda *args: _draft(extend, *args))


def _draft(
    extend: Callable,
    params: Any,
    cache: cache_lib.KVCache,
    prefix: Prefix,
    gamma: int,
    steps: Int[Array, ''],
    sampling: sampling_lib.Sampling,
    uniforms_bg: Float[Array, 'b g'],
) -> Drafted:
  """`steps` calls of the model. The first reads the last two tokens.

  After a fully accepted round the model has not read its own last draft. So
  the first call always reads two tokens: the slot of the older one is written
  again with the value it has, or for the first time. A row of one token (the
  start) has no older one; it reads the start and a filler behind it, whose
  slot the next call overwrites.
  """
  back_b = jnp.maximum(prefix.length - 2, 0)
  two_b2 = jnp.take_along_axis(
      prefix.tokens, back_b[:, None] + jnp.arange(2)[None], axis=1)
  logits, cache = extend(
      params, two_b2, cache_lib.rewind(cache, back_b),
      prefix.length - 1 - back_b)
  cache = cache_lib.rewind(cache, prefix.length)

  def draw(logits_bv, i):
    q_bv = sampling_lib.law(logits_bv, sampling)
    return (sampling_lib.draw(q_bv, uniforms_bg[:, i]), q_bv,
            sampling_lib.is_finite(logits_bv))

  def step(i, drafted):
    last_b1 = jax.lax.dynamic_slice_in_dim(drafted.tokens, i - 1, 1, axis=1)
    logits, cache = extend(params, last_b1, drafted.state)
    token_b, q_bv, finite_b = draw(logits[:, 0], i)
    return Drafted(
        tokens=drafted.tokens.at[:, i].set(token_b),
        q=drafted.q.at[:, i].set(q_bv),
        finite=drafted.finite.at[:, i].set(finite_b),
        state=cache)

  token_b, q_bv, finite_b = draw(logits[:, 0], 0)
  b, v = q_bv.shape
  first = Drafted(
      tokens=jnp.zeros((b, gamma), jnp.int32).at[:, 0].set(token_b),
      q=jnp.zeros((b, gamma, v), jnp.float32).at[:, 0].set(q_bv),
      finite=jnp.ones((b, gamma), bool).at[:, 0].set(finite_b),
      state=cache)
  return jax.lax.fori_loop(1, steps, step, first)


NO_DRAFTER = Drafter(
    start=lambda params, source_ids, slots: None,
    draft=lambda *args: None)
