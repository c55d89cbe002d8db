"""Flavour and size are found out; whatever contradicts them is refused."""

import dataclasses

import numpy as np
import pytest

from specdec_jax import architecture
from specdec_jax.checkpoint import errors
from specdec_jax.checkpoint import identity
from specdec_jax.checkpoint import leaf as leaf_lib
from tests import checkpoint_oracle as oracle

_SHAPED = [
    oracle.TINY, oracle.TINY_1_0,
    dataclasses.replace(oracle.TINY, tied=True),
    dataclasses.replace(oracle.TINY_1_0, tied=False),
    dataclasses.replace(oracle.TINY, relpos_buckets=16, head_dim=5)]


def _leaves(config, dtype=np.float32):
  return leaf_lib.from_arrays(oracle.arrays(config, dtype=dtype))


def _public(config):
  """The leaves of a public size, without any bytes."""
  return {name: leaf_lib.Leaf(x.shape, np.dtype(np.float32), lambda: None)
          for name, x in identity.expected(config).items()}


@pytest.mark.parametrize('config', _SHAPED)
def test_config_is_found_out(config):
  leaves = _leaves(config)
  assert identity.infer(leaves, 'x') == config
  assert identity.settle(leaves, {'config.json': config}, 'x') == config
  if config.gated != config.tied:
    assert identity.settle(leaves, {}, 'x') == config


@pytest.mark.parametrize('name', [
    'decoder/logits_dense/kernel', 'encoder/layers_0/mlp/wi_0/kernel'])
def test_flavour_that_is_neither_1_0_nor_1_1_must_be_declared(name):
  """A 1.1 checkpoint without its logits is not taken for a tied one."""
  leaves = _leaves(oracle.TINY)
  del leaves[name]
  with pytest.raises(errors.CheckpointError, match='logits_dense|mlp/wi/'):
    identity.settle(leaves, {}, 'x')


def test_buckets_without_a_logarithmic_part_are_refused():
  for fields in (dict(relpos_buckets=3), dict(relpos_max_distance=16),
                 dict(relpos_buckets=1, relpos_max_distance=1)):
    with pytest.raises(errors.CheckpointError, match='4 buckets and more'):
      identity.make_config('x', **dataclasses.asdict(oracle.TINY) | fields)


@pytest.mark.parametrize('size', ['t5_small', 't5_3B', 't5_1_1_xxl'])
def test_public_sizes_are_found_out(size):
  config = architecture.SIZES[size]
  assert identity.infer(_public(config), 'x') == config


@pytest.mark.parametrize('wanted, message', [
    (dict(tied=True), 'tied is False, the config given says True'),
    (dict(gated=False), 'gated is True, the config given says False'),
    (dict(d_model=16), 'd_model is 8, the config given says 16'),
    (dict(num_heads=3, head_dim=2), 'num_heads is 2, the config given says 3'),
], ids=str)
def test_conflict_is_refused_with_both_values(wanted, message):
  """Case 43: nothing is loaded under the wrong flavour."""
  config = dataclasses.replace(oracle.TINY, **wanted)
  with pytest.raises(errors.CheckpointError, match=message):
    identity.settle(
        _leaves(oracle.TINY), {'the config given': config}, 'x')


def test_twelve_layers_from_eight_lists_what_is_missing():
  """Case 39."""
  config = architecture.T5Config(4, 4, 2, 2, 8, 8, vocab_size=32)
  wanted = dataclasses.replace(config, encoder_layers=12)
  with pytest.raises(errors.CheckpointError) as error:
    identity.settle(_leaves(config), {'the config given': wanted}, 'PATH')
  for text in ('PATH', 'encoder_layers is 8, the config given says 12',
               'missing encoder/layers_8/attention/key/kernel',
               'missing encoder/layers_11/pre_mlp_layer_norm/scale'):
    assert text in str(error.value)
  with pytest.raises(errors.CheckpointError) as error:
    identity.settle(_leaves(wanted), {'the config given': config}, 'PATH')
  assert 'unexpected encoder/layers_8/mlp/wo/kernel' in str(error.value)


def test_one_kernel_removed_or_added_is_named():
  """Case 39."""
  leaves = _leaves(oracle.TINY)
  name = 'decoder/layers_1/mlp/wo/kernel'
  leaves['decoder/layers_1/mlp/more/kernel'] = leaves.pop(name)
  with pytest.raises(errors.CheckpointError) as error:
    identity.settle(leaves, {}, 'PATH')
  assert f'missing {name}' in str(error.value)
  assert 'unexpected decoder/layers_1/mlp/more/kernel' in str(error.value)


def test_base_config_on_a_small_checkpoint_names_shapes_and_path():
  """Case 40."""
  with pytest.raises(errors.CheckpointError) as error:
    identity.settle(
        _public(architecture.SIZES['t5_small']),
        {'the config given': architecture.SIZES['t5_base']}, 'PATH')
  assert str(error.value).startswith('checkpoint PATH: d_model is 512, ')
  assert 'decoder/decoder_norm/scale has shape (512,), the model (768,)' in (
      str(error.value))


def test_one_wrong_shape_is_named_with_both():
  leaves = _leaves(oracle.TINY)
  leaves['decoder/layers_0/mlp/wo/kernel'] = leaf_lib.from_arrays(
      {'x': np.zeros((8, 16), np.float32)})['x']
  with pytest.raises(
      errors.CheckpointError,
      match=r'layers_0/mlp/wo/kernel has shape \(8, 16\), the model \(16, 8\)'):
    identity.settle(leaves, {}, 'x')


def test_gap_in_the_layers_is_refused():
  leaves = {name.replace('encoder/layers_2', 'encoder/layers_9'): leaf
            for name, leaf in _leaves(oracle.TINY).items()}
  with pytest.raises(errors.CheckpointError, match='unexpected encoder/layers'):
    identity.settle(leaves, {}, 'x')


def test_what_is_no_t5_is_named():
  with pytest.raises(errors.CheckpointError, match='not a T5.*it has a, b'):
    identity.infer(
        leaf_lib.from_arrays({'a': np.zeros(1), 'b': np.zeros(1)}), 'x')


def test_values_that_no_shape_tells_come_from_the_config():
  config = dataclasses.replace(
      oracle.TINY, relpos_max_distance=64, norm_epsilon=1e-5)
  leaves = _leaves(oracle.TINY)
  assert identity.settle(leaves, {'config.json': config}, 'x') == config
  with pytest.raises(
      errors.CheckpointError,
      match='relpos_max_distance is 64, the config given says 128'):
    identity.settle(leaves, {
        'config.json': config, 'the config given': oracle.TINY}, 'x')


def test_mixed_dtypes_are_refused_by_name():
  leaves = _leaves(oracle.TINY)
  name = 'decoder/decoder_norm/scale'
  leaves[name] = _leaves(oracle.TINY, oracle.BFLOAT16)[name]
  with pytest.raises(
      errors.CheckpointError,
      match=rf'mixed dtypes: bfloat16 in 1 \(first {name}\), float32 in'):
    identity.stored_dtype(leaves, 'x')
  assert identity.stored_dtype(
      _leaves(oracle.TINY, oracle.BFLOAT16), 'x') == oracle.BFLOAT16
