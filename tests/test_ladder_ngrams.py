"""Tables of the ladder: what they count."""

import shutil

import numpy as np
import pytest

from experiments.ladder import ngrams
from specdec_jax import examples
from specdec_jax import ngram


@pytest.fixture
def corpus(tmp_path, vocabulary):
  folder = tmp_path / 'corpus'
  folder.mkdir()
  shutil.copy(vocabulary.path, folder / 'sentencepiece.model')
  for name in ngrams.PARTS:
    (folder / name).write_text('Open it.\tDatei\n', 'utf-8')
  return folder


def test_only_the_target_side_is_counted_and_taught_text_adds_to_it(
    corpus, tmp_path):
  taught = tmp_path / 'taught'
  taught.mkdir()
  (taught / 'one.tsv').write_text('Open it.\tSeite\n', 'utf-8')
  assert list(ngrams.texts(corpus, None)) == ['Datei'] * 2
  assert list(ngrams.texts(corpus, taught)) == ['Datei', 'Datei', 'Seite']


def test_both_tables_are_written_for_the_corpus_vocabulary(
    corpus, tmp_path, vocabulary):
  ngrams.make(corpus, None, tmp_path)
  unigram, bigram = (ngram.load(tmp_path / n) for n in ('unigram', 'bigram'))
  assert unigram.fingerprint == bigram.fingerprint == vocabulary.fingerprint
  assert unigram.table.successors.shape == (vocabulary.text_size, 0)
  first = vocabulary.encode('Datei')[0]
  assert bigram.table.successors[0, 0] == first
  np.testing.assert_allclose(
      np.exp(bigram.table.listed[0, 0]), 1.25 / 2, atol=1e-3)


def test_data_without_targets_is_refused_by_name(corpus, tmp_path):
  with pytest.raises(examples.DataError, match='no TSV there'):
    list(ngrams.texts(corpus, tmp_path))
  (tmp_path / 'one.tsv').write_text('no second column\n', 'utf-8')
  with pytest.raises(examples.DataError, match='one.tsv: needed are two'):
    list(ngrams.texts(corpus, tmp_path))
