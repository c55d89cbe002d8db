"""Unigram and bigram tables: drafts of negligible cost (section 3.6).

A table holds, for each token, its likeliest successors; all others share the
mass that is left in the proportions of the unigram law (back-off). A unigram
table is a bigram table with no successors. So a table of 32,128 pieces has
32,128 x 32 entries, not 32,128 squared.

A folder holds `ngram.json` and one `.npy` an array, read without pickle.

Letters: `v` vocabulary, `k` successors, `b` batch.
"""

from collections.abc import Iterable, Sequence
import dataclasses
import functools
import json
import os
import pathlib
from typing import Any

import jax
from jax import numpy as jnp
from jaxtyping import Array, Float, Integer
import numpy as np

from specdec_jax import draft as draft_lib
from specdec_jax import vocab

FILE = 'ngram.json'
SUCCESSORS = 32  # of a token in a bigram table
DISCOUNT = 0.75  # taken from every pair's count for the pairs not seen
UNSEEN = 0.5     # times that a piece is taken to have been seen at least


class TableError(ValueError):
  """A folder that holds no usable table."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Table:
  """Logarithms of probabilities; -inf fills up rows of fewer successors."""
  unigram: Float[Array | np.ndarray, ' v']
  backoff: Float[Array | np.ndarray, ' v']  # factor of the unigram law
  successors: Integer[Array | np.ndarray, 'v k']
  listed: Float[Array | np.ndarray, 'v k']  # of each successor


@dataclasses.dataclass(frozen=True)
class Stored:
  """A table and the vocabulary that it was made for."""
  table: Table
  size: int
  fingerprint: str


def train(
    rows: Iterable[Sequence[int]], size: int, successors: int = SUCCESSORS
) -> Table:
  """Counts the tokens and pairs of `rows` (float64 arrays).

  Args:
    rows: ids of each text, EOS included; the start token is put before them.
    size: number of ids. Pad is never an output: its probability is 0.
    successors: kept for each token; 0 makes a unigram table.

  Example: from `[[4, 5, 1], [4, 6, 1], [4, 5, 1]]` with two successors, 5
  follows 4 with (2 - 0.75) / 3, 6 with (1 - 0.75) / 3, and what is left, 0.5,
  goes to all others in the proportions of the unigram law.
  """
  lines = [np.asarray([vocab.START_ID, *row], np.int64) for row in rows]
  before = np.concatenate([line[:-1] for line in lines])
  after = np.concatenate([line[1:] for line in lines])
  unigram = np.maximum(np.bincount(after, minlength=size), UNSEEN)
  unigram[vocab.PAD_ID] = 0
  unigram = unigram / unigram.sum()

  pairs, counts = np.unique(before * size + after, return_counts=True)
  before, after = np.divmod(pairs, size)
  seen = np.bincount(before, counts, minlength=size)
  order = np.lexsort((after, -counts, before))
  before, after, counts = before[order], after[order], counts[order]
  rank = np.arange(len(before)) - np.searchsorted(before, before)
  kept = rank < successors
  before, after, rank = before[kept], after[kept], rank[kept]
  ids = np.zeros((size, successors), np.int64)  # pad, with probability 0
  share = np.zeros((size, successors))
  ids[before, rank] = after
  share[before, rank] = (counts[kept] - DISCOUNT) / seen[before]
  others = 1 - unigram[ids].sum(axis=1)  # 0 where all are successors
  left = (1 - share.sum(axis=1)) / np.maximum(others, 1e-9)
  with np.errstate(divide='ignore'):
    return Table(np.log(unigram), np.log(left), ids, np.log(share))


def logits(
    table: Table, last_b: Integer[Array, ' b']
) -> Float[Array, 'b v']:
  """Logarithms of the law behind each row's last token."""
  everywhere = table.backoff[last_b][:, None] + table.unigram[None]
  rows = jnp.arange(last_b.shape[0])[:, None]
  return everywhere.at[rows, table.successors[last_b]].set(
      table.listed[last_b])


def _propose(table, state, prefix, sampling, uniform_b):
  last_b = jnp.take_along_axis(
      prefix.tokens, prefix.length[:, None] - 1, axis=1)[:, 0]
  return draft_lib.draw(logits(table, last_b), sampling, uniform_b)


def _anything(size, params, state, prefix, sampling, uniform_b):
  flat = jnp.zeros(size).at[vocab.PAD_ID].set(-jnp.inf)
  flat_bv = jnp.broadcast_to(flat, (*prefix.length.shape, size))
  return draft_lib.draw(flat_bv, sampling, uniform_b)


def drafter() -> draft_lib.Drafter:
  """Drafts from a `Table`, which is its parameters."""
  return draft_lib.proposer(_propose)


@functools.cache
def uniform(size: int) -> draft_lib.Drafter:
  """Drafts any token but pad, all equally likely before top-k and top-p.

  They are all ties: top-k keeps the lowest ids, argmax is the lowest, the EOS.
  """
  return draft_lib.proposer(functools.partial(_anything, size))


def save(folder: pathlib.Path, table: Table, vocabulary: vocab.Vocabulary):
  """Writes a table folder; probabilities in float16, ids as short as fits."""
  folder.mkdir(parents=True, exist_ok=True)
  size = vocabulary.text_size
  ids = np.uint16 if size <= 2**16 else np.uint32
  for name, array in _arrays(table).items():
    kind = ids if name == 'successors' else np.float16
    np.save(folder / f'{name}.npy', np.asarray(array).astype(kind),
            allow_pickle=False)
  (folder / FILE).write_text(json.dumps(
      {'size': size, 'successors': table.successors.shape[1],
       'fingerprint': vocabulary.fingerprint}, indent=2) + '\n')


def _arrays(table: Table) -> dict[str, Any]:
  return {f.name: getattr(table, f.name) for f in dataclasses.fields(table)}


def is_table(folder: str | os.PathLike[str]) -> bool:
  return (pathlib.Path(folder) / FILE).is_file()


def load(folder: str | os.PathLike[str]) -> Stored:
  """Reads a table folder to the device, as float32 and int32.

  Raises:
    TableError: naming the file and what is wrong with it.
  """
  root = pathlib.Path(folder)
  try:
    head = json.loads((root / FILE).read_text('utf-8'))
    size, k, fingerprint = (
        head[name] for name in ('size', 'successors', 'fingerprint'))
  except (OSError, ValueError, KeyError, TypeError) as error:
    raise TableError(
        f'table {root / FILE}: needed are size, successors and fingerprint'
    ) from error
  if not (type(size) is int and 0 < size < 2**31 and type(k) is int
          and 0 <= k < size and isinstance(fingerprint, str)):
    raise TableError(
        f'table {root / FILE}: size={size!r}, successors={k!r}: allowed are '
        'whole numbers, with fewer successors than ids')
  names = {'unigram': (size,), 'backoff': (size,), 'successors': (size, k),
           'listed': (size, k)}
  found = {name: _read(root / f'{name}.npy', shape, name == 'successors')
           for name, shape in names.items()}
  if found['successors'].max(initial=0) >= size:
    raise TableError(f'table {root}: a successor of {size} or above')
  return Stored(Table(**jax.tree.map(jnp.asarray, found)), size, fingerprint)


def _read(path: pathlib.Path, shape: tuple[int, ...], ids: bool) -> np.ndarray:
  """One array, mapped first so that its header cannot ask for more memory."""
  try:
    stored = np.lib.format.open_memmap(path, mode='r')
  except (OSError, ValueError, EOFError, SyntaxError, TypeError) as error:
    raise TableError(f'table {path}: not a readable .npy: {error}') from error
  kinds = 'u' if ids else 'f'
  if stored.shape != shape or stored.dtype.kind not in kinds:
    raise TableError(
        f'table {path}: {stored.dtype} of shape {stored.shape}, needed is '
        f'{"unsigned integers" if ids else "floats"} of {shape}')
  array = np.array(stored).astype(np.int32 if ids else np.float32)
  if not ids and (np.isnan(array).any() or (array == np.inf).any()):
    raise TableError(f'table {path}: values that are no logarithms')
  return array
