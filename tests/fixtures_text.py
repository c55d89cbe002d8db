"""Text for the tests that need some: sentences and a vocabulary of them."""

import random

import pytest

from specdec_jax import vocab

_NOUNS = {'file': 'Datei', 'page': 'Seite', 'table': 'Tabelle',
          'line': 'Zeile', 'cell': 'Zelle', 'list': 'Liste',
          'formula': 'Formel', 'area': 'Fläche'}
_VERBS = {'Open': 'Öffnen', 'Close': 'Schließen', 'Print': 'Drucken',
          'Select': 'Wählen', 'Delete': 'Löschen'}
_NUMBERS = {'first': 'erste', 'second': 'zweite', 'third': 'dritte',
            'new': 'neue', 'last': 'letzte'}


def sentence_pairs() -> list[tuple[str, str]]:
  """All 200 English and German sentences, shuffled."""
  pairs = [
      (f'{verb} the {number} {noun}.',
       f'{_VERBS[verb]} Sie die {_NUMBERS[number]} {_NOUNS[noun]}.')
      for verb in _VERBS for number in _NUMBERS for noun in _NOUNS]
  random.Random(0).shuffle(pairs)
  return pairs


@pytest.fixture(scope='session')
def vocabulary(tmp_path_factory) -> vocab.Vocabulary:
  """A SentencePiece model of 70 pieces; with its extra ids, 170 ids."""
  path = tmp_path_factory.mktemp('vocabulary') / 'sentencepiece.model'
  texts = [side for pair in sentence_pairs() for side in pair]
  return vocab.train(texts, path, 70)
