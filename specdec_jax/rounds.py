"""One round of every row: draft, verify, accept, commit.

Plain decoding is a round of gamma = 0.

A row has L tokens, the start token included. The last has not been read by the
target, so `target_cache.length == L - 1`. A round reads that token and gamma
drafts, keeps a of them and adds one: L + a + 1 tokens, cache rewound to L + a.

Letters: `b` batch, `n` token slots, `g` drafted tokens, `p` = g + 1 positions,
`r` rounds, `v` vocabulary.
"""

from collections.abc import Callable
import dataclasses
from typing import Any

import jax
from jax import numpy as jnp
from jaxtyping import Array, Bool, Float, Int
import numpy as np

from specdec_jax import accept as accept_lib
from specdec_jax import cache as cache_lib
from specdec_jax import draft as draft_lib
from specdec_jax import sampling as sampling_lib
from specdec_jax import verify as verify_lib
from specdec_jax import vocab

AnyArray = Array | np.ndarray  # results are also held on the host

# Why a row has ended.
RUNNING, EOS, LENGTH, BAD_TARGET, BAD_DRAFT = range(5)


@dataclasses.dataclass(frozen=True)
class Spec:
  """What shapes the program: static, hashable.

  Attributes:
    target_extend: (params, tokens, cache) -> (logits, cache).
    drafter: `draft.NO_DRAFTER` for gamma 0.
    gamma: drafts a round.
    max_tokens: the largest budget of a row.
    slots: room of tokens and, at the end, of caches (see `cache.sizes`); the
      budget and one whole block past it must fit, so that no write is ever
      clamped.
    lenience: of acceptance (see `accept`); below 1 the output is not the
      target's.
    acceptance: None, or the probability with which a draft is kept whatever the
      laws say: real machinery at a synthetic alpha; the output means nothing.
      Inside one program it may also be traced.
  """
  target_extend: Callable
  drafter: draft_lib.Drafter
  gamma: int
  max_tokens: int
  slots: int
  lenience: float = 1.0
  acceptance: float | Float[Array, ''] | None = None

  def __post_init__(self):
    if self.slots < self.max_tokens + self.gamma + 1:
      raise ValueError(
          f'slots={self.slots}: allowed are max_tokens + gamma + 1 = '
          f'{self.max_tokens + self.gamma + 1} and above')

  @property
  def sizes(self) -> tuple[int, ...]:
    """Slots of the caches, from those that `start` makes to all of them."""
    return cache_lib.sizes(self.slots, self.gamma + 1)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Log:
  """Counts of each row's rounds; 0 where the row was not running.

  `drafted`: drafts put before the target. `accepted`: drafts that were kept
  and returned. `discarded`: drafts that Algorithm 1 kept behind an EOS.
  """
  drafted: Int[AnyArray, 'b r']
  accepted: Int[AnyArray, 'b r']
  discarded: Int[AnyArray, 'b r']


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DecodeState:
  """Everything that changes from round to round."""
  tokens: Int[Array, 'b n']   # start token, output, then 0
  length: Int[Array, ' b']     # L, the start token included
  ended: Int[Array, ' b']      # RUNNING or why not
  round: Int[Array, '']       # of the batch
  rounds: Int[Array, ' b']     # while the row was running
  target_cache: cache_lib.KVCache
  draft_state: Any
  log: Log

  @property
  def running(self) -> Bool[Array, ' b']:
    return self.ended == RUNNING


def init(spec: Spec, target_cache, draft_state, budget_b) -> DecodeState:
  """Every row holds the start token, which is neither returned nor counted.

  A row with budget 0 has ended: that is how a batch is filled up.
  """
  b = target_cache.length.shape[0]
  counts = [jnp.zeros((b, spec.max_tokens), jnp.int32) for _ in range(3)]
  return DecodeState(
      tokens=jnp.full((b, spec.slots), vocab.START_ID, jnp.int32),
      length=jnp.ones(b, jnp.int32),
      ended=jnp.where(budget_b > 0, RUNNING, LENGTH),
      round=jnp.zeros((), jnp.int32),
      rounds=jnp.zeros(b, jnp.int32),
      target_cache=target_cache, draft_state=draft_state, log=Log(*counts))


def round_uniforms(
    keys_b, round_number: Int[Array, ''], gamma: int
) -> tuple[Float[Array, 'b g'], Float[Array, 'b p']]:
  """Uniforms of one round: for the drafts, and for coins and the next token.

  They depend on a row's own key and its round, so on nothing else in the batch;
  each has a key of its own, so that one more draft changes none of the others.
  """
  def draws(key, count):
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(count))
    return jax.vmap(jax.random.uniform)(keys)

  def of_row(key):
    draft, coins, last = jax.random.split(
        jax.random.fold_in(key, round_number), 3)
    return draws(draft, gamma), jnp.append(
        draws(coins, gamma), jax.random.uniform(last))
  return jax.vmap(of_row)(keys_b)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Round:
  """What happened in one round, before it is committed.

  `proposed` counts the drafts of each row that were put before the target.
  """
  drafted: draft_lib.Drafted | None  # None in plain decoding
  verified: verify_lib.Verified
  accepted: accept_lib.Accepted
  proposed: Int[Array, ' b']

  @property
  def tokens(self) -> Int[Array, 'b g']:
    if self.drafted is None:
      return jnp.zeros((self.proposed.shape[0], 0), jnp.int32)
    return self.drafted.tokens


def room(state: DecodeState, budget_b: Int[Array, ' b']) -> Int[Array, ' b']:
  """Drafts that can still help each row: the last token of a budget is the
  target's own, and a row that has ended needs none."""
  left_b = budget_b - (state.length - 1)
  return jnp.where(state.running, jnp.maximum(left_b - 1, 0), 0)


def play_round(
    spec: Spec,
    target_params: Any,
    draft_params: Any,
    sampling: sampling_lib.Sampling,
    keys_b,
    limit_b: Int[Array, ' b'],
    state: DecodeState,
) -> Round:
  """Draft, verify, accept: one round of every row, from its own prefix.

  At most `limit_b` of a row's drafts are put before the target.
  """
  gamma = spec.gamma
  proposed_b = jnp.minimum(limit_b, gamma)
  if sampling.greedy and spec.acceptance is None:
    # Every law is one-hot and every coin 0 or 1: nothing is left to chance.
    draft_uniforms, accept_uniforms = (
        jnp.full((proposed_b.shape[0], n), 0.5) for n in (gamma, gamma + 1))
  else:
    draft_uniforms, accept_uniforms = round_uniforms(
        keys_b, state.round, gamma)

  drafted, tokens_bg = None, jnp.zeros((proposed_b.shape[0], 0), jnp.int32)
  if gamma:
    with jax.named_scope('draft'):
      drafted = spec.drafter.draft(
          draft_params, state.draft_state,
          draft_lib.Prefix(state.tokens, state.length), gamma,
          jnp.max(proposed_b), sampling, draft_uniforms)
    tokens_bg = drafted.tokens

  with jax.named_scope('verify'):
    last_b = jnp.take_along_axis(
        state.tokens, state.length[:, None] - 1, axis=1)[:, 0]
    verified = verify_lib.verify(
        spec.target_extend, target_params, state.target_cache, last_b,
        tokens_bg, sampling, spec.lenience)

  with jax.named_scope('accept'):
    q_bgv = (drafted.q if drafted is not None
             else jnp.zeros((*tokens_bg.shape, verified.p.shape[-1])))
    accepted = accept_lib.accept(
        verified.p, q_bgv, tokens_bg, proposed_b, accept_uniforms,
        verified.near, spec.lenience, spec.acceptance)
  return Round(drafted, verified, accepted, proposed_b)


def decode_round(
    spec: Spec,
    target_params: Any,
    draft_params: Any,
    sampling: sampling_lib.Sampling,
    keys_b,
    budget_b: Int[Array, ' b'],
    limit_b: Int[Array, ' b'],
    state: DecodeState,
) -> DecodeState:
  """One round, committed; rows that have ended stay as they are."""
  played = play_round(
      spec, target_params, draft_params, sampling, keys_b, limit_b, state)
  with jax.named_scope('commit'):
    return commit(state, played, budget_b)


def _first_failure(played: Round) -> Int[Array, ' b']:
  """RUNNING, or which model gave a logit that is no number in this round."""
  target_finite_bp = played.verified.finite
  counts = (jnp.arange(target_finite_bp.shape[1])[None]
            <= played.proposed[:, None])
  target_bad = jnp.any(~target_finite_bp & counts, axis=1)
  if played.drafted is None:
    draft_bad = jnp.zeros_like(target_bad)
  else:
    draft_bad = jnp.any(~played.drafted.finite & counts[:, 1:], axis=1)
  # A draft that failed may have given the target nonsense to read.
  return jnp.where(
      draft_bad, BAD_DRAFT, jnp.where(target_bad, BAD_TARGET, RUNNING))


def commit(
    state: DecodeState, played: Round, budget_b: Int[Array, ' b']
) -> DecodeState:
  """Appends kept drafts and the next token, cut after the first EOS.

  Example: drafts (5, 1, 8), all kept, next 9: the row grows by 5 and 1 (EOS)
  and ends; accepted 2, discarded 1. Without the EOS it would grow by 5, 4, 8
  and 9.
  """
  running, tokens_bg, accepted = state.running, played.tokens, played.accepted
  bad_b = _first_failure(played)
  place = jnp.arange(tokens_bg.shape[1] + 1)[None]
  block_bp = jnp.pad(tokens_bg, ((0, 0), (0, 1)))
  block_bp = jnp.where(
      place == accepted.count[:, None], accepted.next[:, None], block_bp)
  is_eos = (block_bp == vocab.EOS_ID) & (place <= accepted.count[:, None])
  has_eos = jnp.any(is_eos, axis=1)
  grown_b = jnp.where(
      has_eos, jnp.argmax(is_eos, axis=1) + 1, accepted.count + 1)
  grown_b = jnp.where(running & (bad_b == RUNNING), grown_b, 0)
  block_bp = jnp.where(place < grown_b[:, None], block_bp, 0)

  length = state.length + grown_b
  ended = jnp.where(
      has_eos, EOS, jnp.where(length - 1 >= budget_b, LENGTH, RUNNING))
  ended = jnp.where(bad_b == RUNNING, ended, bad_b)
  kept_b = jnp.minimum(accepted.count, grown_b)

  def add(counts_br, now_b):
    now_b = jnp.where(running, now_b, 0)
    return counts_br.at[:, state.round].set(now_b)
  return dataclasses.replace(
      state,
      tokens=_write(state.tokens, block_bp, state.length),
      length=length,
      ended=jnp.where(running, ended, state.ended),
      round=state.round + 1,
      rounds=state.rounds + running.astype(jnp.int32),
      target_cache=cache_lib.rewind(played.verified.cache, length - 1),
      draft_state=(state.draft_state if played.drafted is None
                   else played.drafted.state),
      log=Log(
          drafted=add(state.log.drafted, played.proposed),
          accepted=add(state.log.accepted, kept_b),
          discarded=add(state.log.discarded, accepted.count - kept_b)))


def _write(tokens_bn, block_bp, length_b):
  """Writes each row's block at its own length (past an end: dropped zeros)."""
  rows = jnp.arange(tokens_bn.shape[0])[:, None]
  places = length_b[:, None] + jnp.arange(block_bp.shape[1])[None]
  return tokens_bn.at[rows, places].set(
      block_bp, mode='drop', unique_indices=True)
