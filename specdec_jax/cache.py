"""Decoder state of one model: self-attention slots and cross-attention.

The cache is an argument and a result, never a mutable collection. Rewinding is
writing `length`: slots at or past it are stale, hidden by the mask of the
reader, and overwritten by the next write.

Keys lie with the head size innermost and values with the slots innermost: what
the two products of attention add up lies side by side, and no step copies a
cache into another order.

Letters: `b` batch, `s` source length, `t` positions of this call, `n` slots,
`h` heads, `k` head size.
"""

import dataclasses
from typing import Any, TypeVar

import jax
from jax import numpy as jnp
from jaxtyping import Array, Bool, Float, Int

State = TypeVar('State')

_FEW_SLOTS = 64  # fewer are not worth a program of their own


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class CrossKV:
  """Keys and values of the encoded source, one pair a layer; never changes."""
  k: tuple[Float[Array, 'b h s k'], ...]
  v: tuple[Float[Array, 'b h k s'], ...]
  mask: Bool[Array, 'b s']  # True where the source has a token


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class KVCache:
  """Self-attention keys and values, one pair a layer, `length` valid slots.

  `length` counts the tokens that the decoder has read, the start token
  included; the next token stands at that position.
  """
  k: tuple[Float[Array, 'b h n k'], ...]
  v: tuple[Float[Array, 'b h k n'], ...]
  length: Int[Array, ' b']
  cross: CrossKV

  @property
  def slots(self) -> int:
    return self.k[0].shape[-2]


def init(cross: CrossKV, slots: int) -> KVCache:
  """Returns an empty cache of `slots` positions, shaped after `cross`."""
  def empty(x, axis):
    shape = list(x.shape)
    shape[axis] = slots
    return jnp.zeros(shape, x.dtype)
  return KVCache(
      k=tuple(empty(k, 2) for k in cross.k),
      v=tuple(empty(v, 3) for v in cross.v),
      length=jnp.zeros(cross.mask.shape[0], jnp.int32),
      cross=cross)


def ordered(
    k_bnhk: Float[Array, 'b n h k'], v_bnhk: Float[Array, 'b n h k']
) -> tuple[Float[Array, 'b h n k'], Float[Array, 'b h k n']]:
  """Keys and values of whole sequences, in the order of the caches."""
  return (jnp.transpose(k_bnhk, (0, 2, 1, 3)),
          jnp.transpose(v_bnhk, (0, 2, 3, 1)))


def write(
    k_bhnk: Float[Array, 'b h n k'],
    v_bhkn: Float[Array, 'b h k n'],
    k_new: Float[Array, 'b t h k'],
    v_new: Float[Array, 'b t h k'],
    length_b: Int[Array, ' b'],
) -> tuple[Float[Array, 'b h n k'], Float[Array, 'b h k n']]:
  """Writes `t` positions of each row at its own length.

  The caller provides room: a block that does not fit raises nothing here, its
  part past the end is dropped and never moved back over history.

  Example: with n = 4, t = 2 and lengths (0, 2), row 0 fills slots 0 and 1, row
  1 fills slots 2 and 3; with length 3, row 1 would fill slot 3 only.
  """
  positions = length_b[:, None] + jnp.arange(k_new.shape[1])[None]
  if positions.size > 1:
    return _scatter(k_bhnk, v_bhkn, k_new, v_new, positions)
  return jax.lax.platform_dependent(
      k_bhnk, v_bhkn, k_new, v_new, positions,
      cpu=_scatter_one, default=_scatter)


def _scatter(k_bhnk, v_bhkn, k_new, v_new, positions_bt):
  rows = jnp.arange(k_bhnk.shape[0])[:, None]
  how: Any = dict(mode='drop', unique_indices=True)
  return (k_bhnk.at[rows, :, positions_bt].set(k_new, **how),
          v_bhkn.at[rows, :, :, positions_bt].set(v_new, **how))


def _scatter_one(k_bhnk, v_bhkn, k_new, v_new, positions_bt):
  """One position of one row, on a CPU.

  There XLA turns such a scatter into slice updates, one for each reader, and
  copies the whole cache for each. A second position, past the end and so
  dropped, keeps it a scatter in place.
  """
  end = k_bhnk.shape[-2]
  return _scatter(
      k_bhnk, v_bhkn, jnp.repeat(k_new, 2, axis=1),
      jnp.repeat(v_new, 2, axis=1),
      jnp.pad(positions_bt, ((0, 0), (0, 1)), constant_values=end))


def rewind(cache: KVCache, length: Int[Array, ' b']) -> KVCache:
  """Returns the cache with `length` valid slots a row; nothing is copied."""
  return dataclasses.replace(cache, length=length)


def sizes(slots: int, block: int = 1) -> tuple[int, ...]:
  """The rooms that a cache grows through, the last of `slots`.

  Whoever reads a cache reads all of its slots. So it begins small, but with
  room for two blocks of `block` positions, and doubles when it is full.

  Example: 264 slots are 66, then 132, then 264; 126 slots are 126. With blocks
  of 40 positions 264 slots are 132, then 264.
  """
  least, found = max(_FEW_SLOTS, 2 * block), [slots]
  while -(-found[0] // 2) >= least:
    found.insert(0, -(-found[0] // 2))
  return tuple(found)


def grow(state: State, slots: int) -> State:
  """The same tree with every cache in it of `slots` slots, the new ones empty.
  """
  def padded(x, axis):
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, slots - x.shape[axis])
    return jnp.pad(x, widths)

  def grown(leaf):
    if not isinstance(leaf, KVCache):
      return leaf
    return dataclasses.replace(
        leaf, k=tuple(padded(k, 2) for k in leaf.k),
        v=tuple(padded(v, 3) for v in leaf.v))
  return jax.tree.map(
      grown, state, is_leaf=lambda leaf: isinstance(leaf, KVCache))
