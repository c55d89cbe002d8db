"""Products with weights that lie (out, in): how a CPU reads them once for all.

XLA's libraries compute a product of few rows on one core, and pack every
weight anew for it. Written as sums, one loop reads each weight once, multiplies
it with every row and is divided over the cores. It needs leave to add in
another order (`backend.compiler_options`), as every matrix library takes it.

A core that adds up many rows at once asks the memory for weights too seldom. So
the loop goes over a few outputs for two rows, then over the same outputs for
the next two, whose weights it finds in the cache: only the first two wait.

Weights that bfloat16 holds exactly are kept in it (`lay`): half the bytes, and
the same float32 products. All products with them are sums, those of the encoder
too; with weights of float32 only those of few rows are.

Letters: `r` rows, `i` in, `o` out.
"""

from collections.abc import Sequence
import dataclasses
import math
from typing import Any

import jax
from jax import numpy as jnp
from jaxtyping import Array, Float

# By measurement on two cores (AVX-512, 1 MB of cache each), inputs of 96 to
# 1,024.
_LEAST_SIZE = 2**17   # of a kernel that is kept narrow: less is soon read
_LARGE = 2**20        # a narrow kernel that will come from memory
_MOST_ROWS = 24       # above it the library is as fast with float32
_FEW_POSITIONS = 11   # of attention; the same
_CHUNK = 2**18        # bytes of outputs that serve all rows before the next do


def lay(kernel_oi: Float[Array, 'o i']) -> Float[Array, 'o i']:
  """The kernel as `project` reads it: bfloat16 where that loses nothing."""
  if kernel_oi.size < _LEAST_SIZE:
    return kernel_oi
  narrow = kernel_oi.astype(jnp.bfloat16)
  exact = jnp.all(narrow.astype(kernel_oi.dtype) == kernel_oi)
  return narrow if exact else kernel_oi


def project(
    x: Float[Array, '... i'], kernel_oi: Float[Array, 'o i']
) -> Float[Array, '... o']:
  """x @ kernel.T, added up in float32; the result is float32.

  How many rows there are chooses the form and never the value.
  """
  rows_ri = x.reshape(-1, x.shape[-1]).astype(jnp.float32)
  narrow = kernel_oi.dtype == jnp.bfloat16
  if narrow or rows_ri.shape[0] <= _MOST_ROWS:
    y_ro = _tiled(rows_ri, kernel_oi)
  else:
    y_ro = _library(rows_ri, kernel_oi)
  return y_ro.reshape(*x.shape[:-1], -1)


def _library(rows_ri, kernel_oi):
  """The order w x' of the product; without barriers it would be turned round
  and the weight copied each time."""
  rows_ri, kernel_oi = jax.lax.optimization_barrier((rows_ri, kernel_oi))
  turned = jax.lax.optimization_barrier(rows_ri.T)
  return jax.lax.optimization_barrier(kernel_oi @ turned).T


@dataclasses.dataclass(frozen=True)
class _Tiles:
  """How a product is cut: `groups` of `rows` (the last filled up), and outputs
  in `parts` of `chunks` of `width`.

  One loop body has a sum for each row of a group and for each part: what is
  read of a row then serves as many weights as there are parts.
  """
  groups: int
  rows: int
  parts: int
  chunks: int
  width: int


def _tiles(count: int, outputs: int, inputs: int, narrow: bool) -> _Tiles:
  """The tiles of `count` rows.

  Example: 5 rows, 768 outputs and inputs: float32 weights go to 3 groups of 2
  rows, and outputs to 2 parts of 12 chunks of 32, each 96 KB of weights; narrow
  ones, below `_LARGE`, to one loop over all outputs.
  """
  large = outputs * inputs >= _LARGE
  if narrow:
    together, parts, size = 4 if large else 8, 1, 2
  else:
    together, parts, size = 2, math.gcd(outputs, min(count, 2)), 4
  groups = -(-count // together)
  width = outputs // parts
  if groups > 1 and (large or not narrow):
    most = max(1, _CHUNK // (parts * inputs * size))
    width = max(n for n in range(1, min(most, width) + 1) if width % n == 0)
  return _Tiles(groups, -(-count // groups), parts,
                outputs // parts // width, width)


def _tiled(rows_ri, kernel_oi):
  """All outputs as one loop, see `_Tiles`."""
  count, inputs = rows_ri.shape
  cut = _tiles(
      count, kernel_oi.shape[0], inputs, kernel_oi.dtype == jnp.bfloat16)
  rows_ri, kernel_oi = _apart(rows_ri, kernel_oi)
  rows = jnp.pad(rows_ri, ((0, cut.groups * cut.rows - count), (0, 0)))
  rows = rows.reshape(1, cut.groups, cut.rows, 1, inputs)
  kernels = kernel_oi.reshape(cut.parts, cut.chunks, 1, cut.width, inputs)
  # Of each row of a group and each part (chunks, groups, width).
  ys = _loop([rows[:, :, i] for i in range(cut.rows)], [*kernels])
  ys = [jnp.moveaxis(y, 1, 0).reshape(cut.groups, -1) for y in ys]
  of_rows = [jnp.concatenate(ys[i:i + cut.parts], axis=1)
             for i in range(0, len(ys), cut.parts)]
  return jnp.stack(of_rows, axis=1).reshape(-1, kernel_oi.shape[0])[:count]


def few(positions: int) -> bool:
  """Whether attention of so many positions is better written as sums."""
  return positions <= _FEW_POSITIONS


def sums(
    rows: Float[Array, 'r *b i'], kernel: Float[Array, '*b o i']
) -> Float[Array, 'r *b o']:
  """The product of each row with its kernel, a sum over `i` in float32: of
  queries and keys, of weights and values."""
  rows, kernel = _apart(rows, kernel)
  return jnp.stack(_loop([row[..., None, :] for row in rows], [kernel]))


def _apart(rows, kernel):
  """Barriers: else what makes the rows would be computed again for each weight,
  and whole weights would be converted in front of the loop over tokens."""
  return jax.lax.optimization_barrier((rows, kernel))


def _loop(rows: Sequence[Any], kernels: Sequence[Any]) -> list[Any]:
  """Of each row the sums with each kernel, over the last axis, in one loop."""
  terms = [row.astype(jnp.float32) * kernel.astype(jnp.float32)
           for row in rows for kernel in kernels]
  return jax.lax.reduce(
      terms, [jnp.zeros((), jnp.float32)] * len(terms),
      lambda a, b: [x + y for x, y in zip(a, b, strict=True)],
      (terms[0].ndim - 1,))
