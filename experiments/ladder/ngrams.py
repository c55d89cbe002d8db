"""Makes the n-gram tables of the built-in ladder.

    python -m experiments.ladder.ngrams --corpus=runs/corpus \\
        --output=specdec_jax/assets/ende_mini

Counts the German side of `help.train.tsv` and `packages.train.tsv` and, with
`--taught=DIR`, the target's own outputs too: the second column of every TSV in
DIR. Expected result: `unigram/` and `bigram/` in the output folder, each under
1.5 MB. Time: seconds.
"""

from collections.abc import Iterator
import pathlib

from absl import app
from absl import flags

from specdec_jax import examples
from specdec_jax import ngram
from specdec_jax import vocab

PARTS = ('help.train.tsv', 'packages.train.tsv')
TABLES = {'unigram': 0, 'bigram': ngram.SUCCESSORS}


def texts(
    corpus: pathlib.Path, taught: pathlib.Path | None
) -> Iterator[str]:
  """The text of every second column."""
  files = [corpus / name for name in PARTS]
  if taught is not None:
    more = sorted(taught.glob('*.tsv'))
    if not more:
      raise examples.DataError(f'taught={taught}: no TSV there')
    files += more
  for path in files:
    for example in examples.load(f'tsv:{path}'):
      if example.reference is None:
        raise examples.DataError(f'data {path}: needed are two columns')
      yield example.reference


def make(
    corpus: pathlib.Path, taught: pathlib.Path | None, output: pathlib.Path
) -> None:
  """Writes `unigram` and `bigram` for the corpus' vocabulary."""
  vocabulary = vocab.Vocabulary(corpus / 'sentencepiece.model')
  rows = [[*vocabulary.encode(text), vocab.EOS_ID]
          for text in texts(corpus, taught)]
  for name, successors in TABLES.items():
    table = ngram.train(rows, vocabulary.text_size, successors)
    ngram.save(output / name, table, vocabulary)


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments {argv[1:]}')
  options = flags.FLAGS
  output = pathlib.Path(options.output)
  make(pathlib.Path(options.corpus),
       pathlib.Path(options.taught) if options.taught else None, output)
  for name in TABLES:
    size = sum(p.stat().st_size for p in (output / name).iterdir())
    print(f'{name}: {size / 1e6:.2f} MB')


if __name__ == '__main__':
  flags.DEFINE_string(
      'corpus', None, 'Folder of experiments.ladder.corpus.', required=True)
  flags.DEFINE_string(
      'taught', None, "Folder of TSVs of sources and the target's outputs.")
  flags.DEFINE_string(
      'output', None, 'Folder to put the two table folders in.', required=True)
  app.run(main)
