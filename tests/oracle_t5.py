"""T5 written a second time: NumPy, float64, one sentence, no batch, no cache.

From the papers' definitions and T5X's parameter names only; nothing is shared
with the package. Slow and plain on purpose.
"""

import math

import numpy as np


def bucket(ahead: int, buckets: int, furthest: int, both_ways: bool) -> int:
  """T5's relative-position bucket of a key `ahead` positions after the query.

  Whole numbers only: the j-th log-spaced bucket begins at the distance
  exact * (furthest / exact)^(j / spaced), so a distance d has reached it where
  d^spaced * exact^j >= exact^spaced * furthest^j.
  """
  first = 0
  if both_ways:
    buckets //= 2
    first = buckets if ahead > 0 else 0
    distance = abs(ahead)
  else:
    distance = max(-ahead, 0)
  exact = buckets // 2
  if distance < exact:
    return first + distance
  spaced = buckets - exact
  reached = [
      j for j in range(spaced)
      if distance**spaced * exact**j >= exact**spaced * furthest**j]
  return first + exact + max(reached)


def position_bias(table, queries: int, keys: int, config, both_ways: bool):
  """(heads, queries, keys) from a table (heads, buckets)."""
  bias = np.zeros((config.num_heads, queries, keys))
  for i in range(queries):
    for j in range(keys):
      place = bucket(j - i, config.relpos_buckets, config.relpos_max_distance,
                     both_ways)
      bias[:, i, j] = table[:, place]
  return bias


def rms_norm(x, scale, epsilon):
  return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + epsilon) * scale


def gelu(x):
  inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
  return 0.5 * x * (1 + np.tanh(inner))


def softmax(x):
  e = np.exp(x - x.max(axis=-1, keepdims=True))
  return e / e.sum(axis=-1, keepdims=True)


def attention(weights, x, memory, bias, config):
  """Heads one by one; the kernels' columns are head-major."""
  out = np.zeros((len(x), config.num_heads * config.head_dim))
  for h in range(config.num_heads):
    columns = slice(h * config.head_dim, (h + 1) * config.head_dim)
    q = x @ weights['query']['kernel'][:, columns]
    k = memory @ weights['key']['kernel'][:, columns]
    v = memory @ weights['value']['kernel'][:, columns]
    out[:, columns] = softmax(q @ k.T + bias[h]) @ v
  return out @ weights['out']['kernel']


def mlp(weights, x, config):
  if config.gated:
    gate = gelu(x @ weights['wi_0']['kernel'])
    hidden = gate * (x @ weights['wi_1']['kernel'])
  else:
    hidden = np.maximum(x @ weights['wi']['kernel'], 0)
  return hidden @ weights['wo']['kernel']


def encode(params, source, config):
  """Encoder states (s, d) of one sentence without pads."""
  weights = params['encoder']
  x = params['token_embedder']['embedding'][source]
  bias = position_bias(weights['relpos_bias']['rel_embedding'],
                       len(source), len(source), config, both_ways=True)
  for i in range(config.encoder_layers):
    layer = weights[f'layers_{i}']
    y = rms_norm(x, layer['pre_attention_layer_norm']['scale'],
                 config.norm_epsilon)
    x = x + attention(layer['attention'], y, y, bias, config)
    y = rms_norm(x, layer['pre_mlp_layer_norm']['scale'], config.norm_epsilon)
    x = x + mlp(layer['mlp'], y, config)
  return rms_norm(x, weights['encoder_norm']['scale'], config.norm_epsilon)


def logits(params, source, inputs, config):
  """Logits (t, v) after each decoder input of one sentence without pads."""
  weights = params['decoder']
  encoded = encode(params, source, config)
  t = len(inputs)
  x = params['token_embedder']['embedding'][inputs]
  bias = position_bias(weights['relpos_bias']['rel_embedding'],
                       t, t, config, both_ways=False)
  bias = bias + np.where(np.tril(np.ones((t, t))), 0, -np.inf)
  no_bias = np.zeros((config.num_heads, t, len(source)))
  for i in range(config.decoder_layers):
    layer = weights[f'layers_{i}']
    y = rms_norm(x, layer['pre_self_attention_layer_norm']['scale'],
                 config.norm_epsilon)
    x = x + attention(layer['self_attention'], y, y, bias, config)
    y = rms_norm(x, layer['pre_cross_attention_layer_norm']['scale'],
                 config.norm_epsilon)
    x = x + attention(
        layer['encoder_decoder_attention'], y, encoded, no_bias, config)
    y = rms_norm(x, layer['pre_mlp_layer_norm']['scale'], config.norm_epsilon)
    x = x + mlp(layer['mlp'], y, config)
  x = rms_norm(x, weights['decoder_norm']['scale'], config.norm_epsilon)
  if config.tied:
    return x @ params['token_embedder']['embedding'].T / math.sqrt(
        config.d_model)
  return x @ weights['logits_dense']['kernel']
