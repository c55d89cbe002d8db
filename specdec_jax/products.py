"""Products with weights that lie (out, in): how a CPU reads them once for all.

XLA's libraries compute a product of few rows on one core, and pack every
weight anew for it. Written as sums, one loop reads each weight once, multiplies
it with every row and is divided over the cores. It needs leave to add in
another order (`backend.compiler_options`), as every matrix library takes it.

Weights that bfloat16 holds exactly are kept in it (`lay`): half the bytes, and
the same float32 products.

Letters: `r` rows, `i` in, `o` out.
"""

import itertools
import math

import jax
from jax import numpy as jnp
from jaxtyping import Array, Float

# By measurement on two cores (AVX-512), inputs of 96 to 1,024.
_LEAST_IN = 256       # of a kernel that is kept narrow: a shorter loop is over
_LEAST_SIZE = 2**17   # before converting and a second core have paid
_TOGETHER = 7         # rows of one loop: what its registers hold
_MOST_ROWS = 14       # above it the library for large products is as fast


def lay(kernel_oi: Float[Array, 'o i']) -> Float[Array, 'o i']:
  """The kernel as `project` reads it: bfloat16 where that loses nothing."""
  if kernel_oi.shape[1] < _LEAST_IN or kernel_oi.size < _LEAST_SIZE:
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
  # Barriers: else what makes the rows would be computed again for each weight,
  # and whole weights would be converted in front of the loop over tokens.
  rows_ri, kernel_oi = jax.lax.optimization_barrier((rows_ri, kernel_oi))
  if rows_ri.shape[0] > _MOST_ROWS:
    y_ro = _library(rows_ri, kernel_oi.astype(jnp.float32))
  else:
    y_ro = jnp.concatenate([
        _sums(some_ri, kernel_oi) for some_ri in _groups(rows_ri)])
  return y_ro.reshape(*x.shape[:-1], -1)


def _library(rows_ri, kernel_oi):
  """The order w x' of the product; without barriers it would be turned round
  and the weight copied each time."""
  turned = jax.lax.optimization_barrier(rows_ri.T)
  return jax.lax.optimization_barrier(kernel_oi @ turned).T


def _groups(rows_ri):
  """Rows in as few groups as `_TOGETHER` allows, all about as large.

  Example: 9 rows make groups of 4 and 5, and 7 one group.
  """
  count = rows_ri.shape[0]
  groups = -(-count // _TOGETHER)
  cuts = [count * i // groups for i in range(groups + 1)]
  return [rows_ri[start:end] for start, end in itertools.pairwise(cuts)]


def _sums(rows_ri, kernel_oi):
  """One sum over `i` for each row and each part of the outputs, in one loop.

  Two parts where weights are large and rows several, so that what is read of a
  row serves two weights.
  """
  count, narrow = rows_ri.shape[0], kernel_oi.dtype == jnp.bfloat16
  parts = 1 if count == 1 or narrow else math.gcd(kernel_oi.shape[0], 2)
  kernel_poi = kernel_oi.reshape(parts, -1, kernel_oi.shape[1])
  terms = [row_i[None] * kernel_poi[part].astype(jnp.float32)
           for row_i in rows_ri for part in range(parts)]
  sums = jax.lax.reduce(
      terms, [jnp.zeros((), jnp.float32)] * len(terms),
      lambda a, b: [x + y for x, y in zip(a, b, strict=True)], (1,))
  return jnp.stack(sums).reshape(count, -1)
