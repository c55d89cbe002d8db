"""Batches: a pure function of seed and step, with few shapes."""

import itertools

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from specdec_jax import batches
from specdec_jax import examples
from specdec_jax import vocab

BUCKETS = (4, 8, 16)

lengths_lists = st.lists(st.integers(1, 16), min_size=1, max_size=60)
keys = st.tuples(st.integers(0, 9), st.integers(0, 9))


def _pairs(lengths):
  """Pairs of these lengths, all different, EOS at their ends."""
  return [batches.Pair(source=(2 + i, *[9] * (n - 2), 1)[-n:],
                       target=(2 + i, 1)[-n:])
          for i, n in enumerate(lengths)]


def test_plan_of_the_docstring_example():
  plan = batches.plan((3, 9, 4), (4, 16), 8, (0, 0))
  assert {(size, frozenset(indices)) for size, indices in plan} == {
      (4, frozenset({0, 2})), (16, frozenset({1}))}
  assert len(plan) == 2


@hypothesis.given(lengths_lists, st.integers(1, 64), keys)
def test_plan_is_a_pure_function_of_its_arguments(lengths, tokens, key):
  np.random.seed(0)
  first = batches.plan(lengths, BUCKETS, tokens, key)
  np.random.seed(1)
  assert batches.plan(lengths, BUCKETS, tokens, key) == first


@hypothesis.given(lengths_lists, st.integers(1, 64), keys)
def test_every_pair_appears_in_its_bucket_every_epoch(lengths, tokens, key):
  plan = batches.plan(lengths, BUCKETS, tokens, key)
  assert {i for _, indices in plan for i in indices} == set(range(len(lengths)))
  for size, indices in plan:
    assert {vocab.bucket(lengths[i], BUCKETS) for i in indices} == {size}


@hypothesis.given(lengths_lists, st.integers(1, 64), keys)
def test_all_batches_of_a_bucket_have_one_shape(lengths, tokens, key):
  for size, indices in batches.plan(lengths, BUCKETS, tokens, key):
    assert len(indices) == max(1, tokens // size)


@hypothesis.given(lengths_lists, st.integers(1, 64), keys)
def test_only_the_last_batch_of_a_bucket_repeats_pairs(lengths, tokens, key):
  plan = batches.plan(lengths, BUCKETS, tokens, key)
  for bucket in BUCKETS:
    of_bucket = [indices for size, indices in plan if size == bucket]
    repeating = [x for x in of_bucket if len(set(x)) < len(x)]
    seen = sum(len(x) for x in of_bucket)
    distinct = len({i for x in of_bucket for i in x})
    rows = max(1, tokens // bucket)
    assert seen - distinct < rows
    assert len(repeating) <= 1


def test_epochs_and_seeds_have_other_orders():
  plans = [batches.plan([4] * 50, (4,), 8, key)
           for key in ((0, 0), (0, 1), (1, 0))]
  assert plans[0] != plans[1] and plans[0] != plans[2]


@hypothesis.given(lengths_lists, st.integers(8, 64), st.integers(0, 40))
@hypothesis.settings(deadline=None)
def test_a_stream_goes_on_at_any_step_as_if_undisturbed(lengths, tokens, step):
  def first(step, count):
    stream = batches.stream(step, _pairs(lengths), BUCKETS, tokens, 3)
    return list(itertools.islice(stream, count))
  whole = first(0, step + 6)
  for a, b in zip(first(step, 6), whole[step:], strict=True):
    for name in ('source', 'inputs', 'targets'):
      np.testing.assert_array_equal(a[name], b[name])


def test_make_shifts_the_targets_behind_the_start_token():
  pairs = [batches.Pair((5, 6, 1), (7, 8, 9, 1)), batches.Pair((1,), (1,))]
  batch = batches.make(pairs, 4, [0, 1])
  assert batch['source'].tolist() == [[5, 6, 1, 0], [1, 0, 0, 0]]
  assert batch['inputs'].tolist() == [[0, 7, 8, 9], [0, 0, 0, 0]]
  assert batch['targets'].tolist() == [[7, 8, 9, 1], [1, 0, 0, 0]]


def test_load_pairs_ends_both_sides_with_eos_and_leaves_long_ones_out(
    vocabulary, tmp_path):
  path = tmp_path / 'data.tsv'
  path.write_text('Open\tÖffnen\n' + 'Open the file. ' * 9 + '\tDatei\n')
  [pair] = batches.load_pairs([f'tsv:{path}'], vocabulary, 16)
  assert pair.source == (*vocabulary.encode('Open'), 1)
  assert pair.target == (*vocabulary.encode('Öffnen'), 1)
  assert pair.length == max(len(pair.source), len(pair.target))


def test_training_data_without_references_is_refused(vocabulary, tmp_path):
  path = tmp_path / 'data.tsv'
  path.write_text('Open\n')
  with pytest.raises(examples.DataError, match='training needs references'):
    batches.load_pairs([f'tsv:{path}'], vocabulary, 16)


def test_data_without_a_usable_pair_is_refused(vocabulary, tmp_path):
  # Its stream of batches would never give one.
  path = tmp_path / 'data.tsv'
  path.write_text('Open the file.\tDatei\n')
  with pytest.raises(examples.DataError, match='no pair of up to 2 ids'):
    batches.load_pairs([f'tsv:{path}'], vocabulary, 2)
