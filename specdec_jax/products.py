"""Products with weights that lie (out, in): how a CPU reads them once for all.

XLA's libraries compute a product of few rows on one core, and pack every
weight anew for it. Written as sums, one loop reads each weight once, multiplies
it with every row and is divided over the cores. It needs leave to add in
another order (`backend.compiler_options`), as every matrix library takes it.

Weights that bfloat16 holds exactly are kept in it (`lay`): half the bytes, and
the same float32 products. All products with them are sums, those of the encoder
too; with weights of float32 only those of few rows are.

Letters: `r` rows, `i` in, `o` out.
"""

from collections.abc import Sequence
import itertools
import math
from typing import Any

import jax
from jax import numpy as jnp
from jaxtyping import Array, Float

# By measurement on two cores (AVX-512), inputs of 96 to 1,024.
_LEAST_SIZE = 2**17   # of a kernel that is kept narrow: less is soon read
_TOGETHER = 8         # rows of one loop: what its registers hold
_MOST_ROWS = 11       # above it the library is as fast with float32


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
  count = rows_ri.shape[0]
  narrow = kernel_oi.dtype == jnp.bfloat16
  if few(count) or (narrow and count <= 2 * _TOGETHER):
    y_ro = sums(rows_ri, kernel_oi)
  elif narrow:
    y_ro = _blocks(rows_ri, kernel_oi)
  else:
    y_ro = _library(rows_ri, kernel_oi)
  return y_ro.reshape(*x.shape[:-1], -1)


def _blocks(rows_ri, kernel_oi):
  """Many rows and a narrow kernel: one block of rows after the other, since to
  widen the kernel for the library costs as much as the product."""
  count, inputs = rows_ri.shape
  padded = jnp.pad(rows_ri, ((0, -count % _TOGETHER), (0, 0)))
  y = jax.lax.map(lambda block: sums(block, kernel_oi),
                  padded.reshape(-1, _TOGETHER, inputs))
  return y.reshape(padded.shape[0], -1)[:count]


def _library(rows_ri, kernel_oi):
  """The order w x' of the product; without barriers it would be turned round
  and the weight copied each time."""
  rows_ri, kernel_oi = jax.lax.optimization_barrier((rows_ri, kernel_oi))
  turned = jax.lax.optimization_barrier(rows_ri.T)
  return jax.lax.optimization_barrier(kernel_oi @ turned).T


def few(count: int) -> bool:
  """Whether so many rows are better written as sums."""
  return count <= _MOST_ROWS


def sums(
    rows: Float[Array, 'r *b i'], kernel: Float[Array, '*b o i']
) -> Float[Array, 'r *b o']:
  """The product of each row with the kernel, a sum over `i` in float32.

  Attention is such a product too: its kernel are keys or values.
  """
  # Barriers: else what makes the rows would be computed again for each weight,
  # and whole weights would be converted in front of the loop over tokens.
  rows, kernel = jax.lax.optimization_barrier((rows, kernel))
  return jnp.stack([y for group in _groups([*rows])
                    for y in _sums(group, kernel)])


def _groups(rows: Sequence[Any]) -> list[Sequence[Any]]:
  """Rows in as few groups as `_TOGETHER` allows, all about as large.

  Example: 9 rows make groups of 4 and 5, and 8 one group.
  """
  groups = -(-len(rows) // _TOGETHER)
  cuts = [len(rows) * i // groups for i in range(groups + 1)]
  return [rows[start:end] for start, end in itertools.pairwise(cuts)]


def _sums(rows, kernel):
  """One loop for these rows.

  With several rows of float32 each part of the outputs has sums of its own, so
  that what is read of a row serves two or four weights.
  """
  *batch, outputs, inputs = kernel.shape
  narrow = kernel.dtype == jnp.bfloat16
  parts = 1 if batch or narrow or len(rows) == 1 else math.gcd(
      outputs, 2 if len(rows) <= 4 else 4)
  kernels = kernel.reshape(*batch, parts, -1, inputs)
  terms = [
      row[..., None, :].astype(jnp.float32)
      * kernels[..., part, :, :].astype(jnp.float32)
      for row in rows for part in range(parts)]
  ys = jax.lax.reduce(
      terms, [jnp.zeros((), jnp.float32)] * len(terms),
      lambda a, b: [x + y for x, y in zip(a, b, strict=True)],
      (len(batch) + 1,))
  return [jnp.concatenate(ys[i:i + parts], axis=-1)
          for i in range(0, len(ys), parts)]
