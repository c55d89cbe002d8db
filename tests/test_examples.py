"""Data sets: lines as they stand in the file, errors with their place."""

import pathlib
import sys
import types
import urllib.error

import pytest
import sacrebleu

from specdec_jax import examples


def _file(tmp_path, content: str, name='data.tsv') -> pathlib.Path:
  path = tmp_path / name
  path.write_bytes(content.encode('utf-8'))
  return path


def _load(tmp_path, content, kind='tsv', **options):
  return examples.load(f'{kind}:{_file(tmp_path, content)}', **options)


# -- lines


def test_every_line_is_kept_as_it_stands(tmp_path):
  # case-35, case-61: empty first and last, blanks only, a tab, both line ends.
  path = _file(tmp_path, '\r\na  b\r\n \nc\td\n\n')
  assert examples.lines(path) == ['', 'a  b', ' ', 'c\td', '']


@pytest.mark.parametrize('content, expected', [
    ('', []), ('\n', ['']), ('a', ['a']), ('a\n', ['a']), ('a\n\n', ['a', '']),
    ('\ufeffa\nb\n', ['a', 'b'])])
def test_a_last_line_end_adds_no_line(tmp_path, content, expected):
  assert examples.lines(_file(tmp_path, content)) == expected


@pytest.mark.parametrize('other', ['\u2028', '\u0085', '\x0b', '\x0c', '\r'])
def test_only_line_ends_split_lines(tmp_path, other):
  assert examples.lines(_file(tmp_path, f'a{other}b\n')) == [f'a{other}b']


def test_a_missing_file_is_named(tmp_path):
  with pytest.raises(examples.DataError, match='none.tsv: no such file'):
    examples.load(f'tsv:{tmp_path / "none.tsv"}')


def test_a_file_that_is_not_utf_8_is_named(tmp_path):
  path = tmp_path / 'latin.tsv'
  path.write_bytes('Fläche\n'.encode('latin-1'))
  with pytest.raises(examples.DataError, match='latin.tsv: not readable as'):
    examples.load(f'tsv:{path}')


# -- tsv and jsonl


def test_tsv_gives_source_and_reference(tmp_path):
  assert _load(tmp_path, 'a\tb\n\t\nc\td\n') == [
      examples.Example(0, 'a', 'b'), examples.Example(1, '', ''),
      examples.Example(2, 'c', 'd')]


def test_tsv_without_tabs_has_sources_only(tmp_path):
  # case-61
  assert _load(tmp_path, '\na\n \n\n') == [
      examples.Example(0, '', None), examples.Example(1, 'a', None),
      examples.Example(2, ' ', None), examples.Example(3, '', None)]


@pytest.mark.parametrize('content, line', [
    ('a\tb\tc\n', 1), ('a\tb\na\tb\tc\n', 2), ('a\nb\nc\td\n', 3),
    ('a\tb\nc\n', 2)])
def test_tsv_with_another_number_of_columns_names_the_line(
    tmp_path, content, line):
  # case-35: a stray tab is no reference.
  with pytest.raises(examples.DataError, match=f'line {line}: . columns'):
    _load(tmp_path, content)


def test_jsonl_gives_source_and_reference(tmp_path):
  content = '{"source": "a\\tb"}\n{"source": "", "reference": "d"}\n'
  assert _load(tmp_path, content, 'jsonl') == [
      examples.Example(0, 'a\tb', None), examples.Example(1, '', 'd')]


@pytest.mark.parametrize('line', [
    '', 'text', '[]', '"a"', '{}', '{"reference": "a"}', '{"source": 1}',
    '{"source": "a", "reference": 1}', '{"source": "a"'])
def test_a_bad_jsonl_line_is_named(tmp_path, line):
  with pytest.raises(examples.DataError, match='line 2: '):
    _load(tmp_path, f'{{"source": "a"}}\n{line}\n', 'jsonl')


def test_limit_takes_the_first(tmp_path):
  loaded = _load(tmp_path, 'a\nb\nc\n', limit=2)
  assert [example.source for example in loaded] == ['a', 'b']
  assert len(_load(tmp_path, 'a\nb\nc\n', limit=9)) == 3


# -- names


@pytest.mark.parametrize('name', ['wmt99', 'tsv:', 'jsonl:', 'csv:a', ''])
def test_an_unknown_name_lists_what_is_allowed(name):
  with pytest.raises(examples.DataError) as error:
    examples.load(name)
  assert repr(name) in str(error.value)
  assert 'ende_mini, ende_mini_packages, tsv:PATH' in str(error.value)


def test_a_test_set_from_german_only_is_no_english_german_set():
  with pytest.raises(examples.DataError, match='allowed are'):
    examples.load('wmt20/robust/set3')


def test_wmt_without_a_network_says_so(monkeypatch):
  def unreachable(*_):
    raise urllib.error.URLError('no route to host')
  monkeypatch.setattr(sacrebleu, 'get_source_file', unreachable)
  with pytest.raises(examples.DataError, match='wmt14.*needs a network'):
    examples.load('wmt14')


def test_wmt_gives_sacrebleu_s_files(monkeypatch, tmp_path):
  source = _file(tmp_path, 'a\nb\n', 'source')
  reference = _file(tmp_path, 'c\nd\n', 'reference')
  monkeypatch.setattr(sacrebleu, 'get_source_file', lambda *_: str(source))
  monkeypatch.setattr(
      sacrebleu, 'get_reference_files', lambda *_: [str(reference)])
  assert examples.load('wmt14') == [
      examples.Example(0, 'a', 'c'), examples.Example(1, 'b', 'd')]


def test_tfds_gives_one_line_texts_of_its_test_split(monkeypatch):
  asked = []

  def load(name, split):
    asked.append((name, split))
    return [{'article': b'Two\n lines.', 'highlights': b'Short.', 'id': b'0'},
            {'article': b'More.', 'highlights': b'Less.', 'id': b'1'}]
  monkeypatch.setitem(sys.modules, 'tensorflow_datasets', types.SimpleNamespace(
      load=load, as_numpy=iter))
  (found,) = examples.load('tfds:cnn_dailymail', 1)
  assert (found.source, found.reference) == ('Two lines.', 'Short.')
  assert asked == [('cnn_dailymail', 'test')]


def test_tfds_that_is_not_installed_says_what_to_do(monkeypatch):
  monkeypatch.setitem(sys.modules, 'tensorflow_datasets', None)
  with pytest.raises(examples.DataError, match='needs tensorflow_datasets'):
    examples.load('tfds:cnn_dailymail')


def test_an_unknown_tfds_set_is_refused_with_the_known_ones():
  with pytest.raises(examples.DataError, match='allowed are tfds:cnn'):
    examples.load('tfds:mnist')
