"""Lines in, lines out: as many, whatever is in them."""

import os
import pathlib
import subprocess
import sys

import pytest

from specdec_jax import generate
from specdec_jax import trace
from specdec_jax import translate
from tests import tiny

ROOT = pathlib.Path(__file__).parent.parent
# A tab, double and single blanks, Windows line ends, empty first and last.
SOURCE = b'\r\nOpen\tthe  file.\r\n   \nClose the window.\n\n'
LINES = 5


@pytest.fixture(scope='module')
def models(tmp_path_factory):
  folder = tmp_path_factory.mktemp('models')
  return [f'--target={tiny.save(folder / "target", tiny.TARGET)}',
          f'--draft={tiny.save(folder / "small", tiny.DRAFTS["small"], 1)}']


def run(*arguments, data=b''):
  return subprocess.run(
      [sys.executable, '-m', 'specdec_jax.translate', '--gamma=3',
       '--max_new_tokens=8', *arguments], input=data, capture_output=True,
      env={**os.environ, 'PYTHONPATH': str(ROOT)})


@pytest.fixture(scope='module')
def done(models):
  return run(*models, '--trace', '--stats', data=SOURCE)


def test_one_line_comes_out_for_each_line_that_goes_in(done):
  assert done.returncode == 0, done.stderr
  assert done.stdout.count(b'\n') == LINES and done.stdout.endswith(b'\n')


def test_trace_and_stats_go_to_standard_error(done):
  text = done.stderr.decode()
  assert f'{LINES} lines, ' in text and 'tokens/s in the decoder' in text
  assert '[-rejected-]' in text and '\x1b[' not in text


def test_a_file_gives_the_lines_of_standard_input(models, done, tmp_path):
  path = tmp_path / 'source.txt'
  path.write_bytes(b'\xef\xbb\xbf' + SOURCE)
  again = run(*models, f'--input={path}', '--batch_size=2')
  assert again.stdout == done.stdout


@pytest.mark.parametrize(('arguments', 'data', 'message'), [
    (['--target=nowhere'], b'a\n', 'model nowhere: no such file or folder'),
    (['--gamma=-1'], b'a\n', 'gamma=-1: allowed are'),
    (['--temperature=-1'], b'a\n', 'temperature=-1.0: allowed are'),
    (['--input=nowhere.txt'], b'', 'data nowhere.txt: no such file'),
    ([], b'\xff\n', 'standard input: not readable as UTF-8'),
    (['--repetition_penalty=1.3'], b'a\n', 'repetition_penalty'),
])
def test_errors_name_what_is_wrong_and_end_with_status_1(
    models, arguments, data, message):
  found = run(*models, *arguments, data=data)
  assert found.returncode == 1 and not found.stdout
  assert message in found.stderr.decode()


def seen(**values):
  return trace.TraceRound(**{
      'drafted': (5, 6, 7), 'pieces': ('a', 'b', 'c'), 'p': (0.5,) * 3,
      'q': (0.5,) * 3, 'accepted': 1, 'next_id': 8, 'next_piece': 'd',
      'next_p': 0.5, 'discarded': 0, **values})


@pytest.mark.parametrize(('values', 'line'), [
    ({}, 'a [-b-] [.c.] {+d+}'), ({'accepted': 3}, 'a b c (+d)'),
    ({'drafted': (1, 6, 7)}, 'a [.b.] [.c.]'),
    ({'drafted': (), 'pieces': (), 'p': (), 'q': (), 'accepted': 0}, '(+d)')])
def test_each_fate_has_a_sign_of_its_own(values, line):
  assert translate.round_line(seen(**values), False) == line


def test_colour_only_adds_to_the_signs():
  line = translate.round_line(seen(), True)
  assert line.startswith('\x1b[32ma\x1b[0m \x1b[31m[-b-]\x1b[0m')


@pytest.mark.parametrize(('terminal', 'value', 'colour'), [
    (True, '', True), (True, '1', False), (False, '', False)])
def test_colour_is_for_terminals_without_no_color(
    terminal, value, colour, monkeypatch):
  monkeypatch.setenv('NO_COLOR', value)
  assert translate.wants_colour(terminal) == colour


def test_a_piece_cannot_steer_the_terminal():
  assert translate.printable('\x1b[2Jé▁') == '\\x1b[2Jé▁'


def test_line_ends_inside_an_output_become_blanks():
  assert translate.one_line('a\nb\r\nc\u2028d') == 'a b c d'


def test_stats_without_a_token_are_not_numbers():
  assert '0 of 0 drafts accepted (n/a)' in translate.stats([])


def test_stats_are_totals():
  one = generate.Output(
      'x', (5, 6, 7, 8), 'length', (generate.Round(3, 2, 0),
                                    generate.Round(1, 0, 0)),
      tiny.vocabulary().encode_source('x', 4), 1.0, 2.0)
  assert translate.stats([one, one]) == (
      '2 lines, 8 tokens in 4 rounds (2.00 a round); 4 of 8 drafts accepted '
      '(0.50); 2 lines cut by max_new_tokens; 2.0 tokens/s in the decoder, 1.3 '
      'with the encoders, compilation outside')
