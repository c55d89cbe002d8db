"""Studies of the experiments: one ladder, checked options."""

import pytest

from configs import ende
from configs import paper
from specdec_jax import config


@pytest.mark.parametrize(
    'name', [n for n in paper.STUDIES if n != 'domains'])
def test_every_study_is_a_config_of_the_main_job(name):
  found = config.resolve(paper.get_config(name), config.RunConfig)
  assert found.target == 'mini/target'


def test_the_grid_is_that_of_the_main_job():
  found, main = paper.get_config('grid'), ende.get_config('mini')
  for name in ('drafts', 'gammas', 'temperatures', 'sentences'):
    assert found[name] == main[name]


def test_a_ladder_of_ones_own_takes_the_place_of_the_built_in_one():
  found = paper.get_config('table3,ladder=runs/mine/,sentences=7')
  assert found.target == 'runs/mine/target' and found.sentences == 7
  assert found.drafts[:2] == ('runs/mine/unigram', 'runs/mine/bigram')
  assert 'copy' in found.drafts


@pytest.mark.parametrize('arg', ['nothing', 'grid,unknown=1', 'grid,gammas=3'])
def test_what_is_not_known_is_refused(arg):
  with pytest.raises(ValueError, match='allowed'):
    paper.get_config(arg)
