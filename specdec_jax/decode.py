"""The loop: round after round, until every row has ended.

Letters: `b` batch, `m` output tokens.
"""

import dataclasses
from typing import Any

import jax
from jax import numpy as jnp
from jaxtyping import Array, Int

from specdec_jax import adaptive
from specdec_jax import cache as cache_lib
from specdec_jax import rounds as rounds_lib
from specdec_jax import sampling as sampling_lib

# Weights of target and draft, sampling, keys and budgets: what rounds share.
Inputs = tuple[Any, Any, sampling_lib.Sampling, Array, Int[Array, ' b']]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Decoded:
  """Output tokens (EOS included, then 0), and how each row came by them."""
  tokens: Int[rounds_lib.AnyArray, 'b m']
  length: Int[rounds_lib.AnyArray, ' b']
  ended: Int[rounds_lib.AnyArray, ' b']
  rounds: Int[rounds_lib.AnyArray, ' b']
  log: rounds_lib.Log
  caches: Any  # the buffers that were donated; of no further use


def generate(
    spec: rounds_lib.Spec,
    target_params: Any,
    draft_params: Any,
    target_cache: cache_lib.KVCache,
    draft_state: Any,
    sampling: sampling_lib.Sampling,
    keys_b: Array,
    budget_b: Int[Array, ' b'],
    policy: adaptive.Policy | None = None,
) -> Decoded:
  """Decodes every row to its EOS or its budget, in one program.

  Args:
    spec: static.
    target_params, draft_params: of the two models.
    target_cache, draft_state: fresh from `start`, with `spec.sizes[0]` slots.
    sampling: the adjustment of both models' laws.
    keys_b: a key a row (see `sentence_keys`).
    budget_b: tokens allowed in each row, 0 (a filler) to `spec.max_tokens`.
    policy: chooses each row's gamma round by round, up to `spec.gamma`; without
      one it is always `spec.gamma`.
  """
  inputs = (target_params, draft_params, sampling, keys_b, budget_b)
  state = rounds_lib.init(spec, target_cache, draft_state, budget_b)
  return _decode(spec, policy, inputs, spec.sizes, state)


def _decode(
    spec: rounds_lib.Spec, policy: adaptive.Policy | None, inputs: Inputs,
    sizes: tuple[int, ...], state: rounds_lib.DecodeState
) -> Decoded:
  """Rounds in caches of the first size and, if a row needs more, in larger.

  What is returned of the caches are those of the first size: they take the
  memory of the ones that were handed over.
  """
  size, *larger = sizes
  if policy is None:
    state = jax.lax.while_loop(
        lambda state: _goes_on(spec, size, state),
        lambda state: rounds_lib.decode_round(
            spec, *inputs, rounds_lib.room(state, inputs[-1]), state), state)
  else:
    state = _adaptive(spec, policy, inputs, size, state)

  def ended(state):
    return Decoded(
        tokens=state.tokens[:, 1:spec.max_tokens + 1], length=state.length - 1,
        ended=state.ended, rounds=state.rounds, log=state.log, caches=None)

  def grown(state):
    decoded = _decode(spec, policy, inputs, tuple(larger),
                      cache_lib.grow(state, larger[0]))
    return dataclasses.replace(decoded, caches=None)
  if larger:
    decoded = jax.lax.cond(jnp.any(state.running), grown, ended, state)
  else:
    decoded = ended(state)
  return dataclasses.replace(
      decoded, caches=(state.target_cache, state.draft_state))


def _goes_on(
    spec: rounds_lib.Spec, size: int, state: rounds_lib.DecodeState
) -> Array:
  """Whether a row is running and each that is has room for a whole block.

  Example: gamma 7 and 66 slots: the last round there begins with at most 58
  tokens, the start token included. All slots always suffice, see `rounds.Spec`.
  """
  any_running = jnp.any(state.running)
  if size == spec.slots:
    return any_running
  fits = state.length + spec.gamma + 1 <= size
  return any_running & jnp.all(fits | ~state.running)


def _adaptive(
    spec: rounds_lib.Spec, policy: adaptive.Policy, inputs: Inputs, size: int,
    state: rounds_lib.DecodeState
) -> rounds_lib.DecodeState:
  """For each gamma the rounds that follow each other with it, while the caches
  have room.

  Loops one after the other, not branches: a loop's caches stay in place. Each
  carries the limits of the next round, so that they are chosen once a round.
  """
  def limits(state):
    alpha_b = adaptive.alpha(
        state.log.drafted, state.log.accepted + state.log.discarded,
        policy.alpha)
    return jnp.minimum(
        adaptive.choose(policy, alpha_b), rounds_lib.room(state, inputs[-1]))

  def rounds(gamma, carry):
    def chosen(carry):
      state, limit_b = carry
      return (_goes_on(spec, size, state)
              & (adaptive.width(policy, limit_b) == gamma))

    def step(carry):
      state = rounds_lib.decode_round(
          dataclasses.replace(spec, gamma=gamma), *inputs, carry[1], carry[0])
      # Whoever has chosen 0 learns nothing more and need not choose again.
      return state, limits(state) if gamma else carry[1]
    return jax.lax.while_loop(chosen, step, carry)

  def all_gammas(carry):
    for gamma in policy.gammas:
      carry = rounds(gamma, carry)
    return carry
  return jax.lax.while_loop(
      lambda carry: _goes_on(spec, size, carry[0]), all_gammas,
      (state, limits(state)))[0]


@jax.jit
def sentence_keys(seed: Int[Array, ''], index_b: Int[Array, ' b']) -> Array:
  """A key for each sentence from the seed and its place in the data set."""
  return jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), index_b)
