"""Rebuild the English-German corpus of the built-in ladder.

    python -m experiments.ladder.corpus --output=runs/corpus

Hardware: any Debian 12 machine with apt. Expected result: about 35,000 help
pairs and 31,000 package-description pairs in `DOMAIN.PART.tsv` (columns:
English, German), `sentencepiece.model` and `corpus.json` with the counts.
Time: about a minute.

Two sources, both free:
* `help`: `libreoffice-help-en-us` and `libreoffice-help-de` (MPL 2.0) carry the
  same HTML pages with the same paragraph ids.
* `packages`: apt's Translation-en and Translation-de, joined by the checksum of
  the English description, paragraph by paragraph.

Pages (or packages) are split before their sentences, so no page lies on both
sides; sentences that also occur in a held-out page leave the training part.
"""

from collections.abc import Iterator
import hashlib
import html.parser
import json
import pathlib
import re
import subprocess

from absl import app
from absl import flags
from absl import logging

from specdec_jax import vocab

HELP_PACKAGES = {'en': 'libreoffice-help-en-us', 'de': 'libreoffice-help-de'}
HELP_FOLDERS = {'en': 'en-US', 'de': 'de'}
# Of 100 pages, this many are held out for each part; the rest is training.
HELD_OUT_PERCENT = {'test': 2, 'validation': 2}

Pair = tuple[str, str, str, str]  # domain, page, English, German


class _Paragraphs(html.parser.HTMLParser):
  """Collects the visible text of every element that has a paragraph id."""

  _BLOCK = re.compile(r'^(p|h[1-6])$')
  _VOID = frozenset(('br', 'img', 'meta', 'link', 'input', 'hr', 'col'))

  def __init__(self):
    super().__init__(convert_charrefs=True)
    self.texts: dict[str, str] = {}
    self._id: str | None = None
    self._parts: list[str] = []
    self._hidden_depth = 0  # inside a hidden (other platform's) variant

  def handle_starttag(self, tag, attrs):
    attributes = dict(attrs)
    if self._hidden_depth:
      self._hidden_depth += tag not in self._VOID
    elif attributes.get('class') in ('MAC', 'UNIX', 'WIN'):
      self._hidden_depth = 1
    elif self._BLOCK.match(tag):
      self._id, self._parts = attributes.get('id'), []
    elif tag == 'br':
      self._parts.append(' ')

  def handle_endtag(self, tag):
    if self._hidden_depth:
      self._hidden_depth -= tag not in self._VOID
    elif self._BLOCK.match(tag) and self._id:
      text = tidy(''.join(self._parts))
      if text and self._id.startswith(('par_', 'hd_')):
        self.texts[self._id] = text
      self._id = None

  def handle_data(self, data):
    if self._id and not self._hidden_depth:
      self._parts.append(data)


def tidy(text: str) -> str:
  """Folds white space, as the vocabulary will: `' a\\n b '` is `'a b'`."""
  return ' '.join(text.split())


def is_usable(english: str, german: str) -> bool:
  """Whether a pair is worth training on: words, both languages, like lengths.

  Identical sides are untranslated; a side of over 60 words, or over twice the
  other, is a list or a misaligned paragraph.
  """
  sizes = sorted((len(english.split()), len(german.split())))
  letters = sum(ch.isalpha() for ch in english)
  return (english != german and letters >= 3 and letters > len(english) / 2
          and sizes[1] <= 60 and sizes[1] <= 2 * sizes[0] + 3)


def read_page(html_text: str) -> dict[str, str]:
  """The paragraphs and headings of a help page, by id."""
  parser = _Paragraphs()
  parser.feed(html_text)
  return parser.texts


def read_help(folder: pathlib.Path) -> Iterator[Pair]:
  """Yields help pairs from the two unpacked packages below `folder`."""
  roots = {lang: folder / lang / 'usr/share/libreoffice/help' / sub / 'text'
           for lang, sub in HELP_FOLDERS.items()}
  for path in sorted(roots['en'].rglob('*.html')):
    page = path.relative_to(roots['en'])
    other = roots['de'] / page
    if not other.is_file():
      continue
    english, german = (read_page(p.read_text('utf-8')) for p in (path, other))
    for name in english:
      if name in german:
        yield 'help', str(page), english[name], german[name]


def read_descriptions(path: pathlib.Path) -> dict[str, tuple[str, str]]:
  """Returns {checksum: (package, description)} of an apt Translation file."""
  found = {}
  for stanza in path.read_text('utf-8').split('\n\n'):
    checksum = re.search(r'^Description-md5: (\w+)$', stanza, re.M)
    package = re.search(r'^Package: (\S+)$', stanza, re.M)
    body = re.search(r'^Description-\w\w: (.*)', stanza, re.M | re.S)
    if checksum and package and body:
      found[checksum.group(1)] = package.group(1), body.group(1)
  return found


def paragraphs(description: str) -> list[str]:
  """Splits an apt description: the first line, then blocks between ` .`.

  Blocks that hold indented lines are lists or tables; they come back empty, so
  that the blocks after them keep their place.
  """
  first, _, rest = description.partition('\n')
  blocks = re.split(r'^ \.$', rest, flags=re.M)
  plain = [b if not re.search(r'^ ( |\*|-)', b, re.M) else '' for b in blocks]
  return [tidy(first), *map(tidy, plain)]


def read_packages(folder: pathlib.Path) -> Iterator[Pair]:
  """Yields package-description pairs from the Translation files in `folder`."""
  english: dict[str, tuple[str, str]] = {}
  german: dict[str, tuple[str, str]] = {}
  for path in sorted(folder.glob('*_Translation-en')):
    english.update(read_descriptions(path))
  for path in sorted(folder.glob('*_Translation-de')):
    german.update(read_descriptions(path))
  for checksum in sorted(english.keys() & german.keys()):
    package, source = english[checksum]
    sides = paragraphs(source), paragraphs(german[checksum][1])
    if len(sides[0]) == len(sides[1]):
      # Packages of one source share sentences, so the name up to its first
      # hyphen is the page.
      page = re.split(r'[-+.\d]', package.removeprefix('lib'))[0] or package
      for pair in zip(*sides, strict=True):
        yield 'packages', page, *pair


def part_of(domain: str, page: str) -> str:
  """The part a page belongs to, from a hash of its name: stable over time."""
  digest = hashlib.sha256(f'{domain}:{page}'.encode()).digest()
  place = int.from_bytes(digest[:4], 'big') % 100
  for part, percent in HELD_OUT_PERCENT.items():
    if place < percent:
      return part
    place -= percent
  return 'train'


def split(pairs: Iterator[Pair]) -> dict[str, list[tuple[str, str, str]]]:
  """Splits by page and removes duplicates, held-out parts first.

  A sentence belongs to the first part that has it (test, validation, train),
  by its English or its German side alone.
  """
  parts: dict[str, list[tuple[str, str, str]]] = {
      **{part: [] for part in HELD_OUT_PERCENT}, 'train': []}
  for domain, page, english, german in pairs:
    if is_usable(english, german):
      parts[part_of(domain, page)].append((domain, english, german))
  held_out: set[str] = set()
  for part, rows in parts.items():
    seen: set[tuple[str, str]] = set()
    kept = []
    for domain, english, german in rows:
      keys = {english.casefold(), german.casefold()}
      if keys & held_out or (english, german) in seen:
        continue
      seen.add((english, german))
      kept.append((domain, english, german))
    held_out |= {s.casefold() for _, *sides in kept for s in sides}
    parts[part] = kept
  return parts


def fetch(folder: pathlib.Path) -> None:
  """Downloads and unpacks both sources below `folder` with apt."""
  debs = folder / 'debs'
  for lang, package in HELP_PACKAGES.items():
    into = debs / lang
    if not into.is_dir():
      into.mkdir(parents=True)
      subprocess.run(['apt-get', 'download', package], cwd=into, check=True)
      (deb,) = into.glob('*.deb')
      subprocess.run(['dpkg-deb', '-x', deb, into], check=True)
  lists = folder / 'lists'
  if not any(lists.glob('*_Translation-de')):
    (lists / 'partial').mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ['apt-get', 'update', '-o', f'Dir::State::lists={lists.resolve()}',
         '-o', 'Acquire::Languages=en,de', '-o', 'Acquire::GzipIndexes=false'],
        check=True)


def write(parts: dict[str, list[tuple[str, str, str]]],
          folder: pathlib.Path) -> dict[str, int]:
  """Writes `DOMAIN.PART.tsv` (English, German) and the counts."""
  counts = {}
  for part, rows in parts.items():
    for domain in sorted({row[0] for row in rows}):
      lines = [f'{en}\t{de}\n' for name, en, de in rows if name == domain]
      counts[f'{domain}.{part}'] = len(lines)
      (folder / f'{domain}.{part}.tsv').write_text(''.join(lines), 'utf-8')
  (folder / 'corpus.json').write_text(json.dumps(counts, indent=2) + '\n')
  return counts


def train_vocabulary(folder: pathlib.Path, size: int) -> None:
  """Trains one vocabulary for both languages on the training parts."""
  texts = [side for path in sorted(folder.glob('*.train.tsv'))
           for line in path.read_text('utf-8').splitlines()
           for side in line.split('\t')]
  vocab.train(texts, folder / 'sentencepiece.model', size)


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments {argv[1:]}')
  folder = pathlib.Path(flags.FLAGS.output)
  folder.mkdir(parents=True, exist_ok=True)
  logging.info('fetch')
  fetch(folder)
  logging.info('read')
  pairs = [*read_help(folder / 'debs'), *read_packages(folder / 'lists')]
  logging.info('split %d pairs', len(pairs))
  counts = write(split(iter(pairs)), folder)
  logging.info('train vocabulary')
  train_vocabulary(folder, flags.FLAGS.vocab_size)
  print(json.dumps(counts, indent=2))


if __name__ == '__main__':
  flags.DEFINE_integer(
      'vocab_size', 3996, 'SentencePiece pieces, special ids included; with '
      '100 extra ids they should fill a multiple of 128.')
  flags.DEFINE_string('output', None, 'Folder to write.', required=True)
  app.run(main)
