"""From a name to a drafter: a model, a table, or a rule.

* `lookup`, `copy`, `uniform`: rules without parameters (see `copying`,
  `ngram`); a folder of such a name is reached as `./lookup`.
* a folder with `ngram.json`, or `mini/unigram` and `mini/bigram`: a table.
* everything else: a model, as `checkpoint.load` has it.
"""

from collections.abc import Callable
import dataclasses
import os
import pathlib
from typing import Any

from jax import numpy as jnp

from specdec_jax import checkpoint
from specdec_jax import copying
from specdec_jax import draft
from specdec_jax import examples
from specdec_jax import ngram
from specdec_jax import vocab

_RULES = {'lookup': copying.lookup, 'copy': copying.copy,
          'uniform': ngram.uniform}


@dataclasses.dataclass(frozen=True)
class Modelless:
  """A draft without a model of its own.

  Attributes:
    make: number of ids -> its drafter.
    params: of the drafter.
    size, fingerprint: the vocabulary that `params` were made for, if any.
  """
  name: str
  make: Callable[[int], draft.Drafter]
  params: Any = None
  size: int | None = None
  fingerprint: str | None = None

  @property
  def packed(self) -> Any:
    """As `Loaded.packed`; tables and rules are read as they are."""
    return self.params

  def bind(self, vocabulary: vocab.Vocabulary) -> draft.Drafter:
    """The drafter for a target's vocabulary.

    Raises:
      VocabularyError: if the table was made for another one.
    """
    if self.size not in (None, vocabulary.text_size):
      raise vocab.VocabularyError(
          f'vocabularies differ: target has {vocabulary.text_size} ids '
          f'({vocabulary.path}), draft {self.name} has {self.size}')
    if self.fingerprint not in (None, vocabulary.fingerprint):
      raise vocab.VocabularyError(
          f'vocabularies differ: draft {self.name} was made for other pieces '
          f'than those of {vocabulary.path}')
    return self.make(vocabulary.text_size)


def load(
    name: str | os.PathLike[str], dtype: Any = jnp.float32, **options: Any
) -> checkpoint.Loaded | Modelless:
  """Loads a model, or a draft that is none; see `checkpoint.load`.

  Raises:
    CheckpointError, TableError: naming the place and what is wrong with it.
  """
  where = os.fspath(name)
  if where in _RULES:
    return Modelless(where, _RULES[where])
  folder = (examples.ASSETS / 'ende_mini' / where.removeprefix('mini/')
            if where.startswith('mini/') else pathlib.Path(where))
  if not ngram.is_table(folder):
    return checkpoint.load(name, dtype, **options)
  stored = ngram.load(folder)
  return Modelless(where, lambda size: ngram.drafter(), stored.table,
                   stored.size, stored.fingerprint)
