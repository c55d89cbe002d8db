"""Architectures: the fields that shape a T5 model, and the public sizes."""

import dataclasses
import functools

import numpy as np


@dataclasses.dataclass(frozen=True)
class T5Config:
  """Architecture of one T5 model; everything that shapes its parameters."""
  d_model: int
  d_ff: int
  num_heads: int
  head_dim: int
  encoder_layers: int
  decoder_layers: int
  gated: bool = True   # gated GELU (1.1) or relu (1.0)
  tied: bool = False   # logits from the embedding (1.0) or their own kernel
  vocab_size: int = 32128
  relpos_buckets: int = 32
  relpos_max_distance: int = 128
  norm_epsilon: float = 1e-6

  def __post_init__(self):
    allowed = {bool: 'True or False', int: 'whole numbers of 1 and above',
               float: 'numbers above 0'}
    for field in dataclasses.fields(self):
      value, kind = getattr(self, field.name), field.type
      if type(value) is not kind or (kind is not bool and value <= 0):
        raise ValueError(f'{field.name}={value!r}: allowed are {allowed[kind]}')


def _sizes() -> dict[str, T5Config]:
  """The size table: public models by name."""
  v1_0 = functools.partial(T5Config, gated=False, tied=True)
  return {
      't5_small': v1_0(512, 2048, 8, 64, 6, 6),
      't5_base': v1_0(768, 3072, 12, 64, 12, 12),
      't5_large': v1_0(1024, 4096, 16, 64, 24, 24),
      't5_3B': v1_0(1024, 16384, 32, 128, 24, 24),
      't5_11B': v1_0(1024, 65536, 128, 128, 24, 24),
      't5_1_1_small': T5Config(512, 1024, 6, 64, 8, 8),
      't5_1_1_base': T5Config(768, 2048, 12, 64, 12, 12),
      't5_1_1_large': T5Config(1024, 2816, 16, 64, 24, 24),
      't5_1_1_xl': T5Config(2048, 5120, 32, 64, 24, 24),
      't5_1_1_xxl': T5Config(4096, 10240, 64, 64, 24, 24),
  }


SIZES = _sizes()


def relative_buckets(
    distance: np.ndarray, num_buckets: int, max_distance: int
) -> np.ndarray:
  """Maps distances >= 0 to buckets: exact up to half of them, then log-spaced.

  Example: with 32 buckets and max distance 128, distances 0, 15, 16, 32 and
  1000 fall into buckets 0, 15, 16, 21 and 31.
  """
  exact = num_buckets // 2
  # The tiny offset keeps exact powers on their own side of the edge.
  ratio = np.log(np.maximum(distance, 1) / exact) / np.log(max_distance / exact)
  spaced = exact + np.floor(ratio * (num_buckets - exact) + 1e-6)
  return np.where(
      distance < exact, distance,
      np.minimum(spaced, num_buckets - 1)).astype(np.int32)


def bidirectional_buckets(
    length: int, num_buckets: int, max_distance: int
) -> np.ndarray:
  """Encoder buckets (query, key); the upper half is for later keys."""
  ahead = np.arange(length)[None, :] - np.arange(length)[:, None]
  half = num_buckets // 2
  near = relative_buckets(np.abs(ahead), half, max_distance)
  return near + half * (ahead > 0)
