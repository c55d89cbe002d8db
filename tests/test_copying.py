"""Copied drafts: what matches, what follows, and what comes otherwise."""

import jax
from jax import numpy as jnp
import numpy as np
import pytest

from specdec_jax import copying
from specdec_jax import draft
from specdec_jax import sampling

SIZE = 12


def rows(*lists, width=16):
  out = np.zeros((len(lists), width), np.int32)
  for i, row in enumerate(lists):
    out[i, :len(row)] = row
  return jnp.asarray(out)


def prefix(*lists):
  """Rows of output tokens; the start token is put before them."""
  return draft.Prefix(
      rows(*([0, *row] for row in lists)),
      jnp.asarray([len(row) + 1 for row in lists]))


def drafts(drafter, *lists, source=((1,),), gamma=4, temperature=1.0):
  state = drafter.start(None, rows(*source, width=8), 16)
  return drafter.draft(
      None, state, prefix(*lists), gamma, jnp.asarray(gamma),
      sampling.make(temperature), jnp.full((len(lists), gamma), 0.99))


@pytest.mark.parametrize(('last', 'expected'), [
    ((6, 5, -1), 8), ((7, 7, 5), 5), ((4, 6, 9), -7), ((3, -1, -1), -7)])
def test_worked_example_of_follow(last, expected):
  text = [5, 6, 7, 5, 6, 8, 9, 6, 4]
  found = copying.follow(
      rows(text), jnp.asarray([len(text)]), jnp.asarray([last]),
      jnp.asarray([-7]))
  assert found.tolist() == [expected]


def test_worked_example_of_the_last_tokens():
  found = copying.last_tokens(prefix([5, 6], [], [4, 5, 6, 7]))
  assert found.tolist() == [[6, 5, -1], [-1, -1, -1], [7, 6, 5]]


def test_worked_example_of_lookup():
  found = drafts(copying.lookup(SIZE), [5, 6, 7, 5], [5, 6, 7, 8], [])
  assert found.tokens.tolist()[0] == [6, 7, 5, 6]
  assert found.tokens[1:, 0].tolist() == [1, 1]


def test_worked_example_of_copy():
  source = [[5, 6, 7, 8, 1]] * 3
  found = drafts(copying.copy(SIZE), [], [9, 6], [9], source=source, gamma=3)
  assert found.tokens.tolist() == [[5, 6, 7], [7, 8, 1], [6, 7, 8]]


def test_rows_of_a_batch_copy_from_their_own_source_only():
  sources = [[5, 6, 1], [7, 8, 9, 10, 1], [11, 1]]
  together = drafts(
      copying.copy(SIZE), [5], [8, 9], [2, 2, 2], source=sources).tokens
  for i, row in enumerate(([5], [8, 9], [2, 2, 2])):
    alone = drafts(copying.copy(SIZE), row, source=[sources[i]]).tokens
    assert together[i].tolist() == alone[0].tolist()
  assert together[0, :2].tolist() == [6, 1]


def test_what_lies_behind_a_row_is_never_matched():
  stale = rows([0, 5, 6, 9, 6, 9])  # two tokens count
  drafter = copying.lookup(SIZE)
  found = drafter.draft(
      None, None, draft.Prefix(stale, jnp.asarray([3])), 1, jnp.asarray(1),
      sampling.make(0.0), jnp.zeros((1, 1)))
  assert found.tokens.tolist() == [[1]]


@pytest.mark.parametrize('temperature', [0.0, 0.7, 1.0])
@pytest.mark.parametrize('make', [copying.lookup, copying.copy])
def test_laws_are_one_hot_at_every_temperature(make, temperature):
  found = drafts(make(SIZE), [5, 6, 5], temperature=temperature)
  np.testing.assert_array_equal(found.q, jax.nn.one_hot(found.tokens, SIZE))
  assert bool(jnp.all(found.finite))
