"""Decoder state of one model: self-attention slots and cross-attention.

The cache is an argument and a result, never a mutable collection. Rewinding is
writing `length`: slots at or past it are stale, hidden by the mask of the
reader, and overwritten by the next write.

Letters: `b` batch, `s` source length, `t` positions of this call, `n` slots,
`h` heads, `k` head size.
"""

import dataclasses

import jax
from jax import numpy as jnp
from jaxtyping import Array, Bool, Float, Int


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class CrossKV:
  """Keys and values of the encoded source, one pair a layer; never changes."""
  k: tuple[Float[Array, 'b s h k'], ...]
  v: tuple[Float[Array, 'b s h k'], ...]
  mask: Bool[Array, 'b s']  # True where the source has a token


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class KVCache:
  """Self-attention keys and values, one pair a layer, `length` valid slots.

  `length` counts the tokens that the decoder has read, the start token
  included; the next token stands at that position.
  """
  k: tuple[Float[Array, 'b n h k'], ...]
  v: tuple[Float[Array, 'b n h k'], ...]
  length: Int[Array, ' b']
  cross: CrossKV

  @property
  def slots(self) -> int:
    return self.k[0].shape[1]


def init(cross: CrossKV, slots: int) -> KVCache:
  """Returns an empty cache of `slots` positions, shaped after `cross`."""
  def empty(x):
    return jnp.zeros((x.shape[0], slots, *x.shape[2:]), x.dtype)
  return KVCache(
      k=tuple(map(empty, cross.k)),
      v=tuple(map(empty, cross.v)),
      length=jnp.zeros(cross.mask.shape[0], jnp.int32),
      cross=cross)


def write(
    slots_bnhk: Float[Array, 'b n h k'],
    new_bthk: Float[Array, 'b t h k'],
    length_b: Int[Array, ' b'],
) -> Float[Array, 'b n h k']:
  """Writes `t` positions of each row at its own length.

  The caller provides room: a block that does not fit raises nothing here, its
  part past the end is dropped and never moved back over history.

  Example: with n = 4, t = 2 and lengths (0, 2), row 0 fills slots 0 and 1, row
  1 fills slots 2 and 3; with length 3, row 1 would fill slot 3 only.
  """
  t = new_bthk.shape[1]
  rows = jnp.arange(slots_bnhk.shape[0])[:, None]
  positions = length_b[:, None] + jnp.arange(t)[None]
  return slots_bnhk.at[rows, positions].set(
      new_bthk, mode='drop', unique_indices=True)


def rewind(cache: KVCache, length: Int[Array, ' b']) -> KVCache:
  """Returns the cache with `length` valid slots a row; nothing is copied."""
  return dataclasses.replace(cache, length=length)
