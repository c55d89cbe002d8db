"""The corpus: aligned by id, split by page, nothing held out in training."""

import itertools
import json

import pytest

from experiments.ladder import corpus

# -- help pages


def test_paragraphs_and_headings_are_found_by_their_ids():
  assert corpus.read_page(
      '<h1 id="hd_1">Open <span>a</span> file</h1>'
      '<p id="par_2" class="x">The &lt;file&gt;\n  is <b>open</b>.</p>'
      '<p>no id</p><p id="other">no paragraph</p><p id="par_3"> </p>'
  ) == {'hd_1': 'Open a file', 'par_2': 'The <file> is open.'}


def test_a_line_break_separates_words():
  assert corpus.read_page('<p id="par_1">one<br>two<br/>three</p>') == {
      'par_1': 'one two three'}


@pytest.mark.parametrize('hidden', [
    'Command', '<b>Com</b>mand', 'Com<br>mand', 'Com<br/>mand',
    '<img src="a.png">Command', '<img src="a.png"/>Command'])
def test_variants_of_other_platforms_are_left_out(hidden):
  assert corpus.read_page(
      f'<p id="par_1">Press <span class="MAC">{hidden}</span>'
      '<span class="DEFAULT">Ctrl</span>+S.</p><p id="par_2">Next.</p>'
  ) == {'par_1': 'Press Ctrl+S.', 'par_2': 'Next.'}


def test_a_whole_hidden_paragraph_is_left_out():
  assert corpus.read_page(
      '<div class="WIN"><p id="par_1">Windows</p></div><p id="par_2">All</p>'
  ) == {'par_2': 'All'}


def test_a_page_needs_both_languages_and_a_paragraph_both_sides(tmp_path):
  def page(lang, name, html):
    path = (tmp_path / lang / 'usr/share/libreoffice/help'
            / corpus.HELP_FOLDERS[lang] / 'text' / name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html)
  page('en', 'a/both.html', '<p id="par_1">One</p><p id="par_2">Two</p>')
  page('de', 'a/both.html', '<p id="par_2">Zwei</p><p id="par_3">Drei</p>')
  page('en', 'english.html', '<p id="par_1">One</p>')
  page('de', 'german.html', '<p id="par_1">Eins</p>')
  assert list(corpus.read_help(tmp_path)) == [
      ('help', 'a/both.html', 'Two', 'Zwei')]


# -- package descriptions


def _description(*body: str) -> str:
  return '\n'.join(body)


def test_paragraphs_of_a_description():
  assert corpus.paragraphs(_description(
      'a short line', ' First paragraph,', ' two lines.', ' .', ' Second.')
  ) == ['a short line', 'First paragraph, two lines.', 'Second.']
  assert corpus.paragraphs('a short line') == ['a short line', '']


@pytest.mark.parametrize('item', ['  * one', ' * one', ' - one', '  one'])
def test_a_list_is_left_out_and_shifts_nothing(item):
  assert corpus.paragraphs(_description(
      'a short line', ' First.', ' .', item, ' .', ' Third.')
  ) == ['a short line', 'First.', '', 'Third.']


def _stanza(package, checksum, lang, *body):
  return (f'Package: {package}\nDescription-md5: {checksum}\n'
          f'Description-{lang}: ' + '\n'.join(body) + '\n')


def test_descriptions_are_joined_by_checksum_and_number_of_paragraphs(
    tmp_path):
  english = [
      _stanza('libone-dev', 'aa', 'en', 'first', ' One.', ' .', ' Two.'),
      _stanza('two', 'bb', 'en', 'second', ' One.'),
      _stanza('three', 'cc', 'en', 'third', ' One.', ' .', ' Two.')]
  german = [
      _stanza('libone-dev', 'aa', 'de', 'erste', ' Eins.', ' .', ' Zwei.'),
      _stanza('three', 'cc', 'de', 'dritte', ' Eins.'),
      _stanza('four', 'dd', 'de', 'vierte', ' Eins.')]
  (tmp_path / 'main_Translation-en').write_text('\n'.join(english))
  (tmp_path / 'main_Translation-de').write_text('\n'.join(german))
  assert list(corpus.read_packages(tmp_path)) == [
      ('packages', 'one', 'first', 'erste'),
      ('packages', 'one', 'One.', 'Eins.'),
      ('packages', 'one', 'Two.', 'Zwei.')]


# -- which pairs


@pytest.mark.parametrize('english, german, usable', [
    ('Open the file.', 'Öffnen Sie die Datei.', True),
    ('LibreOffice', 'LibreOffice', False),        # untranslated
    ('ok', 'gut', False),                         # under three letters
    ('= 1 + 2 * x ...', '= 1 + 2 mal x', False),  # mostly no letters
    ('one two', 'a b c d e f g', True),
    ('one two', 'a b c d e f g h', False),        # over twice as long, plus 3
    ('word ' * 60, 'Wort ' * 60, True),
    ('word ' * 61, 'Wort ' * 61, False),
    ('', '', False)])
def test_only_pairs_worth_training_on_are_usable(english, german, usable):
  assert corpus.is_usable(english, german) == usable


def test_tidy_of_the_docstring_example():
  assert corpus.tidy(' a\n b ') == 'a b'
  assert corpus.tidy('a\u00a0b\tc\u2028d') == 'a b c d'


# -- the split


def _page_in(part, number=0):
  """The `number`-th page name that falls into `part`."""
  names = (f'page{i}' for i in itertools.count())
  pages = (n for n in names if corpus.part_of('help', n) == part)
  return next(itertools.islice(pages, number, None))


def test_parts_have_about_their_share_of_the_pages():
  parts = [corpus.part_of('help', f'page{i}') for i in range(5000)]
  for part, percent in corpus.HELD_OUT_PERCENT.items():
    assert 0.75 * percent < 100 * parts.count(part) / 5000 < 1.25 * percent


def test_a_page_is_in_one_part_only():
  pairs = [('help', f'page{i % 300}', f'sentence {i}', f'Satz {i}')
           for i in range(3000)]
  parts = corpus.split(iter(pairs))
  page_of = {english: page for _, page, english, _ in pairs}
  pages = {part: {page_of[english] for _, english, _ in rows}
           for part, rows in parts.items()}
  assert all(pages.values())
  assert sum(map(len, pages.values())) == 300
  assert sum(map(len, parts.values())) == 3000


@pytest.mark.parametrize('held_out', ['test', 'validation'])
@pytest.mark.parametrize('english, german', [
    ('Open the file.', 'Andere Worte.'), ('Other words.', 'Datei öffnen.'),
    ('OPEN the file.', 'Andere Worte.')])
def test_a_held_out_sentence_is_in_no_training_pair(
    held_out, english, german):
  # By either language alone, and whatever the case.
  parts = corpus.split(iter([
      ('help', _page_in('train'), english, german),
      ('help', _page_in('train'), 'Close the page.', 'Seite schließen.'),
      ('packages', _page_in('train'), english, german),
      ('help', _page_in(held_out), 'Open the file.', 'Datei öffnen.')]))
  assert parts[held_out] == [('help', 'Open the file.', 'Datei öffnen.')]
  assert parts['train'] == [('help', 'Close the page.', 'Seite schließen.')]


def test_test_and_validation_share_no_sentence():
  parts = corpus.split(iter([
      ('help', _page_in('validation'), 'Open the file.', 'Andere Worte.'),
      ('help', _page_in('test'), 'Open the file.', 'Datei öffnen.')]))
  assert len(parts['test']) == 1 and not parts['validation']


def test_a_pair_that_occurs_twice_is_kept_once():
  parts = corpus.split(iter(
      [('help', _page_in('train', i), 'Open the file.', 'Datei öffnen.')
       for i in range(3)]
      + [('help', _page_in('train'), 'Open the file.', 'Die Datei öffnen.')]))
  assert [row[2] for row in parts['train']] == [
      'Datei öffnen.', 'Die Datei öffnen.']


def test_what_is_written_is_counted_and_read_back(tmp_path):
  parts = {'test': [('help', 'a', 'b')],
           'train': [('packages', 'c', 'd'), ('help', 'e', 'f'),
                     ('help', 'g', 'h')]}
  counts = corpus.write(parts, tmp_path)
  assert counts == {'help.test': 1, 'help.train': 2, 'packages.train': 1}
  assert (tmp_path / 'help.train.tsv').read_text() == 'e\tf\ng\th\n'
  assert json.loads((tmp_path / 'corpus.json').read_text()) == counts
