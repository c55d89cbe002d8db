"""What T5's encoder and decoder are made of, with T5X parameter names.

Letters: `b` batch, `t` positions of this call, `n` slots, `d` width, `h` heads,
`k` head size, `f` MLP.
"""

import functools
from typing import Any

from flax import linen as nn
import jax
from jax import numpy as jnp
from jaxtyping import Array, Float

from specdec_jax import products
from specdec_jax.architecture import T5Config


def normal(std: float):
  return nn.initializers.normal(std)


def project(x, kernel, dtype=None) -> Float[Array, '... o']:
  """x @ kernel in the dtype of x; the result in `dtype` (default: the same)."""
  return jnp.matmul(x, kernel.astype(x.dtype),
                    preferred_element_type=dtype or x.dtype)


class RMSNorm(nn.Module):
  """Root-mean-square norm in float32, without mean or bias."""
  epsilon: float

  @nn.compact
  def __call__(self, x: Float[Array, '... d']) -> Float[Array, '... d']:
    scale = self.param('scale', nn.initializers.ones, (x.shape[-1],))
    x32 = x.astype(jnp.float32)
    mean_square = jnp.mean(jnp.square(x32), axis=-1, keepdims=True)
    normed = (x32 * jax.lax.rsqrt(mean_square + self.epsilon)).astype(x.dtype)
    return normed * jnp.expand_dims(
        scale.astype(x.dtype), range(x.ndim - 1))


class Linear(nn.Module):
  """A product with a two-dimensional kernel (in, out); no bias.

  Packed, the kernel lies (out, in), see `products`.
  """
  features: int
  std: float
  packed: bool = False

  @nn.compact
  def __call__(
      self, x: Float[Array, '... i'], dtype: Any = None
  ) -> Float[Array, '... o']:
    shape = (x.shape[-1], self.features)
    if self.packed:
      kernel = self.param('transposed', normal(self.std), shape[::-1])
      return products.project(x, kernel).astype(dtype or x.dtype)
    return project(x, self.param('kernel', normal(self.std), shape), dtype)


class Mlp(nn.Module):
  """Gated GELU (1.1) or relu (1.0); packed, both gates in one product."""
  config: T5Config
  dropout_rate: float
  packed: bool = False

  @nn.compact
  def __call__(self, x_btd: Float[Array, 'b t d']) -> Float[Array, 'b t d']:
    c = self.config
    wi = functools.partial(Linear, c.d_ff, c.d_model**-0.5, self.packed)
    if c.gated and self.packed:
      both = Linear(
          2 * c.d_ff, c.d_model**-0.5, self.packed, name='wi_both')(x_btd)
      gate, up = jnp.split(both, 2, axis=-1)
      x_btf = nn.gelu(gate) * up
    elif c.gated:
      x_btf = nn.gelu(wi(name='wi_0')(x_btd)) * wi(name='wi_1')(x_btd)
    else:
      x_btf = nn.relu(wi(name='wi')(x_btd))
    x_btf = nn.Dropout(self.dropout_rate, deterministic=False)(x_btf)
    return Linear(
        c.d_model, c.d_ff**-0.5, self.packed, name='wo')(x_btf)


class Attention(nn.Module):
  """Multi-head attention over given keys and values; kernels are head-major.

  Packed, kernels lie (out, in), and key and value come from one product;
  joined, the query does too.
  """
  config: T5Config
  dropout_rate: float
  packed: bool = False
  joined: bool = False

  def setup(self):
    c = self.config
    width = c.num_heads * c.head_dim
    # The 1/sqrt(k) of other transformers stands in the query initialiser.
    if self.joined:
      self.query_key_value = Linear(3 * width, c.d_model**-0.5, self.packed)
    else:
      self.query = Linear(
          width, (c.d_model * c.head_dim)**-0.5, self.packed)
      if self.packed:
        self.key_value = Linear(2 * width, c.d_model**-0.5, self.packed)
      else:
        self.key = Linear(width, c.d_model**-0.5)
        self.value = Linear(width, c.d_model**-0.5)
    self.out = Linear(c.d_model, width**-0.5, self.packed)
    self.dropout = nn.Dropout(self.dropout_rate, deterministic=False)

  def _heads(self, x):
    return x.reshape(*x.shape[:-1], self.config.num_heads, self.config.head_dim)

  def keys_values(self, x_bnd):
    if self.packed:
      k, v = jnp.split(self.key_value(x_bnd), 2, axis=-1)
    else:
      k, v = self.key(x_bnd), self.value(x_bnd)
    return self._heads(k), self._heads(v)

  def queries(self, x_btd):
    return self._heads(self.query(x_btd))

  def queries_keys_values(self, x_btd):
    """Of self-attention, each (b, t, h, k)."""
    if not self.joined:
      return self.queries(x_btd), *self.keys_values(x_btd)
    return tuple(map(
        self._heads, jnp.split(self.query_key_value(x_btd), 3, axis=-1)))

  def __call__(
      self,
      q_bthk: Float[Array, 'b t h k'],
      k_bhnk: Float[Array, 'b h n k'],
      v_bhkn: Float[Array, 'b h k n'],
      bias: Float[Array, '#b #h #t n'],
  ) -> Float[Array, 'b t d']:
    positions = q_bthk.shape[1]
    as_sums = self.packed and products.few(positions)
    if as_sums:
      scores = jnp.moveaxis(
          products.sums(jnp.moveaxis(q_bthk, 1, 0), k_bhnk), 0, 2)
    else:
      scores = jnp.einsum('bthk,bhnk->bhtn', q_bthk, k_bhnk,
                          preferred_element_type=jnp.float32)
    weights = jax.nn.softmax(scores + bias, axis=-1).astype(q_bthk.dtype)
    weights = self.dropout(weights)
    if as_sums:
      mixed_bthk = jnp.moveaxis(
          products.sums(jnp.moveaxis(weights, 2, 0), v_bhkn), 0, 1)
      mixed_bthk = mixed_bthk.astype(q_bthk.dtype)
    else:
      mixed_bthk = jnp.einsum('bhtn,bhkn->bthk', weights, v_bhkn)
    return self.out(mixed_bthk.reshape(*q_bthk.shape[:2], -1))
