"""Text to ids and back, with T5's conventions.

Ids: 0 is pad (and the decoder's start), 1 is EOS, then the SentencePiece
pieces, then the extra ids (`<extra_id_0>` is the last one). Embedding tables
are padded past that; ids at or above `text_size` have no text.

SentencePiece folds white space: tabs and runs of blanks become one blank, and
blanks at both ends go. Lines are therefore split before they come here.
"""

from collections.abc import Sequence
import dataclasses
import functools
import hashlib
import pathlib
import re

import numpy as np
import sentencepiece

PAD_ID = 0
EOS_ID = 1
START_ID = 0  # the decoder's first input, in every T5 checkpoint


_EXTRA = re.compile('▁?<extra_id_[0-9]+>')


class VocabularyError(ValueError):
  """A vocabulary that T5 cannot use, or two that differ."""


@dataclasses.dataclass(frozen=True)
class Source:
  """One encoder input: ids ending in exactly one EOS, and its full length."""
  ids: tuple[int, ...]
  full_length: int  # with EOS, before any cut

  @property
  def truncated(self) -> bool:
    return len(self.ids) < self.full_length


@dataclasses.dataclass(frozen=True)
class Vocabulary:
  """A SentencePiece model and T5's extra ids.

  Some copies of T5's vocabulary have the extra ids in the file (T5X's
  `cc_all.32000.100extra`), others leave them to the reader (`spiece.model`);
  both give the same ids. `extra_ids` counts for the second kind.
  """
  path: pathlib.Path
  extra_ids: int = 100

  @functools.cached_property
  def _pieces(self) -> sentencepiece.SentencePieceProcessor:
    if not self.path.is_file():
      raise VocabularyError(f'vocabulary {self.path}: no such file')
    try:
      pieces = sentencepiece.SentencePieceProcessor(model_file=str(self.path))
    except RuntimeError as error:
      raise VocabularyError(
          f'vocabulary {self.path}: not a SentencePiece model') from error
    if pieces.eos_id() != EOS_ID:
      raise VocabularyError(
          f'vocabulary {self.path}: EOS has id {pieces.eos_id()}, T5 needs '
          f'{EOS_ID}')
    return pieces

  @functools.cached_property
  def _words(self) -> int:
    """Number of pieces before any extra ids that the file itself has."""
    size = self._pieces.vocab_size()
    while _EXTRA.fullmatch(self._pieces.id_to_piece(size - 1)):
      size -= 1
    return size

  @property
  def text_size(self) -> int:
    """Number of ids that have a meaning: the pieces and the extra ids."""
    size = self._pieces.vocab_size()
    return size + self.extra_ids if self._words == size else size

  def piece(self, token: int) -> str:
    """The piece of one id, `<extra_id_k>` or `<unused_id>` past the pieces."""
    if not 0 <= token:
      raise VocabularyError(f'token {token}: allowed are ids of 0 and above')
    if token < self._words:
      return self._pieces.id_to_piece(token)
    if token < self._pieces.vocab_size():
      return self._pieces.id_to_piece(token).removeprefix('▁')
    if token < self.text_size:
      return f'<extra_id_{self.text_size - 1 - token}>'
    return f'<unused_{token}>'

  @functools.cached_property
  def fingerprint(self) -> str:
    """SHA-256 of all pieces in order: equal for equal tables."""
    pieces = '\n'.join(map(self.piece, range(self.text_size)))
    return hashlib.sha256(pieces.encode()).hexdigest()

  def encode(self, text: str) -> list[int]:
    """Ids of `text`, without EOS."""
    return self._pieces.encode(text)

  def encode_source(self, text: str, limit: int) -> Source:
    """Encoder input of at most `limit` ids; a cut keeps room for the EOS.

    Example: with limit 4, five pieces a b c d e become a b c EOS and full
    length 6; an empty text becomes EOS alone.
    """
    if limit < 1:
      raise VocabularyError(f'source limit {limit}: allowed are 1 and above')
    ids = self.encode(text)
    return Source((*ids[:limit - 1], EOS_ID), len(ids) + 1)

  def decode(self, ids: Sequence[int]) -> str:
    """Text of `ids` up to the first EOS; pads and ids without text give none.

    Raises:
      VocabularyError: for a negative id, which an array index would read from
        the end.
    """
    kept = []
    for token in map(int, ids):
      if token < 0:
        raise VocabularyError(f'token {token}: allowed are ids of 0 and above')
      if token == EOS_ID:
        break
      if token != PAD_ID and token < self._words:
        kept.append(token)
    return self._pieces.decode(kept)


def check_same(target: Vocabulary, draft: Vocabulary) -> None:
  """Raises VocabularyError where the two tables differ (first id, pieces)."""
  if target.text_size != draft.text_size:
    raise VocabularyError(
        f'vocabularies differ: target has {target.text_size} ids '
        f'({target.path}), draft has {draft.text_size} ({draft.path})')
  for i in range(target.text_size):
    if target.piece(i) != draft.piece(i):
      raise VocabularyError(
          f'vocabularies differ at id {i}: target has {target.piece(i)!r} '
          f'({target.path}), draft has {draft.piece(i)!r} ({draft.path})')


def bucket(length: int, buckets: Sequence[int]) -> int:
  """The smallest bucket that holds `length`; ValueError if none does."""
  for size in sorted(buckets):
    if length <= size:
      return size
  raise ValueError(f'length {length}: the largest bucket is {max(buckets)}')


def pad(rows: Sequence[Sequence[int]], length: int) -> np.ndarray:
  """Rows padded with 0 to (rows, length), int32.

  Example: `pad([[5, 1], [7]], 3)` is `[[5, 1, 0], [7, 0, 0]]`.
  """
  padded = np.full((len(rows), length), PAD_ID, np.int32)
  for i, row in enumerate(rows):
    padded[i, :len(row)] = row
  return padded


def train(texts: Sequence[str], path: pathlib.Path, size: int) -> Vocabulary:
  """Trains `size` unigram pieces with T5's special ids; writes `path`."""
  with path.open('wb') as out:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=out, vocab_size=size,
        pad_id=PAD_ID, eos_id=EOS_ID, unk_id=2, bos_id=-1,
        model_type='unigram', character_coverage=0.99995,
        num_threads=1, minloglevel=2)
  return Vocabulary(path)
