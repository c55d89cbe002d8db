"""Legacy T5X layouts, written and read by TensorStore and flax alone."""

import json
import os

from flax import serialization
import numpy as np
import pytest

from specdec_jax import architecture
from specdec_jax import checkpoint
from tests import checkpoint_oracle as oracle


def _read(folder):
  stored = checkpoint.open_checkpoint(str(folder))
  checkpoint.settle(stored)
  return {name: leaf.read() for name, leaf in stored.leaves.items()}


@pytest.mark.parametrize('config', [oracle.TINY, oracle.TINY_1_0])
@pytest.mark.parametrize('options', [
    dict(),
    dict(split=3),
    dict(driver='gfile'),
    dict(driver='gcs'),
    dict(driver='gcs', old_spec=True),
    dict(inline=True),
    dict(inline=True, version=0),
    dict(inline=True, version=None),
    dict(version=None),
    dict(version=2),
    dict(placeholders=True),
    dict(compressor=None),
    dict(compressor=oracle.ZSTD, split=2),
    dict(compressor={'id': 'zlib', 'level': 1}),
], ids=str)
def test_every_legacy_form_loads_with_equal_values(tmp_path, config, options):
  weights = oracle.arrays(config)
  oracle.write_t5x(tmp_path / 'checkpoint_7', weights, **options)
  stored = checkpoint.open_checkpoint(str(tmp_path / 'checkpoint_7'))
  assert stored.layout == 't5x'
  assert checkpoint.settle(stored) == config
  oracle.assert_same(_read(tmp_path / 'checkpoint_7'), weights)


@pytest.mark.parametrize('options', [
    dict(version=2), dict(version=3), dict(inline=True)], ids=str)
def test_bfloat16_bits_are_kept(tmp_path, options):
  weights = oracle.arrays(oracle.TINY, dtype=oracle.BFLOAT16)
  oracle.write_t5x(tmp_path / 'checkpoint_7', weights, **options)
  oracle.assert_same(_read(tmp_path / 'checkpoint_7'), weights)


def test_fixture_has_its_518240_parameters():
  if not oracle.FIXTURE.is_file():
    pytest.skip('the T5X example file is not beside this repository')
  stored = checkpoint.open_checkpoint(str(oracle.FIXTURE))
  config = checkpoint.settle(stored)
  assert config == architecture.T5Config(8, 16, 4, 3, 2, 2)
  assert sum(np.prod(x.shape) for x in stored.leaves.values()) == 518_240
  content = serialization.msgpack_restore(oracle.FIXTURE.read_bytes())
  target = content['optimizer']['target']
  oracle.assert_same(_read(oracle.FIXTURE), checkpoint.flatten(target))


def test_optimizer_state_is_not_read(tmp_path):
  """A state that no reader could open does no harm (case 41)."""
  weights = oracle.arrays(oracle.TINY)
  folder = tmp_path / 'checkpoint_7'
  oracle.write_t5x(folder, weights)
  content = serialization.msgpack_restore((folder / 'checkpoint').read_bytes())
  spec = {'driver': 'zarr', 'kvstore': {'driver': 'http', 'path': '../x'}}
  content['optimizer']['state'] = {'step': spec, 'param_states': {'m': spec}}
  (folder / 'checkpoint').write_bytes(
      serialization.msgpack_serialize(content))
  oracle.assert_same(_read(folder), weights)


def test_layers_land_by_number_and_not_by_text(tmp_path):
  """Twelve layers, layer i filled with i (case 46)."""
  config = architecture.T5Config(4, 4, 2, 2, 12, 12, vocab_size=32)
  weights = oracle.arrays(config)
  for name, x in weights.items():
    if '/layers_' in name:
      x[:] = int(name.split('layers_')[1].split('/')[0])
  for form in (dict(weights=weights),
               dict(weights=oracle.scan(weights, config))):
    folder = tmp_path / str(len(form['weights']))
    oracle.write_t5x(folder, **form)
    loaded = _read(folder)
    for i in (2, 10, 11):
      for stack in ('encoder', 'decoder'):
        x = loaded[f'{stack}/layers_{i}/mlp/wo/kernel']
        np.testing.assert_array_equal(x, np.full_like(x, i))


def _edit(folder, edit):
  content = serialization.msgpack_restore((folder / 'checkpoint').read_bytes())
  edit(content['optimizer']['target']['token_embedder'], content)
  (folder / 'checkpoint').write_bytes(serialization.msgpack_serialize(content))


def _set_path(path):
  return lambda leaf, _: leaf['embedding']['kvstore'].update(path=path)


def _set_kvstore(**fields):
  return lambda leaf, _: leaf['embedding']['kvstore'].update(fields)


@pytest.mark.parametrize('edit, message', [
    (_set_path('../secret/'), 'inside the checkpoint folder'),
    (_set_path('x/../../secret/'), 'inside the checkpoint folder'),
    (_set_path('/etc/'), 'inside the checkpoint folder'),
    (_set_path('file:///etc/'), 'inside the checkpoint folder'),
    (_set_path('..\\secret'), 'inside the checkpoint folder'),
    (_set_path('a\0b'), 'inside the checkpoint folder'),
    (_set_path(''), 'inside the checkpoint folder'),
    (_set_path(3), 'needed are `zarr` and a text'),
    (_set_kvstore(driver='http', base_url='http://x'), "kvstore 'http'"),
    (_set_kvstore(driver='s3'), "kvstore 's3'"),
    (_set_kvstore(driver='ocdbt'), "kvstore 'ocdbt'"),
    (_set_kvstore(driver='gcs', bucket='another'), "bucket 'another'"),
    (lambda leaf, _: leaf['embedding'].update(driver='n5'), "driver 'n5'"),
    (lambda leaf, _: leaf['embedding']['metadata'].update(shape=[160, 9]),
     r'shape \[160, 9\] in the spec, \(160, 8\) in the array'),
    (lambda leaf, _: leaf.update(embedding=3), 'neither an array nor'),
    (lambda _, content: content.update(version=4), 'version 4'),
    (lambda _, content: content.update(version=True), 'version True'),
])
def test_specs_that_leave_the_folder_are_refused(tmp_path, edit, message):
  secret = tmp_path / 'secret'
  oracle.write_t5x(tmp_path / 'c', oracle.arrays(oracle.TINY))
  os.rename(tmp_path / 'c' / 'target.token_embedder.embedding', secret)
  (tmp_path / 'c' / 'target.token_embedder.embedding').mkdir()
  for file in secret.iterdir():
    (tmp_path / 'c' / 'target.token_embedder.embedding' /
     file.name).write_bytes(file.read_bytes())
  _edit(tmp_path / 'c', edit)
  with pytest.raises(checkpoint.CheckpointError, match=message):
    _read(tmp_path / 'c')


def test_links_out_of_the_folder_are_refused(tmp_path):
  oracle.write_t5x(tmp_path / 'c', oracle.arrays(oracle.TINY))
  inside = tmp_path / 'c' / 'target.token_embedder.embedding'
  os.rename(inside, tmp_path / 'secret')
  inside.symlink_to(tmp_path / 'secret')
  with pytest.raises(checkpoint.CheckpointError, match='a link to'):
    _read(tmp_path / 'c')


def test_truncated_chunk_is_refused_by_name(tmp_path):
  oracle.write_t5x(tmp_path / 'c', oracle.arrays(oracle.TINY))
  chunk = tmp_path / 'c' / 'target.token_embedder.embedding' / '0.0'
  chunk.write_bytes(chunk.read_bytes()[:-20])
  with pytest.raises(checkpoint.CheckpointError, match=r'embedding/0\.0'):
    _read(tmp_path / 'c')


def test_missing_chunk_does_not_read_as_zeros(tmp_path):
  oracle.write_t5x(tmp_path / 'c', oracle.arrays(oracle.TINY), split=3)
  (tmp_path / 'c' / 'target.token_embedder.embedding' / '1.0').unlink()
  with pytest.raises(checkpoint.CheckpointError, match='1.0: no such file'):
    checkpoint.open_checkpoint(str(tmp_path / 'c'))


@pytest.mark.parametrize('cut', [0, 1, 5, 100, -1])
def test_truncated_msgpack_is_refused(tmp_path, cut):
  oracle.write_t5x(tmp_path / 'c', oracle.arrays(oracle.TINY), inline=True)
  file = tmp_path / 'c' / 'checkpoint'
  file.write_bytes(file.read_bytes()[:cut])
  with pytest.raises(checkpoint.CheckpointError, match=str(file)):
    checkpoint.open_checkpoint(str(tmp_path / 'c'))


def test_writer_is_read_by_tensorstore_and_flax(tmp_path):
  weights = oracle.arrays(oracle.TINY)
  for dtype in (np.dtype(np.float32), oracle.BFLOAT16):
    cast = {name: x.astype(dtype) for name, x in weights.items()}
    folder = tmp_path / dtype.name
    checkpoint.write(folder, checkpoint.from_arrays(cast), oracle.TINY, None,
                     't5x', dtype)
    oracle.assert_same(oracle.read_t5x(folder), cast)
    metadata = json.loads(
        (folder / 'target.decoder.decoder_norm.scale/.zarray').read_text())
    assert metadata['compressor']['id'] == 'gzip'
