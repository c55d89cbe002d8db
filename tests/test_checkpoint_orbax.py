"""Orbax layouts: T5X's, training states, our own; OCDBT and plain folders."""

import json
import os
import struct

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts

from specdec_jax import checkpoint
from tests import checkpoint_oracle as oracle


def _read(folder):
  stored = checkpoint.open_checkpoint(str(folder))
  checkpoint.settle(stored)
  return {name: leaf.read() for name, leaf in stored.leaves.items()}


@pytest.mark.parametrize('dtype', [np.float32, oracle.BFLOAT16], ids=str)
@pytest.mark.parametrize('ocdbt', [True, False])
def test_layout_written_by_tensorstore_loads(tmp_path, ocdbt, dtype):
  weights = oracle.arrays(oracle.TINY, dtype=dtype)
  oracle.write_orbax(tmp_path / 'checkpoint_7', weights, ocdbt=ocdbt)
  stored = checkpoint.open_checkpoint(str(tmp_path / 'checkpoint_7'))
  assert stored.layout == 'orbax'
  assert checkpoint.settle(stored) == oracle.TINY
  oracle.assert_same(_read(tmp_path / 'checkpoint_7'), weights)


@pytest.mark.parametrize('ocdbt', [True, False])
@pytest.mark.parametrize('item, root', [
    ('state', 'target'), ('default', 'params'), ('.', 'params')])
def test_layout_written_by_orbax_loads(tmp_path, ocdbt, item, root):
  weights = oracle.arrays(oracle.TINY)
  tree = {root: checkpoint.unflatten(weights),
          'state': {'step': np.int32(7), 'none': None, 'empty': {}}}
  folder = tmp_path / 'checkpoint_7'
  with ocp.Checkpointer(
      ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt)) as checkpointer:
    checkpointer.save(folder / item, jax.tree.map(jax.numpy.asarray, tree))
  oracle.assert_same(_read(folder), weights)


def test_training_run_of_ours_loads_its_newest_step(tmp_path):
  """Weights without the optimizer's state (case 41)."""
  with ocp.CheckpointManager(tmp_path / 'run') as manager:
    for step in (1, 2):
      weights = oracle.arrays(oracle.TINY, seed=step)
      state = {'params': checkpoint.unflatten(weights),
               'opt_state': {'mu': np.full((3,), 9.0, np.float32)},
               'step': np.full((1,), step, np.int32)}
      manager.save(step, args=ocp.args.StandardSave(state))
      manager.wait_until_finished()
  oracle.assert_same(_read(tmp_path / 'run'), oracle.arrays(oracle.TINY, 2))


def test_writer_is_read_by_orbax(tmp_path):
  weights = oracle.arrays(oracle.TINY)
  checkpoint.write(tmp_path / 'm', checkpoint.from_arrays(weights), oracle.TINY,
                   None, 'orbax', np.float32)
  with ocp.StandardCheckpointer() as checkpointer:
    restored = checkpointer.restore(tmp_path / 'm' / 'params')
  oracle.assert_same(restored, weights)
  oracle.assert_same(_read(tmp_path / 'm'), weights)


def test_unfinished_save_is_named(tmp_path):
  oracle.write_orbax(tmp_path / 'c', oracle.arrays(oracle.TINY), ocdbt=True)
  (tmp_path / 'c' / 'state' / '_METADATA').unlink()
  with pytest.raises(checkpoint.CheckpointError, match='no checkpoint in it'):
    _read(tmp_path / 'c')


def _edit_metadata(folder, edit):
  path = folder / 'state' / '_METADATA'
  content = json.loads(path.read_text())
  edit(content)
  path.write_text(json.dumps(content))


def _rename(content):
  entry = next(e for k, e in content['tree_metadata'].items() if 'target' in k)
  entry['key_metadata'][-1]['key'] = '../../../secret'


@pytest.mark.parametrize('ocdbt', [True, False])
@pytest.mark.parametrize('edit, message', [
    (_rename, 'inside the checkpoint folder'),
    (lambda content: content.update(use_zarr3=True), 'use_zarr3'),
    (lambda content: content.update(tree_metadata={}), 'lists no arrays'),
    (lambda content: content.update(tree_metadata={'a': 3}), 'key_metadata'),
    (lambda content: content['tree_metadata'].update(
        a={'key_metadata': [{'key': [1]}]}), 'allowed are texts'),
], ids=['path', 'zarr3', 'empty', 'number', 'list'])
def test_edited_metadata_is_refused(tmp_path, ocdbt, edit, message):
  oracle.write_orbax(tmp_path / 'c', oracle.arrays(oracle.TINY), ocdbt=ocdbt)
  _edit_metadata(tmp_path / 'c', edit)
  with pytest.raises(checkpoint.CheckpointError, match=message):
    _read(tmp_path / 'c')


def test_database_files_linked_from_outside_are_refused(tmp_path):
  oracle.write_orbax(tmp_path / 'c', oracle.arrays(oracle.TINY), ocdbt=True)
  os.rename(tmp_path / 'c' / 'state' / 'd', tmp_path / 'elsewhere')
  (tmp_path / 'c' / 'state' / 'd').symlink_to(tmp_path / 'elsewhere')
  with pytest.raises(checkpoint.CheckpointError, match='a link to'):
    _read(tmp_path / 'c')


def _crc32c(data: bytes) -> int:
  table = []
  for i in range(256):
    for _ in range(8):
      i = i >> 1 ^ (0x82f63b78 if i & 1 else 0)
    table.append(i)
  crc = 0xffffffff
  for byte in data:
    crc = table[(crc ^ byte) & 0xff] ^ crc >> 8
  return crc ^ 0xffffffff


def test_database_that_names_a_file_outside_is_refused(tmp_path):
  """A manifest whose data file is `d/../../` something, checksum and all."""
  oracle.write_orbax(tmp_path / 'c', oracle.arrays(oracle.TINY), ocdbt=False)
  state = tmp_path / 'c' / 'state'
  store = ts.KvStore.open({
      'driver': 'ocdbt', 'config': {'compression': None},
      'base': {'driver': 'file', 'path': f'{state}/'}}).result()
  path = 'target.encoder.encoder_norm.scale/.zarray'
  store[path] = (state / path).read_bytes()
  manifest = (state / 'manifest.ocdbt').read_bytes()
  body, checksum = manifest[:-4], manifest[-4:]
  assert struct.unpack('<I', checksum)[0] == _crc32c(body)
  (file,) = (f for f in (state / 'd').iterdir() if f.name.encode() in body)
  inside = f'd/{file.name}'.encode()
  outside = f'd/../../{file.name[6:]}'.encode()  # of the same length
  os.rename(file, state.parent / file.name[6:])
  body = body.replace(inside, outside)
  (state / 'manifest.ocdbt').write_bytes(
      body + struct.pack('<I', _crc32c(body)))
  with pytest.raises(checkpoint.CheckpointError, match='Invalid key'):
    _read(tmp_path / 'c')


def test_truncated_database_is_refused(tmp_path):
  oracle.write_orbax(tmp_path / 'c', oracle.arrays(oracle.TINY), ocdbt=True)
  for file in (tmp_path / 'c' / 'state' / 'd').iterdir():
    file.write_bytes(file.read_bytes()[:-10])
  with pytest.raises(checkpoint.CheckpointError, match='state'):
    _read(tmp_path / 'c')
