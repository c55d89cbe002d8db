"""The grid of the paper's Tables 2 and 4."""

import pytest

from configs import t5


def test_grid_of_ende_on_1_0():
  grid = t5.paper_grid('t5_1_0', 'gs://b/t5x/', 'ende')
  assert grid['target'] == 'gs://b/t5x/t5_11B'
  assert grid['drafts'] == tuple(
      f'gs://b/t5x/t5_{size}' for size in ('small', 'base', 'large'))
  assert grid['temperatures'] == (0.0, 1.0) and grid['gammas'] == (3, 5, 7)
  assert ('gs://b/t5x/t5_large', 1.0, 3) in grid['cells']
  assert len(grid['cells']) == 6


def test_grid_of_cnndm_has_its_own_gammas():
  grid = t5.paper_grid('flan', 'x', 'cnndm')
  assert grid['target'] == 'x/flan_t5_xxl' and grid['gammas'] == (3, 5)
  assert ('x/flan_t5_large', 0.0, 3) in grid['cells']


@pytest.mark.parametrize('arguments, message', [
    (('t5_2', 'x', 'ende'), "variant 't5_2': allowed are t5_1_0"),
    (('flan', 'x', 'wmt'), "task 'wmt': allowed are ende, cnndm"),
    (('t5_1_0', '', 'ende'), 'needs checkpoints=DIR.*t5_small'),
])
def test_what_is_not_known_is_refused(arguments, message):
  with pytest.raises(ValueError, match=message):
    t5.paper_grid(*arguments)
