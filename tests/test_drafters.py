"""Every drafter by name: found, checked, exact at every temperature."""

import functools

import jax
from jax import numpy as jnp
import numpy as np
import pytest

from specdec_jax import checkpoint
from specdec_jax import drafters
from specdec_jax import examples
from specdec_jax import generate
from specdec_jax import ngram
from specdec_jax import sampling
from specdec_jax import vocab
from tests import scripted
from tests import tiny

FREQUENCY = 0.015  # over 20,000 keys: more than four standard errors
KEYS = 20_000
NAMES = ('unigram', 'bigram', 'lookup', 'copy', 'uniform')


def table(size: int, successors: int) -> ngram.Table:
  """Counts of random texts that use all ids but pad."""
  rows = np.random.default_rng(size).integers(1, size, (30, 20)).tolist()
  made = ngram.train(rows, size, successors)
  return jax.tree.map(
      lambda x: jnp.asarray(x, jnp.float32 if x.dtype.kind == 'f'
                            else jnp.int32), made)


@functools.cache
def modelless(name: str, size: int) -> drafters.Modelless:
  if name not in ('unigram', 'bigram'):
    return drafters.load(name)
  return drafters.Modelless(
      name, lambda size: ngram.drafter(),
      table(size, 3 if name == 'bigram' else 0))


def run(name, size, target, gamma, budget, **options):
  one = modelless(name, size)
  return scripted.run(target, one.make(size), gamma, budget,
                      params=one.params, **options)


@pytest.fixture(scope='module')
def plain():
  return decode(None, 0, 1)


# The law of sampled output.


SIZE = 6  # tokens 2 to 5 are said
_TABLE = np.random.default_rng(0).dirichlet(np.ones(4), size=(SIZE, SIZE))
LOGITS = jnp.asarray(np.pad(
    np.log(_TABLE), ((0, 0), (0, 0), (2, 0)), constant_values=-1e9),
    jnp.float32)


def target(history, count, row):
  """The law depends on the last two tokens."""
  return LOGITS[history[jnp.maximum(count - 2, 0)], history[count - 1]]


SOURCES = ([3, 2, 5, 1, 0], [4, 1, 0, 0, 0])  # each for half of the rows
FILTERS = dict(top_k=3, top_p=0.9)


@functools.cache
def sampled(name, temperature):
  return run(name, SIZE, target, 2, 4, rows=SOURCES * (KEYS // 2),
             temperature=temperature, **FILTERS)


@pytest.mark.parametrize('temperature', [0.7, 1.0])
@pytest.mark.parametrize('name', NAMES)
def test_sampled_output_has_the_targets_law(name, temperature):
  law = np.asarray(sampling.law(
      LOGITS, sampling.make(temperature, **FILTERS)))
  expected, found = np.zeros((SIZE,) * 3), np.zeros((SIZE,) * 3)
  for a, b, c in np.ndindex(*expected.shape):
    expected[a, b, c] = law[0, 0, a] * law[0, a, b] * law[a, b, c]
  for a, b, c in sampled(name, temperature).tokens[:, :3]:
    found[a, b, c] += 1 / KEYS
  np.testing.assert_allclose(found, expected, atol=FREQUENCY)
  assert not np.any(found[expected == 0])


@pytest.mark.parametrize('temperature', [0.7, 1.0])
@pytest.mark.parametrize('name', NAMES)
def test_acceptance_is_the_overlap_with_the_q_that_is_returned(
    name, temperature):
  one, law = modelless(name, SIZE), sampling.make(temperature, **FILTERS)
  drafter = one.make(SIZE)
  prefix = scripted.draft_lib.Prefix(
      jnp.zeros((2, 8), jnp.int32), jnp.asarray([1, 1]))
  q = drafter.draft(
      one.params, drafter.start(one.params, jnp.asarray(SOURCES), 8), prefix,
      1, jnp.asarray(1), law, jnp.zeros((2, 1))).q[:, 0]
  overlap = jnp.minimum(sampling.law(LOGITS[0, 0], law)[None], q).sum(axis=1)
  kept = sampled(name, temperature).log.accepted[:, 0] > 0
  for half in range(2):
    assert abs(kept[half::2].mean() - float(overlap[half])) < FREQUENCY


# Same ids as plain decoding at temperature 0.


@pytest.mark.parametrize('gamma', [1, 3, 8])
@pytest.mark.parametrize('name', NAMES)
def test_greedy_output_is_plain_output_on_scripted_models(name, gamma):
  script = scripted.noisy(0, 12)
  rows = [[3, 9, 1, 0], [4, 1, 0, 0], [5, 6, 7, 1], [6, 1, 0, 0]]
  expected = scripted.outputs(scripted.run(script, None, 0, 24, rows=rows))
  decoded = run(name, 12, script, gamma, 24, rows=rows)
  assert scripted.outputs(decoded) == expected


def decode(draft, gamma, batch_size):
  decoder = generate.Decoder(
      tiny.loaded(tiny.TARGET), draft, gamma=gamma, batch_size=batch_size,
      max_new_tokens=20, source_buckets=(64,))
  return [output.ids for output in decoder(tiny.TEXTS)]


@pytest.mark.parametrize(('gamma', 'batch_size'), [(2, 1), (5, 4)])
@pytest.mark.parametrize('name', NAMES)
def test_greedy_output_is_plain_output_of_a_model(
    plain, name, gamma, batch_size):
  draft = modelless(name, tiny.vocabulary().text_size)
  assert decode(draft, gamma, batch_size) == plain


def test_copying_is_kept_where_the_target_copies():
  def copies(history, count, row):
    return jax.nn.one_hot(jnp.asarray([7, 8, 9, 1])[count - 1], 12) * 50
  decoded = run('copy', 12, copies, 3, 8, rows=[[7, 8, 9, 1]])
  assert scripted.counts(decoded, 'accepted') == [3]
  assert scripted.outputs(decoded) == [[7, 8, 9, 1]]


def test_lookup_is_kept_where_the_target_repeats_itself():
  decoded = run('lookup', 12, scripted.path([5, 6, 7] * 9, 12), 3, 27,
                rows=[[1]])
  assert scripted.counts(decoded, 'accepted') == [0] * 4 + [3] * 5 + [2]


# Names.


@pytest.mark.parametrize(('name', 'successors'), [
    ('mini/unigram', 0), ('mini/bigram', ngram.SUCCESSORS)])
def test_the_built_in_tables_fit_the_built_in_vocabulary(name, successors):
  words = vocab.Vocabulary(
      examples.ASSETS / 'ende_mini' / 'target' / 'sentencepiece.model')
  one = drafters.load(name)
  assert one.bind(words) is one.bind(words)
  assert one.params.successors.shape == (words.text_size, successors)
  folder = examples.ASSETS / 'ende_mini' / name.removeprefix('mini/')
  assert sum(p.stat().st_size for p in folder.iterdir()) < 1.5e6


def test_everything_else_is_a_model(tmp_path):
  path = tiny.save(tmp_path / 'small', tiny.DRAFTS['small'])
  assert isinstance(drafters.load(path), checkpoint.Loaded)
  with pytest.raises(checkpoint.CheckpointError, match='model nowhere: no'):
    drafters.load('nowhere')


def test_a_table_for_another_number_of_ids_is_refused_with_both(tmp_path):
  words = tiny.vocabulary()
  ngram.save(tmp_path, ngram.train([[4, 1]], words.text_size, 2), words)
  one = drafters.load(tmp_path)
  more = vocab.Vocabulary(words.path, extra_ids=101)
  with pytest.raises(
      vocab.VocabularyError,
      match=f'target has {more.text_size} ids .* has {words.text_size}'):
    one.bind(more)


def test_a_table_for_other_pieces_is_refused_by_name(tmp_path):
  words, other = tiny.vocabulary(), tiny.vocabulary(swapped=True)
  assert words.text_size == other.text_size
  ngram.save(tmp_path, ngram.train([[4, 1]], words.text_size, 2), words)
  target_model = tiny.loaded(tiny.TARGET)
  generate.Decoder(target_model, drafters.load(tmp_path))
  ngram.save(tmp_path, ngram.train([[4, 1]], words.text_size, 2), other)
  with pytest.raises(vocab.VocabularyError, match='made for other pieces'):
    generate.Decoder(target_model, drafters.load(tmp_path))


def test_equal_drafts_share_their_programs():
  for name in NAMES:
    assert modelless(name, 12).make(12) is modelless(name, 12).make(12)
