"""One target call on gamma + 1 tokens: the laws at the prefix and after drafts.
"""

from collections.abc import Callable
import dataclasses
from typing import Any

import jax
from jax import numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from specdec_jax import accept
from specdec_jax import cache as cache_lib
from specdec_jax import sampling as sampling_lib


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Verified:
  """`p[:, i]` is the target's law after i drafts; the cache has read them all.

  `near` marks the drafts that lenience keeps at temperature 0, else it is None.
  """
  p: Float[Array, 'b p v']
  finite: Bool[Array, 'b p']
  cache: cache_lib.KVCache
  near: Bool[Array, 'b g'] | None = None


def verify(
    extend: Callable,
    params: Any,
    cache: cache_lib.KVCache,
    last_b: Int[Array, ' b'],
    tokens_bg: Int[Array, 'b g'],
    sampling: sampling_lib.Sampling,
    lenience: float = 1.0,
) -> Verified:
  """Reads each row's last token and its drafts in one call.

  Example: with last token 7 and drafts (4, 9) the target reads 7, 4, 9 and
  gives the laws of what follows 7, 7 4 and 7 4 9.
  """
  block = jnp.concatenate([last_b[:, None], tokens_bg], axis=1)
  logits, cache = extend(params, block, cache)
  near_bg = None
  if sampling.greedy and lenience < 1:
    near_bg = accept.near_argmax(logits[:, :-1], tokens_bg, lenience)
  return Verified(
      p=sampling_lib.law(logits, sampling),
      finite=sampling_lib.is_finite(logits), cache=cache, near=near_bg)
