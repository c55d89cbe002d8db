"""Several devices give what one gives; refusals name what does not divide."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from specdec_jax import checkpoint
from specdec_jax import sharding
from specdec_jax import t5
from tests import sharded_program
from tests import tiny

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope='module')
def eight() -> dict:
  """What eight simulated devices find, in a process of their own."""
  done = subprocess.run(
      [sys.executable, '-m', 'tests.sharded_program'], cwd=ROOT, text=True,
      capture_output=True, check=False, env={
          **os.environ, 'JAX_PLATFORMS': 'cpu',
          'XLA_FLAGS': '--xla_force_host_platform_device_count=8 '
          '--xla_backend_optimization_level=0'})
  assert done.returncode == 0, done.stderr[-3000:]
  return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize('mesh', sharded_program.MESHES)
def test_a_mesh_gives_the_ids_and_rounds_of_one_device(eight, mesh):
  assert eight['ids'][mesh] == eight['ids']['None']


def test_speculative_ids_are_the_plain_ones_and_rows_end_apart(eight):
  one = eight['ids']['None']
  plain = [row[:-1] for row in one['None 0.0']]
  for draft in sharded_program.DRAFTS:
    assert [row[:-1] for row in one[f'{draft} 0.0']] == plain
  assert len({len(row) for row in plain}) > 1
  assert len({row[-1] for row in one['base 0.0']}) > 1


def test_rows_lie_over_data_and_heads_over_model(eight):
  assert eight['placement'] == {
      'keys': ['data', 'model'], 'length': ['data'], 'rows of wo': [32, 8]}


def test_a_sharded_load_has_the_values_of_a_whole_one(eight):
  assert eight['loaded is the same']


@pytest.mark.parametrize('gated', [True, False])
def test_every_parameter_of_both_flavours_has_a_rule(gated):
  config = tiny.config(gated=gated, tied=not gated)
  for name, x in checkpoint.flatten(t5.param_shapes(config)).items():
    assert len(sharding.axes_of(name)) == len(x.shape), name


def test_a_parameter_without_a_rule_is_named():
  with pytest.raises(sharding.MeshError, match='parameter a/bias: no rule'):
    sharding.axes_of('a/bias')


def test_the_second_product_of_an_mlp_is_split_by_rows():
  assert sharding.axes_of('decoder/layers_0/mlp/wo/kernel') == ('model', None)


def test_more_devices_than_there_are_is_refused_with_both_numbers():
  with pytest.raises(sharding.MeshError, match='needs 1000 devices; allowed'):
    sharding.make_mesh({'model': 1000})


def test_heads_that_do_not_divide_are_refused_by_name_and_value(eight):
  assert eight['refused'] == (
      'model x: num_heads=6 over mesh model=4: allowed are divisors; a draft '
      'can also be draft_layout=replicated')
