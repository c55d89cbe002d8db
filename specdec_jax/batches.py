"""Parallel text to training batches; every batch is a function of its step."""

from collections.abc import Iterator, Sequence
import dataclasses

import numpy as np

from specdec_jax import examples
from specdec_jax import vocab


@dataclasses.dataclass(frozen=True)
class Pair:
  """Ids of one training pair, EOS included on both sides."""
  source: Sequence[int]
  target: Sequence[int]

  @property
  def length(self) -> int:
    return max(len(self.source), len(self.target))


def load_pairs(
    names: Sequence[str], vocabulary: vocab.Vocabulary, limit: int
) -> list[Pair]:
  """Encodes data sets; pairs with a side of over `limit` ids are left out.

  Raises:
    DataError: for a pair without a reference, or where no pair is left.
  """
  pairs = []
  for name in names:
    for example in examples.load(name):
      if example.reference is None:
        raise examples.DataError(f'data {name}: training needs references')
      pair = Pair(*((*vocabulary.encode(text), vocab.EOS_ID)
                    for text in (example.source, example.reference)))
      if pair.length <= limit:
        pairs.append(pair)
  if not pairs:
    raise examples.DataError(
        f'data {", ".join(names)}: no pair of up to {limit} ids a side')
  return pairs


def plan(
    lengths: Sequence[int],
    buckets: Sequence[int],
    batch_tokens: int,
    key: tuple[int, ...],
) -> list[tuple[int, list[int]]]:
  """One epoch: (bucket, indices) batches of about `batch_tokens` positions.

  A pure function of its arguments; `key` (seed, epoch) gives the order. All
  batches of a bucket have the same shape: the last is filled up with pairs of
  its own bucket.

  Example: lengths (3, 9, 4), buckets (4, 16) and 8 tokens a batch give two
  batches, {0, 2} in bucket 4 and {1} in bucket 16.
  """
  generator = np.random.default_rng(key)
  of_bucket: dict[int, list[int]] = {size: [] for size in buckets}
  for i in generator.permutation(len(lengths)):
    of_bucket[vocab.bucket(lengths[i], buckets)].append(int(i))
  batches = []
  for size, indices in of_bucket.items():
    rows = max(1, batch_tokens // size)
    for start in range(0, len(indices), rows):
      chunk = indices[start:start + rows]
      fill = [indices[i % len(indices)] for i in range(rows - len(chunk))]
      batches.append((size, chunk + fill))
  return [batches[i] for i in generator.permutation(len(batches))]


def make(
    pairs: Sequence[Pair], bucket: int, indices: Sequence[int]
) -> dict[str, np.ndarray]:
  """Arrays (rows, bucket): `source`, `inputs` (from 0 on) and `targets`."""
  targets = [pairs[i].target for i in indices]
  return {
      'source': vocab.pad([pairs[i].source for i in indices], bucket),
      'inputs': vocab.pad([(vocab.START_ID, *t[:-1]) for t in targets], bucket),
      'targets': vocab.pad(targets, bucket),
  }


def stream(
    step: int,
    pairs: Sequence[Pair],
    buckets: Sequence[int],
    batch_tokens: int,
    seed: int,
) -> Iterator[dict[str, np.ndarray]]:
  """Yields the batches from `step` on, epoch after epoch, for ever."""
  lengths = [pair.length for pair in pairs]
  epoch, before = 0, 0
  while True:
    epoch_plan = plan(lengths, buckets, batch_tokens, (seed, epoch))
    for bucket, indices in epoch_plan[max(0, step - before):]:
      yield make(pairs, bucket, indices)
    epoch, before = epoch + 1, before + len(epoch_plan)
