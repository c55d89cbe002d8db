"""Puts a trained ladder into the package: bfloat16 weights and held-out text.

    python -m experiments.ladder.ship --corpus=runs/corpus --ladder=runs/ladder

Expected result: `specdec_jax/assets/ende_mini/` with a folder for each of
target, large, base and small, and `test.tsv`; under 48 MB in all.
Time: seconds.
"""

import pathlib
import shutil

from absl import app
from absl import flags
from jax import numpy as jnp

from configs import ladder
from specdec_jax import checkpoint
from specdec_jax import examples

_CORPUS = flags.DEFINE_string(
    'corpus', None, 'Folder of experiments.ladder.corpus.', required=True)
_LADDER = flags.DEFINE_string(
    'ladder', None, 'Folder with a training workdir for each model.',
    required=True)

LIMIT_MB = 48


def ship(corpus: pathlib.Path, trained: pathlib.Path) -> int:
  """Writes the assets; returns their size in bytes."""
  assets = examples.ASSETS / 'ende_mini'
  for role in ladder.MODELS:
    model = checkpoint.load(str(trained / role / 'model'))
    checkpoint.save(assets / role, model.params, model.config,
                    model.vocabulary, jnp.bfloat16)
  shutil.copy(corpus / 'help.test.tsv', assets / 'test.tsv')
  return sum(p.stat().st_size for p in assets.rglob('*') if p.is_file())


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments {argv[1:]}')
  size = ship(pathlib.Path(_CORPUS.value), pathlib.Path(_LADDER.value)) / 1e6
  print(f'{size:.1f} MB')
  if size > LIMIT_MB:
    raise SystemExit(f'error: allowed are {LIMIT_MB} MB')


if __name__ == '__main__':
  app.run(main)
