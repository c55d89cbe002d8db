"""The scanned layer layout is unstacked where it is the same model."""

import numpy as np
import pytest

from specdec_jax import checkpoint
from tests import checkpoint_oracle as oracle


def _read(folder):
  stored = checkpoint.open_checkpoint(str(folder))
  return checkpoint.settle(stored), {
      name: leaf.read() for name, leaf in stored.leaves.items()}


@pytest.mark.parametrize('config', [oracle.TINY, oracle.TINY_1_0])
def test_scanned_layers_equal_the_plain_ones(tmp_path, config):
  weights = oracle.arrays(config)
  scanned = oracle.scan(weights, config)
  assert scanned['encoder/encoder/attention/query/kernel'].shape == (
      8, config.encoder_layers, 2, 3)
  oracle.write_t5x(tmp_path / 't5x', scanned)
  oracle.write_orbax(tmp_path / 'orbax', scanned, ocdbt=True)
  for folder in ('t5x', 'orbax'):
    found, loaded = _read(tmp_path / folder)
    assert found == config
    oracle.assert_same(loaded, weights)


def test_layers_with_different_tables_are_refused_by_name(tmp_path):
  scanned = oracle.scan(oracle.arrays(oracle.TINY), oracle.TINY)
  table = scanned['encoder/encoder/relpos_bias/rel_embedding']
  table[1, 2, 5] += 0.1
  oracle.write_t5x(tmp_path / 'c', scanned)
  with pytest.raises(
      checkpoint.CheckpointError,
      match='encoder/encoder/relpos_bias/rel_embedding: layers 0 and 2'):
    _read(tmp_path / 'c')


def test_layers_on_another_axis_are_refused_by_name(tmp_path):
  scanned = oracle.scan(oracle.arrays(oracle.TINY), oracle.TINY)
  name = 'encoder/encoder/mlp/wo/kernel'
  scanned[name] = np.ascontiguousarray(np.moveaxis(scanned[name], 1, 0))
  oracle.write_t5x(tmp_path / 'c', scanned)
  with pytest.raises(checkpoint.CheckpointError, match=f'16 in {name}'):
    _read(tmp_path / 'c')


def test_one_layer_too_few_is_refused(tmp_path):
  scanned = oracle.scan(oracle.arrays(oracle.TINY), oracle.TINY)
  name = 'decoder/decoder/mlp/wo/kernel'
  scanned[name] = scanned[name][:, :1]
  oracle.write_t5x(tmp_path / 'c', scanned)
  with pytest.raises(checkpoint.CheckpointError, match=f'1 in {name}'):
    _read(tmp_path / 'c')
