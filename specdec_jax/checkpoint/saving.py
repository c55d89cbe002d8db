"""Writers: a folder has its name only once it is complete."""

from collections.abc import Iterator
import contextlib
import pathlib
import shutil
from typing import Any

import numpy as np
import orbax.checkpoint as ocp

from specdec_jax import architecture
from specdec_jax import t5
from specdec_jax import vocab
from specdec_jax.checkpoint import huggingface
from specdec_jax.checkpoint import layout
from specdec_jax.checkpoint import leaf as leaf_lib
from specdec_jax.checkpoint import loading
from specdec_jax.checkpoint import t5x
from specdec_jax.checkpoint import tree

FORMATS = ('t5x', 'orbax', 'hf')


@contextlib.contextmanager
def _whole(folder: pathlib.Path) -> Iterator[pathlib.Path]:
  """A folder to write into, which takes the place of `folder` at the end."""
  folder = folder.absolute()
  partial = folder.with_name(folder.name + '.partial')
  shutil.rmtree(partial, ignore_errors=True)
  partial.mkdir(parents=True)
  try:
    yield partial
  except BaseException:
    shutil.rmtree(partial, ignore_errors=True)
    raise
  shutil.rmtree(folder, ignore_errors=True)
  partial.rename(folder)


def _write_own(
    folder: pathlib.Path, leaves: leaf_lib.Leaves, dtype: np.dtype
) -> None:
  with ocp.StandardCheckpointer() as checkpointer:
    checkpointer.save(folder / layout.PARAMS, loading.place(leaves, dtype))


def write(
    folder: pathlib.Path,
    leaves: leaf_lib.Leaves,
    config: architecture.T5Config,
    vocabulary: pathlib.Path | None,
    form: str,
    dtype: Any,
) -> None:
  """Writes a checkpoint; an existing folder is replaced once it is complete.

  Args:
    folder: what to write; until the end it is named `NAME.partial`.
    leaves: the weights.
    config: their architecture.
    vocabulary: a SentencePiece file to put beside them.
    form: `t5x` (legacy version 3), `orbax` (this package's folder) or `hf`.
    dtype: of the stored weights.
  """
  dtype = np.dtype(dtype)
  with _whole(folder) as partial:
    if form == 't5x':
      t5x.write(partial, leaves, dtype)
    elif form == 'orbax':
      _write_own(partial, leaves, dtype)
    elif form == 'hf':
      huggingface.write(partial, leaves, dtype, config)
    else:
      raise ValueError(f'format {form!r}: allowed are {", ".join(FORMATS)}')
    if form != 'hf':  # T5X does not read it; its layout has no place for it
      (partial / layout.CONFIG).write_text(layout.config_text(config))
    if vocabulary is not None:
      name = layout.VOCABULARIES[form == 'hf']
      shutil.copy(vocabulary, partial / name)


def save(
    folder: pathlib.Path,
    params: t5.Params,
    config: architecture.T5Config,
    vocabulary: vocab.Vocabulary,
    dtype: Any = None,
) -> None:
  """Writes a model folder of our own layout, by default in its own dtype."""
  leaves = leaf_lib.from_arrays(tree.flatten(params))
  dtype = dtype or next(iter(leaves.values())).dtype
  write(folder, leaves, config, vocabulary.path, 'orbax', dtype)
