"""Stand-in models: the next token's logits are a written-down function.

They keep the tokens they have read in a real `KVCache`, written and rewound by
the same code as T5's keys, so that every mistake with positions shows.
"""

from collections.abc import Callable
import dataclasses
import functools

import jax
from jax import numpy as jnp
import numpy as np

from specdec_jax import cache as cache_lib
from specdec_jax import decode
from specdec_jax import draft as draft_lib
from specdec_jax import rounds as rounds_lib
from specdec_jax import sampling as sampling_lib
from specdec_jax import t5

# (history_n, count, row) -> logits_v: `history[:count]` are the tokens read so
# far, the start token first; `row` is the source's first id.
Script = Callable[..., jax.Array]


def model(script: Script) -> t5.Model:
  """A model of `start` and `extend` that follows `script`."""

  def start(params, source_ids, slots):
    del params
    row = source_ids[:, :1, None, None].astype(jnp.float32)
    return cache_lib.init(
        cache_lib.CrossKV((row,), (row,), source_ids[:, :1] >= 0), slots)

  def extend(params, tokens, cache, at=None):
    del params
    new = tokens[..., None, None].astype(jnp.float32)
    k, v = cache_lib.write(cache.k[0], cache.v[0], new, new, cache.length)
    history_bn = k[:, 0, :, 0].astype(jnp.int32)
    row_b = cache.cross.k[0][:, 0, 0, 0].astype(jnp.int32)

    def position(i):
      return jax.vmap(script)(history_bn, cache.length + i + 1, row_b)
    logits = jax.vmap(position, out_axes=1)(jnp.arange(tokens.shape[1]))
    if at is not None:
      logits = jnp.take_along_axis(logits, at[:, None, None], axis=1)
    return logits, cache_lib.KVCache(
        (k,), (v,), cache.length + tokens.shape[1], cache.cross)
  return t5.Model(start, extend)


def path(tokens, vocab_size: int = 16) -> Script:
  """Gives `tokens[i]` as the output's token i, whatever was read."""
  tokens = jnp.asarray(tokens, jnp.int32)

  def script(history, count, row):
    del history, row
    return jax.nn.one_hot(
        tokens[jnp.minimum(count - 1, len(tokens) - 1)], vocab_size) * 50
  return script


def fixed_law(law) -> Script:
  """The same law at every position."""
  logits = jnp.log(jnp.asarray(law, jnp.float32))
  return lambda history, count, row: logits


def noisy(seed: int, vocab_size: int, sharpness: float = 3.0) -> Script:
  """A law that depends on all tokens so far, their places, and the row."""
  weights = np.random.default_rng(seed).normal(size=(64, vocab_size, 7))
  weights = jnp.asarray(weights, jnp.float32)
  out = jnp.asarray(
      np.random.default_rng(seed + 1).normal(size=(7, vocab_size)), jnp.float32)

  def script(history, count, row):
    places = jnp.arange(history.shape[0])
    read = weights[places % 64, history % vocab_size]
    read = jnp.where((places < count)[:, None], read, 0.0)
    state = jnp.sin(jnp.sum(read, axis=0) + row.astype(jnp.float32))
    logits = sharpness * (state @ out)
    return logits.at[0].set(-1e9)  # pad is never an output
  return script


def drafter_of(draft: 'Script | draft_lib.Drafter | None'):
  if isinstance(draft, draft_lib.Drafter):
    return draft
  if draft is None:
    return draft_lib.NO_DRAFTER
  bound = model(draft)
  return draft_lib.model_drafter(bound.start, bound.extend)


@functools.cache
def program(target, draft, gamma, max_tokens, lenience):
  bound = model(target)
  drafter = drafter_of(draft if gamma else None)
  spec = rounds_lib.Spec(
      bound.extend, drafter, gamma, max_tokens, max_tokens + gamma + 1,
      lenience)

  # These programs are compiled by the dozen and run once.
  @functools.partial(
      jax.jit, compiler_options={'xla_backend_optimization_level': 0})
  def run(params, source_ids, sampling, keys, budget):
    decoded = decode.generate(
        spec, {}, params, bound.start({}, source_ids, spec.sizes[0]),
        drafter.start(params, source_ids, spec.sizes[0]), sampling, keys,
        budget)
    return dataclasses.replace(decoded, caches=None)
  return run


def run(
    target: Script, draft: Script | draft_lib.Drafter | None, gamma: int,
    budget, *, rows=(0,), temperature: float = 0.0, top_k: int = 0,
    top_p: float = 1.0, seed: int = 0, index=None,
    max_tokens: int | None = None, params=None, lenience: float = 1.0
) -> decode.Decoded:
  """Decodes one row for each of `rows`; returns arrays on the host.

  `rows` are sources, or their first ids; `params` are a drafter's own.
  """
  rows = jnp.asarray(rows, jnp.int32)
  rows = rows[:, None] if rows.ndim == 1 else rows
  budget = jnp.broadcast_to(jnp.asarray(budget, jnp.int32), rows.shape[:1])
  index = jnp.arange(len(rows)) if index is None else jnp.asarray(index)
  decode_all = program(
      target, draft, gamma, max_tokens or int(budget.max()), lenience)
  return jax.device_get(decode_all(
      params, rows, sampling_lib.make(temperature, top_k, top_p),
      decode.sentence_keys(jnp.asarray(seed), index), budget))


def outputs(decoded: decode.Decoded) -> list[list[int]]:
  """Output ids of each row, cut to its length."""
  return [row[:n].tolist() for row, n in
          zip(decoded.tokens, decoded.length, strict=True)]


def counts(decoded: decode.Decoded, name: str, row: int = 0) -> list[int]:
  """One count of the log for each round of a row."""
  return getattr(decoded.log, name)[row, :decoded.rounds[row]].tolist()
