"""Options: checked before any compute, refused by name, value and range."""

import re

import pytest

from configs import ende
from configs import ladder
from specdec_jax import config as config_lib


def run_config(**values):
  config = ende.get_config('mini')
  with config.unlocked():
    config.update(values)
  return config_lib.resolve(config, config_lib.RunConfig)


def test_the_shipped_configs_resolve():
  config = run_config()
  assert len(config.drafts) == 3 and config.temperatures == (0.0, 1.0)
  assert set(config.gammas) >= {1, 3, 5, 7}
  config_lib.resolve(ladder.get_config('small'), config_lib.TrainConfig)


@pytest.mark.parametrize('gamma', [0, -1, 1.9, '4', 1000, True])
def test_a_bad_gamma_is_refused_with_its_range(gamma):
  with pytest.raises(config_lib.ConfigError, match='gammas=.*allowed are'):
    run_config(gammas=(gamma,))


@pytest.mark.parametrize(('option', 'value'), [
    ('temperatures', (-1.0,)), ('temperatures', (float('nan'),)),
    ('temperatures', ()), ('gammas', (2, 2)), ('dtype', 'float16'),
    ('top_p', 0.0), ('top_k', -1), ('batch_size', 0), ('repeats', 0),
    ('source_buckets', (0,)), ('seed', -1), ('sentences', 0), ('task', ''),
    ('matmul_precision', 'best'), ('lenience', 0.0), ('lenience', 1.5)])
def test_a_bad_value_is_refused_by_name(option, value):
  with pytest.raises(
      config_lib.ConfigError, match=f'{option}=.*allowed|{option}=.*twice'):
    run_config(**{option: value})


def test_an_unknown_option_is_named():
  with pytest.raises(
      config_lib.ConfigError,
      match=re.escape("unknown options ['repetition_penalty']")):
    run_config(repetition_penalty=1.3)


def test_a_missing_option_is_named():
  config = ende.get_config('mini')
  with config.unlocked():
    del config.seed
  with pytest.raises(config_lib.ConfigError, match=re.escape("['seed']")):
    config_lib.resolve(config, config_lib.RunConfig)


def test_parts_of_a_variant_are_read_or_refused():
  assert ende.get_config('mini,sentences=8').sentences == 8
  for arg in ('maxi', 'mini,sentence=8', 'mini,drafts=x'):
    with pytest.raises(ValueError, match='allowed are'):
      ende.get_config(arg)
  with pytest.raises(ValueError, match='allowed are'):
    ladder.get_config('small,corpse=x')


def test_training_steps_hold_warm_up_and_decay():
  config = ladder.get_config('small')
  config.steps = 10
  with pytest.raises(config_lib.ConfigError, match='steps=10: allowed'):
    config_lib.resolve(config, config_lib.TrainConfig)


def test_a_config_without_lenience_is_exact():
  config = ende.get_config('mini').copy_and_resolve_references()
  with config.unlocked():
    del config['lenience']
  assert config_lib.resolve(config, config_lib.RunConfig).lenience == 1.0
  assert ende.get_config('mini,lenience=0.3').lenience == 0.3


@pytest.mark.parametrize(('mesh', 'sizes'), [
    ('', {}), ('data=2', {'data': 2}), ('model=4', {'model': 4}),
    ('data=2,model=4', {'data': 2, 'model': 4})])
def test_a_mesh_is_read_by_axis(mesh, sizes):
  assert run_config(mesh=mesh, batch_size=2).mesh_sizes == sizes


@pytest.mark.parametrize('mesh', [
    'data=0', 'model=4,data=2', 'data=2,', 'rows=2', 'data=2model=4'])
def test_a_bad_mesh_is_refused_by_name(mesh):
  with pytest.raises(config_lib.ConfigError, match='mesh=.*allowed are'):
    run_config(mesh=mesh)


def test_a_batch_that_the_mesh_cannot_split_is_refused_with_both_numbers():
  with pytest.raises(config_lib.ConfigError,
                     match='batch_size=3: allowed are multiples of mesh'):
    run_config(mesh='data=2', batch_size=3)
