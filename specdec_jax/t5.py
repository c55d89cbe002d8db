"""T5 1.0 and 1.1 as two pure functions, with T5X parameter names.

`bind(config, ...)` returns `start(params, source_ids, slots) -> cache` and
`extend(params, tokens, cache) -> (logits, cache)`. Training, plain decoding and
verification all read tokens through the same `extend`; how many at once is the
width of `tokens` and changes nothing else.

Semantics (T5X, Raffel et al. 2020): pre-norm RMS layer norm without mean or
bias, no 1/sqrt(k) in attention, no biases, one relative-position table a stack,
tanh-approximated GELU, softmax and logits in float32. T5 1.0 is relu and ties
the logits to the embedding, scaled by 1/sqrt(d); 1.1 is gated and untied.

Letters: `b` batch, `s` source length, `t` positions of this call, `n` slots,
`d` width, `h` heads, `k` head size, `f` MLP, `v` vocabulary.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

from flax import linen as nn
import jax
from jax import numpy as jnp
from jaxtyping import Array, Bool, Float, Int
import numpy as np

from specdec_jax import cache as cache_lib
from specdec_jax import layers
from specdec_jax import products
from specdec_jax.architecture import bidirectional_buckets
from specdec_jax.architecture import relative_buckets
from specdec_jax.architecture import SIZES as SIZES
from specdec_jax.architecture import T5Config

Params = dict[str, Any]

_MASKED = -1e9  # finite, so that a row of pads only stays finite


class EncoderLayer(nn.Module):
  """Self-attention and MLP over the whole source."""
  config: T5Config
  dropout_rate: float
  packed: bool = False

  @nn.compact
  def __call__(self, x_bsd, bias):
    c, rate = self.config, self.dropout_rate
    norm = functools.partial(layers.RMSNorm, c.norm_epsilon)
    drop = functools.partial(nn.Dropout, rate, deterministic=False)
    attention = layers.Attention(
        c, rate, self.packed, joined=self.packed, name='attention')
    y = norm(name='pre_attention_layer_norm')(x_bsd)
    q, k, v = attention.queries_keys_values(y)
    x_bsd += drop()(attention(q, *cache_lib.ordered(k, v), bias))
    y = norm(name='pre_mlp_layer_norm')(x_bsd)
    return x_bsd + drop()(layers.Mlp(c, rate, self.packed, name='mlp')(y))


class RelativeBias(nn.Module):
  """One table (heads, buckets) for all layers of a stack."""
  config: T5Config

  @nn.compact
  def __call__(self, buckets: np.ndarray) -> Float[Array, 'h ...']:
    shape = (self.config.num_heads, self.config.relpos_buckets)
    table = self.param(
        'rel_embedding', layers.normal(self.config.d_model**-0.5), shape)
    return table.astype(jnp.float32)[:, buckets]


class Encoder(nn.Module):
  """Encodes the embedded source."""
  config: T5Config
  dropout_rate: float
  packed: bool = False

  @nn.compact
  def __call__(
      self, x_bsd: Float[Array, 'b s d'], mask_bs: Bool[Array, 'b s']
  ) -> Float[Array, 'b s d']:
    c, rate = self.config, self.dropout_rate
    buckets = bidirectional_buckets(
        x_bsd.shape[1], c.relpos_buckets, c.relpos_max_distance)
    bias = RelativeBias(c, name='relpos_bias')(buckets)[None]
    bias = bias + _mask_bias(mask_bs[:, None, None, :])
    drop = functools.partial(nn.Dropout, rate, deterministic=False)
    x_bsd = drop()(x_bsd)
    for i in range(c.encoder_layers):
      x_bsd = EncoderLayer(
          c, rate, self.packed, name=f'layers_{i}')(x_bsd, bias)
    return drop()(layers.RMSNorm(c.norm_epsilon, name='encoder_norm')(x_bsd))


class DecoderLayer(nn.Module):
  """Self-attention over the cache, cross-attention, MLP."""
  config: T5Config
  dropout_rate: float
  packed: bool = False

  def setup(self):
    c, rate = self.config, self.dropout_rate
    self.pre_self_attention_layer_norm = layers.RMSNorm(c.norm_epsilon)
    self.pre_cross_attention_layer_norm = layers.RMSNorm(c.norm_epsilon)
    self.pre_mlp_layer_norm = layers.RMSNorm(c.norm_epsilon)
    self.self_attention = layers.Attention(
        c, rate, self.packed, joined=self.packed)
    self.encoder_decoder_attention = layers.Attention(c, rate, self.packed)
    self.mlp = layers.Mlp(c, rate, self.packed)
    self.dropout = nn.Dropout(rate, deterministic=False)

  def cross_keys_values(self, encoded_bsd):
    return cache_lib.ordered(
        *self.encoder_decoder_attention.keys_values(encoded_bsd))

  def __call__(self, x_btd, cache, layer, self_bias, cross_bias):
    """Returns (x_btd, k_bhnk, v_bhkn) with this call's positions written."""
    y = self.pre_self_attention_layer_norm(x_btd)
    q, k_new, v_new = self.self_attention.queries_keys_values(y)
    k, v = cache_lib.write(
        cache.k[layer], cache.v[layer], k_new, v_new, cache.length)
    x_btd += self.dropout(self.self_attention(q, k, v, self_bias))
    y = self.pre_cross_attention_layer_norm(x_btd)
    q = self.encoder_decoder_attention.queries(y)
    x_btd += self.dropout(self.encoder_decoder_attention(
        q, cache.cross.k[layer], cache.cross.v[layer], cross_bias))
    y = self.pre_mlp_layer_norm(x_btd)
    return x_btd + self.dropout(self.mlp(y)), k, v


class Decoder(nn.Module):
  """Reads tokens at each row's own position."""
  config: T5Config
  dropout_rate: float
  packed: bool = False

  def setup(self):
    c, rate = self.config, self.dropout_rate
    self.relpos_bias = RelativeBias(c)
    self.layers = [DecoderLayer(c, rate, self.packed)
                   for _ in range(c.decoder_layers)]
    self.decoder_norm = layers.RMSNorm(c.norm_epsilon)
    self.dropout = nn.Dropout(rate, deterministic=False)
    if not c.tied:
      self.logits_dense = layers.Linear(
          c.vocab_size, c.d_model**-0.5, self.packed)

  def cross_kv(self, encoded_bsd, mask_bs) -> cache_lib.CrossKV:
    pairs = [layer.cross_keys_values(encoded_bsd) for layer in self.layers]
    return cache_lib.CrossKV(
        k=tuple(k for k, _ in pairs), v=tuple(v for _, v in pairs),
        mask=mask_bs)

  def _self_bias(self, length_b, t: int, n: int) -> Float[Array, 'b h t n']:
    """Bias of the query at length + i towards slot j; later slots are hidden.

    Example: length 3, t = 2, n = 6. The first query stands at position 3 and
    sees slots 0 to 3 at distances 3, 2, 1, 0; the second sees slots 0 to 4.
    """
    buckets = relative_buckets(
        np.arange(n), self.config.relpos_buckets,
        self.config.relpos_max_distance)
    by_distance_hn = self.relpos_bias(buckets)
    positions_bt = length_b[:, None] + jnp.arange(t)[None]
    distance_btn = positions_bt[:, :, None] - jnp.arange(n)[None, None]
    bias_hbtn = by_distance_hn[:, jnp.clip(distance_btn, 0, n - 1)]
    bias_bhtn = jnp.moveaxis(bias_hbtn, 0, 1)
    return bias_bhtn + _mask_bias(distance_btn[:, None] >= 0)

  def __call__(self, x_btd, cache):
    """Returns the normed last hidden states and the longer cache."""
    t = x_btd.shape[1]
    self_bias = self._self_bias(cache.length, t, cache.slots)
    cross_bias = _mask_bias(cache.cross.mask[:, None, None, :])
    x_btd = self.dropout(x_btd)
    ks, vs = [], []
    for i, layer in enumerate(self.layers):
      x_btd, k, v = layer(x_btd, cache, i, self_bias, cross_bias)
      ks.append(k)
      vs.append(v)
    cache = dataclasses.replace(
        cache, k=tuple(ks), v=tuple(vs), length=cache.length + t)
    return self.dropout(self.decoder_norm(x_btd)), cache


class Embedder(nn.Module):
  """Token table (v, d) of unit variance; packed, tied logits have their own."""
  config: T5Config
  packed: bool = False

  def setup(self):
    c = self.config
    self.embedding = self.param(
        'embedding', layers.normal(1.0), (c.vocab_size, c.d_model))
    if self.packed and c.tied:
      self.logits = layers.Linear(c.vocab_size, 1.0, packed=True)

  def __call__(self, ids, dtype):
    return self.embedding[ids].astype(dtype)

  def attend(self, x_btd) -> Float[Array, 'b t v']:
    """Logits of the tied variant: the table again, scaled by 1/sqrt(d)."""
    x_btd = x_btd * jnp.asarray(self.config.d_model**-0.5, x_btd.dtype)
    if self.packed:
      return self.logits(x_btd, jnp.float32)
    return layers.project(x_btd, self.embedding.T, jnp.float32)


class T5(nn.Module):
  """The whole model; `start` and `extend` are its two methods.

  `packed` reads the weights as `pack` lays them out.
  """
  config: T5Config
  dtype: Any = jnp.float32
  dropout_rate: float = 0.0
  packed: bool = False

  def setup(self):
    self.token_embedder = Embedder(self.config, self.packed)
    self.encoder = Encoder(self.config, self.dropout_rate, self.packed)
    self.decoder = Decoder(self.config, self.dropout_rate, self.packed)

  def start(self, source_ids: Int[Array, 'b s'], slots: int):
    """Encodes the source (pad 0 masked); returns an empty cache of `slots`."""
    mask_bs = source_ids > 0
    embedded = self.token_embedder(source_ids, self.dtype)
    encoded_bsd = self.encoder(embedded, mask_bs)
    return cache_lib.init(self.decoder.cross_kv(encoded_bsd, mask_bs), slots)

  def extend(
      self, tokens: Int[Array, 'b t'], cache: cache_lib.KVCache,
      at: Int[Array, ' b'] | None = None
  ):
    """Reads `tokens` at each row's length; returns (logits float32, cache).

    `at` names one of the t positions of each row, the only one whose logits
    are then computed, (b, 1, v); without it they all are.
    """
    x_btd, cache = self.decoder(
        self.token_embedder(tokens, self.dtype), cache)
    if at is not None:
      x_btd = jnp.take_along_axis(x_btd, at[:, None, None], axis=1)
    if self.config.tied:
      return self.token_embedder.attend(x_btd), cache
    return self.decoder.logits_dense(x_btd, jnp.float32), cache

  def both(self, source_ids, tokens):
    """Touches every parameter once; used to make their names and shapes."""
    return self.extend(tokens, self.start(source_ids, tokens.shape[1]))


def _mask_bias(keep) -> Float[Array, '...']:
  return jnp.where(keep, 0.0, _MASKED).astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class Model:
  """What a decoder needs of a model: two pure functions (hashable, static)."""
  start: Callable[[Params, Array, int], cache_lib.KVCache]
  extend: Callable[..., tuple]


def pack(config: T5Config, params: Params) -> Params:
  """Weights as a packed model reads them; those of the checkpoint stay as is.

  On a CPU weights lie (out, in), see `products`. Fewer and larger products keep
  both cores busy, so query, key and value of one input become one kernel, and
  so do both gates.
  """
  encoder, decoder = dict(params['encoder']), dict(params['decoder'])
  for i in range(config.encoder_layers):
    layer = encoder[f'layers_{i}']
    encoder[f'layers_{i}'] = layer | {
        'attention': _pack_attention(layer['attention']),
        'mlp': _pack_mlp(layer['mlp'])}
  for i in range(config.decoder_layers):
    layer = decoder[f'layers_{i}']
    decoder[f'layers_{i}'] = layer | {
        'self_attention': _pack_attention(layer['self_attention']),
        'encoder_decoder_attention': _pack_cross(
            layer['encoder_decoder_attention']),
        'mlp': _pack_mlp(layer['mlp'])}
  if 'logits_dense' in decoder:
    decoder['logits_dense'] = _joined(decoder['logits_dense'])
  packed = params | {'encoder': encoder, 'decoder': decoder}
  if config.tied:
    embedder = params['token_embedder']
    table = {'kernel': jnp.asarray(embedder['embedding']).T}
    packed['token_embedder'] = embedder | {'logits': _joined(table)}
  return packed


def _joined(*parts: Params) -> Params:
  """Kernels (in, out) as one (out, in), their outputs one behind the other."""
  kernel_oi = jnp.concatenate([part['kernel'] for part in parts], axis=1).T
  return {'transposed': products.lay(kernel_oi)}


def _pack_attention(own: Params) -> Params:
  return {'query_key_value': _joined(own['query'], own['key'], own['value']),
          'out': _joined(own['out'])}


def _pack_cross(cross: Params) -> Params:
  return {'query': _joined(cross['query']),
          'key_value': _joined(cross['key'], cross['value']),
          'out': _joined(cross['out'])}


def _pack_mlp(mlp: Params) -> Params:
  gates = [mlp[name] for name in ('wi_0', 'wi_1', 'wi') if name in mlp]
  return {('wi_both' if len(gates) > 1 else 'wi'): _joined(*gates),
          'wo': _joined(mlp['wo'])}


def bind(
    config: T5Config, *, text_size: int | None = None, dtype: Any = jnp.float32,
    packed: bool = False
) -> Model:
  """Returns `start` and `extend` of one architecture.

  Args:
    config: the architecture.
    text_size: ids at or above it have no text; their logits are left out, so
      that they have probability 0 in every path. None keeps all of them.
    dtype: of activations and caches.
    packed: whether the parameters will be those of `pack`.
  """
  return _bind(config, text_size, jnp.dtype(dtype), packed)


@functools.cache
def _bind(
    config: T5Config, text_size: int | None, dtype: Any, packed: bool
) -> Model:
  """The same functions for the same arguments: programs are kept by them."""
  module = T5(config, dtype, packed=packed)

  def start(params: Params, source_ids: Array, slots: int):
    cache: Any = module.apply(
        {'params': params}, source_ids, slots, method='start')
    return cache

  def extend(
      params: Params, tokens: Array, cache: cache_lib.KVCache,
      at: Array | None = None
  ):
    result: Any = module.apply(
        {'params': params}, tokens, cache, at, method='extend')
    logits, cache = result
    return logits[..., :text_size], cache

  return Model(start, extend)


def init_params(config: T5Config, key: Array) -> Params:
  """Random float32 parameters with T5X names."""
  ids = jnp.zeros((1, 1), jnp.int32)
  variables: Any = T5(config).init(key, ids, ids, method='both')
  return variables['params']


def param_shapes(config: T5Config) -> Params:
  """The parameter tree as `jax.ShapeDtypeStruct`s; allocates nothing."""
  return jax.eval_shape(
      functools.partial(init_params, config), jax.random.key(0))


def count_params(config: T5Config) -> int:
  return sum(x.size for x in jax.tree.leaves(param_shapes(config)))
