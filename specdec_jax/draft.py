"""Drafters: tokens that a cheap model proposes, and the laws they came from.

A drafter is three things: `start` makes its state from the source, `draft`
proposes up to gamma tokens after each row's own prefix, and its parameters are
an argument. It never sees the target.

`model_drafter` drafts with a model. `proposer` makes a drafter of anything that
tells the next token's law from the prefix alone: see `ngram` and `copying`.
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

  def step(i, drafted):
    last_b1 = jax.lax.dynamic_slice_in_dim(drafted.tokens, i - 1, 1, axis=1)
    logits, cache = extend(params, last_b1, drafted.state)
    return put(drafted, i, draw(logits[:, 0], sampling, uniforms_bg[:, i]),
               cache)

  one = draw(logits[:, 0], sampling, uniforms_bg[:, 0])
  return jax.lax.fori_loop(
      1, steps, step, put(nothing(one.q, gamma), 0, one, cache))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Proposed:
  """One token a row, drawn from `q`; `finite`: whether its logits were numbers.
  """
  token: Int[Array, ' b']
  q: Float[Array, 'b v']
  finite: Bool[Array, ' b']


def draw(
    logits_bv: Float[Array, 'b v'],
    sampling: sampling_lib.Sampling,
    uniform_b: Float[Array, ' b'],
) -> Proposed:
  """A token from the standardised law of the logits."""
  q_bv = sampling_lib.law(logits_bv, sampling)
  return Proposed(sampling_lib.sample(q_bv, uniform_b, sampling), q_bv,
                  sampling_lib.is_finite(logits_bv))


def nothing(law_bv: Any, gamma: int, state: Any = None) -> Drafted:
  """No draft yet; laws will be shaped like `law_bv`."""
  b, v = law_bv.shape
  return Drafted(
      tokens=jnp.zeros((b, gamma), jnp.int32),
      q=jnp.zeros((b, gamma, v), jnp.float32),
      finite=jnp.ones((b, gamma), bool), state=state)


def put(drafted: Drafted, i: Any, one: Proposed, state: Any) -> Drafted:
  """Adds one token a row as draft i."""
  return Drafted(
      tokens=drafted.tokens.at[:, i].set(one.token),
      q=drafted.q.at[:, i].set(one.q),
      finite=drafted.finite.at[:, i].set(one.finite), state=state)


def certain(token_b: Int[Array, ' b'], size: int) -> Proposed:
  """A token proposed for sure: its law is one-hot at every temperature."""
  q_bv = jax.nn.one_hot(token_b, size, dtype=jnp.float32)
  return Proposed(token_b, q_bv, jnp.ones(token_b.shape, bool))


@functools.cache
def proposer(
    propose: Callable, start: Callable = lambda params, source_ids, slots: None
) -> Drafter:
  """Drafts token by token from each row's prefix, drafts included.

  Args:
    propose: (params, state, prefix, sampling, uniform_b) -> Proposed.
    start: as in `Drafter`; the state never changes.
  """
  return Drafter(start, lambda *args: _propose(propose, *args))


def _propose(
    propose: Callable,
    params: Any,
    state: Any,
    prefix: Prefix,
    gamma: int,
    steps: Int[Array, ''],
    sampling: sampling_lib.Sampling,
    uniforms_bg: Float[Array, 'b g'],
) -> Drafted:
  """`steps` proposals, each put behind its row before the next is made."""
  rows = jnp.arange(prefix.length.shape[0])

  def at(i, tokens_bn):
    return propose(params, state, Prefix(tokens_bn, prefix.length + i),
                   sampling, uniforms_bg[:, i])

  def step(i, carry):
    drafted, tokens_bn = carry
    one = at(i, tokens_bn)
    tokens_bn = tokens_bn.at[rows, prefix.length + i].set(
        one.token, mode='drop', unique_indices=True)
    return put(drafted, i, one, state), tokens_bn

  empty = nothing(jax.eval_shape(at, 0, prefix.tokens).q, gamma, state)
  return jax.lax.fori_loop(0, steps, step, (empty, prefix.tokens))[0]


NO_DRAFTER = Drafter(
    start=lambda params, source_ids, slots: None,
    draft=lambda *args: None)
