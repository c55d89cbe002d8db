"""Drafts that are copied: from the row itself, or from its source.

Both look for the last tokens of a row in a text and propose what stood behind
them there. Where nothing matches they still propose something that is right now
and then and costs nothing: `lookup` the end of the sentence, `copy` the source
token at the row's own place (the first behind an empty row, the EOS past the
source's end). Their laws are one-hot at every temperature.

Letters: `b` batch, `n` token slots, `s` source length, `k` tokens to match.
"""

import functools
from typing import Any

import jax
from jax import numpy as jnp
from jaxtyping import Array, Int

from specdec_jax import draft as draft_lib
from specdec_jax import vocab

LONGEST = 3  # tokens that a match may have

_NONE = -1  # no token: nothing equals it


def follow(
    text_bn: Int[Array, 'b n'],
    length_b: Int[Array, ' b'],
    last_bk: Int[Array, 'b k'],
    otherwise_b: Int[Array, ' b'],
) -> Int[Array, ' b']:
  """What stands in a text behind the longest match of a row's last tokens.

  Args:
    text_bn: texts to look through, `length_b` tokens of each.
    last_bk: the last tokens, the newest first; -1 where there is none. A match
      ends in the newest; of the longest matches the last in the text counts.
    otherwise_b: the answer where not even the newest token is found.

  Example: in the text 5 6 7 5 6 8 9 6 4 the last tokens 5 6 give 8: the match
  of two that ends at place 4 is longer than that of one at place 7. The last
  tokens 7 7 give 5, the last token 4 has nothing behind it.
  """
  n = text_bn.shape[1]
  places = jnp.arange(n)[None]
  matched = jnp.ones_like(text_bn, dtype=bool)
  longest_bn = jnp.zeros_like(text_bn)
  for back in range(last_bk.shape[1]):
    earlier = jnp.pad(
        text_bn, ((0, 0), (back, 0)), constant_values=_NONE - 1)[:, :n]
    matched &= earlier == last_bk[:, back, None]
    longest_bn += matched.astype(jnp.int32)
  longest_bn = jnp.where(places + 1 < length_b[:, None], longest_bn, 0)
  best_b1 = jnp.argmax(longest_bn * n + places, axis=1)[:, None]
  found = jnp.take_along_axis(longest_bn, best_b1, axis=1) > 0
  behind = jnp.take_along_axis(
      text_bn, jnp.minimum(best_b1 + 1, n - 1), axis=1)
  return jnp.where(found[:, 0], behind[:, 0], otherwise_b)


def last_tokens(prefix: draft_lib.Prefix) -> Int[Array, 'b k']:
  """A row's last tokens, the newest first; the start token is none of them.

  Example: the row 0 5 6 gives (6, 5, -1).
  """
  at = prefix.length[:, None] - 1 - jnp.arange(LONGEST)[None]
  tokens = jnp.take_along_axis(prefix.tokens, jnp.maximum(at, 0), axis=1)
  return jnp.where(at > 0, tokens, _NONE)


def _lookup(size, params, state, prefix, sampling, uniform_b):
  eos_b = jnp.full_like(prefix.length, vocab.EOS_ID)
  token_b = follow(prefix.tokens, prefix.length, last_tokens(prefix), eos_b)
  return draft_lib.certain(token_b, size)


def _copy(size, params, source_bs, prefix, sampling, uniform_b):
  length_b = jnp.sum(source_bs != vocab.PAD_ID, axis=1)
  own_b1 = jnp.clip(prefix.length - 1, 0, length_b - 1)[:, None]
  own_b = jnp.take_along_axis(source_bs, own_b1, axis=1)[:, 0]
  token_b = follow(source_bs, length_b, last_tokens(prefix), own_b)
  return draft_lib.certain(token_b, size)


def _keep_source(params: Any, source_ids: jax.Array, slots: int) -> jax.Array:
  return jnp.copy(source_ids)  # it will be donated, the caller's ids not


@functools.cache
def lookup(size: int) -> draft_lib.Drafter:
  """Prompt lookup: continues like the row itself did after the same tokens.

  Example: behind 5 6 7 5 it proposes 6, then 7, then 5 (and 6 again); where
  the last token is new it proposes the EOS.
  """
  return draft_lib.proposer(functools.partial(_lookup, size))


@functools.cache
def copy(size: int) -> draft_lib.Drafter:
  """Continues as the source does behind the row's last tokens.

  Example: with the source 5 6 7 8 EOS it proposes 5 6 7 behind an empty row,
  7 8 EOS behind 9 6, and 6 7 8 behind 9 (no match: the source's token at that
  place, which then matches).
  """
  return draft_lib.proposer(functools.partial(_copy, size), _keep_source)
