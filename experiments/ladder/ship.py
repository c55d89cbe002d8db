"""Puts a trained ladder into the package: bfloat16 weights and held-out text.

    python -m experiments.ladder.ship --corpus=runs/corpus --ladder=runs/ladder

Expected result: `specdec_jax/assets/ende_mini/` with a folder for each of
target, large, base and small, and the held-out text of both domains; with the
n-gram tables that `experiments.ladder.ngrams` puts there, under 48 MB in all.
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

LIMIT_MB = 48
# Asset of each domain's held-out text.
TESTS = {'help': 'test.tsv', 'packages': 'test_packages.tsv'}


def ship(corpus: pathlib.Path, trained: pathlib.Path) -> dict[str, int]:
  """Writes the assets; returns the size in bytes of every file."""
  assets = examples.ASSETS / 'ende_mini'
  for role in ladder.MODELS:
    model = checkpoint.load(str(trained / role / 'model'))
    checkpoint.save(assets / role, model.params, model.config,
                    model.vocabulary, jnp.bfloat16)
  for domain, name in TESTS.items():
    shutil.copy(corpus / f'{domain}.test.tsv', assets / name)
  return {str(p.relative_to(assets)): p.stat().st_size
          for p in sorted(assets.rglob('*')) if p.is_file()}


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments {argv[1:]}')
  options = flags.FLAGS
  sizes = ship(pathlib.Path(options.corpus), pathlib.Path(options.ladder))
  parts: dict[str, float] = {}
  for name, size in sizes.items():
    part = name.partition('/')[0]
    parts[part] = parts.get(part, 0) + size / 1e6
  total = sum(parts.values())
  for part, size in parts.items():
    print(f'{size:6.2f} MB  {part}')
  print(f'{total:6.2f} MB in all')
  if total > LIMIT_MB:
    raise SystemExit(f'error: allowed are {LIMIT_MB} MB')


if __name__ == '__main__':
  flags.DEFINE_string(
      'corpus', None, 'Folder of experiments.ladder.corpus.', required=True)
  flags.DEFINE_string(
      'ladder', None, 'Folder with a training workdir for each model.',
      required=True)
  app.run(main)
