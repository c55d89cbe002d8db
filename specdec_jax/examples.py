"""Named data sets as (source, reference) pairs of text.

* `ende_mini`, `ende_mini_packages`: the held-out help pages and package
  descriptions that ship with the package.
* `tsv:PATH`: a line a pair, source and reference separated by one tab; a file
  without tabs has sources only, and a file that mixes the two is refused.
* `jsonl:PATH`: a JSON object a line with `source` and, if known, `reference`.
* `tfds:cnn_dailymail` and others of `_TFDS_FIELDS`, where TFDS is installed.
* `wmt14` and the other test sets of sacrebleu, which downloads them.
"""

from collections.abc import Iterator
import dataclasses
import importlib
import itertools
import json
import pathlib

import sacrebleu
from sacrebleu import dataset as sacrebleu_dataset

ASSETS = pathlib.Path(__file__).parent / 'assets'
_BUILT_IN = {
    'ende_mini': ASSETS / 'ende_mini' / 'test.tsv',
    'ende_mini_packages': ASSETS / 'ende_mini' / 'test_packages.tsv',
}
# Fields of source and reference; the test split is read.
_TFDS_FIELDS = {
    'cnn_dailymail': ('article', 'highlights'),
    'wmt14_translate/de-en': ('en', 'de'),
}


class DataError(ValueError):
  """A data set that does not exist or cannot be read."""


@dataclasses.dataclass(frozen=True)
class Example:
  """One sentence: its place in the data set, its text, its reference."""
  index: int
  source: str
  reference: str | None


def lines(path: pathlib.Path) -> list[str]:
  """Lines of a UTF-8 file, split at line ends only, before any tokenizing.

  Unix and Windows line ends both count; a last line end adds no line, and a
  byte order mark belongs to none.
  """
  try:
    text = path.read_bytes().decode('utf-8-sig')
  except FileNotFoundError as error:
    raise DataError(f'data {path}: no such file') from error
  except (OSError, UnicodeDecodeError) as error:
    raise DataError(f'data {path}: not readable as UTF-8: {error}') from error
  split = text.replace('\r\n', '\n').split('\n')
  return split[:-1] if split[-1] == '' else split


def _read_tsv(path: pathlib.Path) -> Iterator[tuple[str, str | None]]:
  rows = [line.split('\t') for line in lines(path)]
  for number, row in enumerate(rows, 1):
    if len(row) > 2 or len(row) != len(rows[0]):
      raise DataError(
          f'data {path}, line {number}: {len(row)} columns, line 1 has '
          f'{len(rows[0])}; allowed are source, or source and reference, in '
          'every line')
    yield row[0], row[1] if len(row) == 2 else None


def _read_jsonl(path: pathlib.Path) -> Iterator[tuple[str, str | None]]:
  for number, line in enumerate(lines(path), 1):
    try:
      row = json.loads(line)
      source, reference = row['source'], row.get('reference')
    except (ValueError, KeyError, TypeError, AttributeError) as error:
      raise DataError(
          f'data {path}, line {number}: needs a JSON object with `source` and '
          'optionally `reference`') from error
    if not isinstance(source, str) or not isinstance(reference, str | None):
      raise DataError(
          f'data {path}, line {number}: `source` and `reference` must be text')
    yield source, reference


def _wmt_names() -> list[str]:
  # sacrebleu's own list also has sets that exist from German only.
  return [name for name, data in sacrebleu_dataset.DATASETS.items()
          if 'en-de' in data.langpairs]


def _read_wmt(name: str) -> Iterator[tuple[str, str | None]]:
  try:
    source_file = sacrebleu.get_source_file(name, 'en-de')
    (reference_file, *_) = sacrebleu.get_reference_files(name, 'en-de')
    sources = lines(pathlib.Path(source_file))
    references = lines(pathlib.Path(reference_file))
  except (OSError, SystemExit) as error:
    raise DataError(
        f'data {name}: sacrebleu could not download it ({error}); this needs a '
        'network once, or give the files as tsv:PATH') from error
  yield from zip(sources, references, strict=True)


def _read_tfds(name: str, limit: int | None) -> Iterator[tuple[str, str]]:
  if name not in _TFDS_FIELDS:
    raise DataError(
        f'data tfds:{name}: allowed are '
        f'{", ".join(f"tfds:{known}" for known in _TFDS_FIELDS)}')
  try:
    datasets = importlib.import_module('tensorflow_datasets')
  except ImportError as error:
    raise DataError(
        f'data tfds:{name}: needs tensorflow_datasets (pip install '
        'tensorflow-datasets tensorflow), or give the texts as tsv:PATH or '
        'jsonl:PATH') from error
  rows = datasets.as_numpy(datasets.load(name, split='test'))
  for row in itertools.islice(rows, limit):
    source, reference = (
        ' '.join(row[field].decode('utf-8').split())
        for field in _TFDS_FIELDS[name])
    yield source, reference


def load(name: str, limit: int | None = None) -> list[Example]:
  """Returns the first `limit` examples of a data set (all of them if None).

  Raises:
    DataError: for an unknown name, a missing file or a bad line.
  """
  kind, _, path = name.partition(':')
  if name in _BUILT_IN:
    pairs = _read_tsv(_BUILT_IN[name])
  elif kind == 'tsv' and path:
    pairs = _read_tsv(pathlib.Path(path))
  elif kind == 'jsonl' and path:
    pairs = _read_jsonl(pathlib.Path(path))
  elif kind == 'tfds' and path:
    pairs = _read_tfds(path, limit)
  elif name in _wmt_names():
    pairs = _read_wmt(name)
  else:
    raise DataError(
        f'data {name!r}: allowed are {", ".join(_BUILT_IN)}, tsv:PATH, '
        'jsonl:PATH, tfds:NAME and the en-de test sets of sacrebleu')
  examples = [Example(i, *pair) for i, pair in enumerate(pairs)]
  return examples if limit is None else examples[:limit]
