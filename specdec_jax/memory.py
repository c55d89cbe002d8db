"""Bytes of weights and caches, and whether they fit on a chip.

The bytes are those of the very arrays that decoding makes, from
`jax.eval_shape`: nothing is allocated and no formula is trusted. Activations,
compiled programs and the runtime are not counted; `RESERVE` stands for them.
"""

import dataclasses
from typing import Any

import jax
from jax import numpy as jnp

from specdec_jax import cache as cache_lib
from specdec_jax import t5
from specdec_jax.architecture import T5Config

GB = 10**9
# Memory of one chip in bytes, as the makers print it.
CHIPS = {
    'TPU v4': 32 * 2**30, 'TPU v5e': 16 * GB, 'TPU v5p': 95 * GB,
    'TPU v6e': 32 * GB, 'A100': 80 * GB, 'H100': 80 * GB, 'H200': 141 * GB}
# Share of a chip that decoding cannot have for weights and caches.
RESERVE = 0.05
BYTES = {'float32': 4, 'bfloat16': 2, 'float8': 1}


@dataclasses.dataclass(frozen=True)
class Shape:
  """What the caches depend on.

  Attributes:
    batch_size: sentences decoded together.
    source_length: padded encoder length.
    slots: of the self-attention caches; budget + gamma + 1.
  """
  batch_size: int
  source_length: int
  slots: int


@dataclasses.dataclass(frozen=True)
class Need:
  """Bytes of one model; `cache` is None where only a size is known."""
  weights: int
  cache: int | None


def _size(tree: Any) -> int:
  return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def of_model(config: T5Config, dtype: str, shape: Shape) -> Need:
  """Weights of the whole model, and its caches while it decodes.

  A compiled loop keeps every size that a cache grows through, see `cache`.
  """
  if dtype not in ('float32', 'bfloat16'):
    raise ValueError(
        f'dtype={dtype!r}: allowed are float32 or bfloat16 for a model; '
        'float8 for a number of parameters')
  params = jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape, jnp.dtype(dtype)),
      t5.param_shapes(config))
  source = jax.ShapeDtypeStruct(
      (shape.batch_size, shape.source_length), jnp.int32)
  start = t5.bind(config, dtype=jnp.dtype(dtype)).start
  caches = [
      jax.eval_shape(lambda p, s, n=slots: start(p, s, n), params, source)
      for slots in cache_lib.sizes(shape.slots)]
  return Need(_size(params), _size(caches[-1]) + sum(
      _size((smaller.k, smaller.v)) for smaller in caches[:-1]))


def of_count(parameters: float, dtype: str) -> Need:
  """Weights of a model of which only the number of parameters is known."""
  if dtype not in BYTES:
    raise ValueError(f'dtype={dtype!r}: allowed are {", ".join(BYTES)}')
  return Need(round(parameters * BYTES[dtype]), None)


@dataclasses.dataclass(frozen=True)
class Fit:
  """Bytes left on a chip, below 0 where there are too few, and the verdict:
  `yes`, `no`, or `not in practice` where only the reserve would make it fit."""
  left: int
  verdict: str


def fit(needs: list[Need], chip_bytes: float) -> Fit:
  """Whether all weights and known caches fit on one chip.

  Example: 78.6 GB on a chip of 80 GB leave 1.4 GB, less than the reserve of
  4 GB: not in practice.
  """
  left = round(chip_bytes) - sum(n.weights + (n.cache or 0) for n in needs)
  if left < 0:
    return Fit(left, 'no')
  enough = left >= RESERVE * chip_bytes
  return Fit(left, 'yes' if enough else 'not in practice')
