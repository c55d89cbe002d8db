"""N-gram tables: counts, laws, files."""

import json

from jax import numpy as jnp
import numpy as np
import pytest

from specdec_jax import draft
from specdec_jax import ngram
from specdec_jax import sampling

ROWS = [[4, 5, 1], [4, 6, 1], [4, 5, 1]]
SIZE = 8


def as_float32(table):
  return ngram.Table(
      jnp.asarray(table.unigram, jnp.float32),
      jnp.asarray(table.backoff, jnp.float32),
      jnp.asarray(table.successors, jnp.int32),
      jnp.asarray(table.listed, jnp.float32))


def probabilities(table, last):
  return np.exp(np.asarray(
      ngram.logits(as_float32(table), jnp.asarray([last]))[0]))


def test_worked_example_of_train():
  law = probabilities(ngram.train(ROWS, SIZE, 2), 4)
  np.testing.assert_allclose(law[5], 1.25 / 3, atol=1e-6)
  np.testing.assert_allclose(law[6], 0.25 / 3, atol=1e-6)
  # Seen: EOS three times, 4 three times; 2, 3 and 7 count one half each.
  others = np.array([3, 0.5, 0.5, 3, 0.5])
  np.testing.assert_allclose(
      law[[1, 2, 3, 4, 7]], 0.5 * others / others.sum(), atol=1e-6)
  assert law[0] == 0


@pytest.mark.parametrize('successors', [0, 1, 2, 5, 7])
def test_every_law_sums_to_one(successors):
  table = ngram.train(ROWS, SIZE, successors)
  for last in range(SIZE):
    if successors < 7:
      assert abs(probabilities(table, last).sum() - 1) < 1e-5
    assert np.all(probabilities(table, last)[1:] > 0)


def test_a_table_without_successors_is_the_unigram_law_everywhere():
  table = ngram.train(ROWS, SIZE, 0)
  counts = np.array([0, 3, 0.5, 0.5, 3, 2, 1, 0.5])
  for last in (0, 4, 7):
    np.testing.assert_allclose(
        probabilities(table, last), counts / counts.sum(), atol=1e-6)


def test_likelier_successors_are_kept_and_ties_go_to_the_lowest_id():
  table = ngram.train([[4, 6, 4, 5, 4, 7, 4, 7, 1]], SIZE, 2)
  assert table.successors[4].tolist() == [7, 5]


def test_a_pair_never_seen_backs_off_to_the_unigram_law():
  table = ngram.train(ROWS, SIZE, 2)
  np.testing.assert_allclose(
      probabilities(table, 7), np.exp(table.unigram), atol=1e-6)


def test_the_first_draft_follows_the_start_token():
  table = ngram.train(ROWS, SIZE, 2)
  prefix = draft.Prefix(jnp.zeros((1, 8), jnp.int32), jnp.asarray([1]))
  found = ngram.drafter().draft(
      as_float32(table), None, prefix, 3, jnp.asarray(3), sampling.make(0.0),
      jnp.zeros((1, 3)))
  assert found.tokens.tolist() == [[4, 5, 1]]
  np.testing.assert_array_equal(found.q[0], np.eye(SIZE)[[4, 5, 1]])


def test_uniform_gives_all_but_pad_and_the_filters_apply():
  def law(**options):
    prefix = draft.Prefix(jnp.zeros((1, 8), jnp.int32), jnp.asarray([1]))
    return ngram.uniform(5).draft(
        None, None, prefix, 1, jnp.asarray(1), sampling.make(**options),
        jnp.zeros((1, 1))).q[0, 0]
  np.testing.assert_allclose(
      law(temperature=1.0), [0, 0.25, 0.25, 0.25, 0.25], atol=1e-6)
  np.testing.assert_allclose(
      law(temperature=1.0, top_k=2), [0, 0.5, 0.5, 0, 0], atol=1e-6)
  np.testing.assert_array_equal(law(temperature=0.0), [0, 1, 0, 0, 0])


# Files.


@pytest.fixture
def folder(tmp_path, vocabulary):
  rows = [[*vocabulary.encode(text), 1] for text in (
      'Öffnen Sie die erste Datei.', 'Schließen Sie die letzte Seite.')]
  ngram.save(tmp_path, ngram.train(rows, vocabulary.text_size, 3), vocabulary)
  return tmp_path


def test_a_saved_table_is_loaded_with_the_same_values(folder, vocabulary):
  rows = [[*vocabulary.encode(text), 1] for text in (
      'Öffnen Sie die erste Datei.', 'Schließen Sie die letzte Seite.')]
  table, stored = ngram.train(rows, vocabulary.text_size, 3), ngram.load(folder)
  assert stored.size == vocabulary.text_size
  assert stored.fingerprint == vocabulary.fingerprint
  np.testing.assert_array_equal(stored.table.successors, table.successors)
  for name in ('unigram', 'backoff', 'listed'):
    np.testing.assert_allclose(
        getattr(stored.table, name), getattr(table, name), rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize(('name', 'content', 'message'), [
    (ngram.FILE, b'{}', 'ngram.json: needed are size'),
    (ngram.FILE, b'[1', 'ngram.json: needed are size'),
    (ngram.FILE, b'{"size": -1, "successors": 3, "fingerprint": ""}',
     'size=-1'),
    ('listed.npy', b'', 'listed.npy: not a readable .npy'),
    ('listed.npy', b'PK\x03\x04zip', 'listed.npy: not a readable .npy'),
])
def test_a_damaged_file_is_refused_by_name(folder, name, content, message):
  (folder / name).write_bytes(content)
  with pytest.raises(ngram.TableError, match=message):
    ngram.load(folder)


def test_arrays_that_do_not_belong_together_are_refused(folder):
  def with_array(name, array):
    kept = (folder / f'{name}.npy').read_bytes()
    np.save(folder / f'{name}.npy', array)
    with pytest.raises(ngram.TableError) as error:
      ngram.load(folder)
    (folder / f'{name}.npy').write_bytes(kept)
    return str(error.value)
  size = json.loads((folder / ngram.FILE).read_text())['size']
  assert 'unigram.npy: float16 of shape (3,)' in with_array(
      'unigram', np.zeros(3, np.float16))
  assert 'needed is unsigned integers' in with_array(
      'successors', np.zeros((size, 3)))
  assert f'a successor of {size} or above' in with_array(
      'successors', np.full((size, 3), size, np.uint16))
  assert 'no logarithms' in with_array(
      'backoff', np.full(size, np.nan, np.float16))


def test_no_pickle_is_ever_loaded(folder):
  np.save(folder / 'unigram.npy', np.array([{}]), allow_pickle=True)
  with pytest.raises(ngram.TableError, match='not a readable .npy'):
    ngram.load(folder)


def test_a_header_that_asks_for_more_than_the_file_holds_is_refused(folder):
  path = folder / 'unigram.npy'
  raw = path.read_bytes()
  size = json.loads((folder / ngram.FILE).read_text())['size']
  path.write_bytes(raw.replace(f'({size},)'.encode(), b'(9999999999999,)'))
  with pytest.raises(ngram.TableError, match='unigram.npy: not a readable'):
    ngram.load(folder)
