"""Turn a T5 checkpoint of any layout into another.

    python -m specdec_jax.convert --source=t5_small/checkpoint_1000000 \\
        --output=small_hf --format=hf

The source's layout, flavour and size are found out. `t5x` is T5X's version 3,
which T5X reads as an initial checkpoint; `orbax` is the folder that this
package writes; `hf` is what `transformers` reads. Values are kept bit by bit
unless `--dtype` asks for another type.
"""

from collections.abc import Sequence
import pathlib
import sys

from absl import app
from absl import flags
from absl import logging
import numpy as np

from specdec_jax import checkpoint
from specdec_jax import vocab
from specdec_jax.checkpoint import leaf as leaf_lib

DTYPES = ('float32', 'bfloat16')


class OutputError(ValueError):
  """A place that cannot be written."""


def _check_output(output: str) -> pathlib.Path:
  path = pathlib.Path(output)
  if '://' in output:
    raise OutputError(
        f'--output={output}: allowed is a local folder; copy it to a bucket '
        'afterwards')
  if path.exists() or path.is_symlink():
    raise OutputError(
        f'--output={output}: exists; allowed is a folder that does not')
  return path


def convert(
    source: str, output: str, form: str, dtype: str | None = None,
    vocabulary: str | None = None
) -> None:
  """Writes `source` to `output`.

  Args:
    source: path or URL of a checkpoint of any layout, or `mini/ROLE`.
    output: a folder that does not exist.
    form: one of `checkpoint.FORMATS`.
    dtype: of the weights written, one of `DTYPES`; None keeps the stored one.
    vocabulary: a SentencePiece file to put beside them; by default the one
      beside the source, if there is one.

  Raises:
    CheckpointError, OutputError: before anything is written.
  """
  folder = _check_output(output)
  stored = checkpoint.open_checkpoint(source)
  config = checkpoint.settle(stored)
  wanted = (leaf_lib.DTYPES[dtype] if dtype else
            checkpoint.stored_dtype(stored.leaves, stored.where))
  words = pathlib.Path(vocabulary) if vocabulary else stored.vocabulary
  if words is not None and not words.is_file():
    raise OutputError(f'--vocabulary={words}: no such file')
  count = sum(int(np.prod(x.shape)) for x in stored.leaves.values())
  checkpoint.write(folder, stored.leaves, config, words, form, wanted)
  print(f'{stored.where} ({stored.layout}) -> {output} ({form}): '
        f'{count:,} parameters, {wanted.name}, {config}')


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments {argv[1:]}')
  logging.set_verbosity(logging.WARNING)  # Orbax tells every step
  try:
    options = flags.FLAGS
    convert(options.source, options.output, options.format, options.dtype,
            options.vocabulary)
  except (checkpoint.CheckpointError, OutputError, vocab.VocabularyError,
          OSError) as error:
    sys.exit(f'error: {error}')


if __name__ == '__main__':
  flags.DEFINE_string(
      'source', None, 'Checkpoint to read.', required=True)
  flags.DEFINE_string(
      'output', None, 'Folder to write.', required=True)
  flags.DEFINE_enum(
      'format', None, checkpoint.FORMATS, 'Layout to write.', required=True)
  flags.DEFINE_enum(
      'dtype', None, DTYPES, 'Type of the weights; by default the stored one.')
  flags.DEFINE_string(
      'vocabulary', None, 'SentencePiece file; by default the one beside.')
  app.run(main)
