"""What a folder holds is found out; unfinished saves are never loaded."""

import json
import os
import shutil

import numpy as np
import pytest

from specdec_jax import checkpoint
from specdec_jax.checkpoint import layout
from tests import checkpoint_oracle as oracle


def _own(folder, config=oracle.TINY, seed=0):
  weights = oracle.arrays(config, seed)
  checkpoint.write(folder, checkpoint.from_arrays(weights), config, None,
                   'orbax', np.float32)
  return weights


def _embedding(folder):
  stored = checkpoint.open_checkpoint(str(folder))
  return stored.leaves['token_embedder/embedding'].read()


def test_every_layout_is_told_apart(tmp_path):
  weights = oracle.arrays(oracle.TINY)
  oracle.write_t5x(tmp_path / 't5x', weights)
  oracle.write_orbax(tmp_path / 'orbax', weights, ocdbt=True)
  _own(tmp_path / 'own')
  checkpoint.write(tmp_path / 'hf', checkpoint.from_arrays(weights),
                   oracle.TINY, None, 'hf', np.float32)
  for name in ('t5x', 'orbax', 'own', 'hf'):
    assert checkpoint.open_checkpoint(str(tmp_path / name)).layout == name
    np.testing.assert_array_equal(
        _embedding(tmp_path / name), weights['token_embedder/embedding'])


def test_unfinished_step_is_passed_over(tmp_path, caplog):
  """90 complete, 100's temporary folder, 110 without metadata (case 45)."""
  for step in (9, 90, 110):
    oracle.write_orbax(tmp_path / str(step), oracle.arrays(oracle.TINY, step),
                       ocdbt=True, item='default')
  (tmp_path / '110' / 'default' / '_METADATA').unlink()
  shutil.copytree(tmp_path / '90', tmp_path / '100.orbax-checkpoint-tmp-1')
  expected = oracle.arrays(oracle.TINY, 90)['token_embedder/embedding']
  with caplog.at_level('WARNING'):
    np.testing.assert_array_equal(_embedding(tmp_path), expected)
  assert 'step 90 is used; not complete: 110' in caplog.text
  for name in ('110', '100.orbax-checkpoint-tmp-1'):
    with pytest.raises(checkpoint.CheckpointError, match=name):
      _embedding(tmp_path / name)


def test_newest_step_is_found_by_number_and_not_by_text(tmp_path):
  for step in (9, 100, 20):
    oracle.write_t5x(tmp_path / f'checkpoint_{step}',
                     oracle.arrays(oracle.TINY, step), inline=True)
  np.testing.assert_array_equal(
      _embedding(tmp_path),
      oracle.arrays(oracle.TINY, 100)['token_embedder/embedding'])


def test_only_an_unfinished_t5x_save_is_named(tmp_path):
  oracle.write_t5x(tmp_path / 'checkpoint_5.tmp-1700000000',
                   oracle.arrays(oracle.TINY), inline=True)
  with pytest.raises(checkpoint.CheckpointError,
                     match='only an unfinished save .checkpoint_5.tmp-17'):
    _embedding(tmp_path / 'checkpoint_5')
  with pytest.raises(checkpoint.CheckpointError, match='no checkpoint in it'):
    _embedding(tmp_path)


def test_only_an_unfinished_save_of_ours_is_named(tmp_path):
  _own(tmp_path / 'm')
  os.rename(tmp_path / 'm', tmp_path / 'm.partial')
  for name in ('m', 'm.partial'):
    with pytest.raises(checkpoint.CheckpointError, match='an unfinished save'):
      _embedding(tmp_path / name)


def test_own_folder_without_its_metadata_is_unfinished(tmp_path):
  _own(tmp_path / 'm')
  (tmp_path / 'm' / 'params' / '_METADATA').unlink()
  with pytest.raises(checkpoint.CheckpointError,
                     match='not written to its end'):
    _embedding(tmp_path / 'm')


@pytest.mark.parametrize('edit, message', [
    (lambda fields: fields.pop('d_ff'), 'allowed are exactly'),
    (lambda fields: fields.update(more=1), 'allowed are exactly'),
    (lambda fields: fields.update(d_ff='16'), "d_ff='16', allowed are"),
    (lambda fields: fields.update(d_ff=-1), "d_ff='-1', allowed are whole"),
    (lambda fields: fields.update(gated=1), "gated='1', allowed are True or"),
    (lambda fields: fields.update(norm_epsilon=float('nan')), 'norm_epsilon'),
    (lambda fields: fields.update(encoder_layers=1 << 30), 'from 1 to 128'),
    (lambda fields: fields.update(d_ff=1 << 60), 'from 1 to 16777216'),
    (lambda fields: fields.update(d_ff=32), 'd_ff is 16, config.json says 32'),
])
def test_config_of_ours_is_checked_field_by_field(tmp_path, edit, message):
  _own(tmp_path / 'm')
  path = tmp_path / 'm' / 'config.json'
  fields = json.loads(path.read_text())
  edit(fields)
  path.write_text(json.dumps(fields))
  with pytest.raises(checkpoint.CheckpointError, match=message):
    checkpoint.settle(checkpoint.open_checkpoint(str(tmp_path / 'm')))


def test_read_config_of_a_folder(tmp_path):
  _own(tmp_path / 'm')
  assert checkpoint.read_config(str(tmp_path / 'm')) == oracle.TINY


@pytest.mark.parametrize('name', ['nothing', 'mini/nothing', 'mini'])
def test_missing_model_is_named(tmp_path, name, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(checkpoint.CheckpointError, match=name):
    checkpoint.find(name)


def test_empty_folder_and_other_files_are_named(tmp_path):
  with pytest.raises(checkpoint.CheckpointError, match='no entries'):
    checkpoint.open_checkpoint(str(tmp_path))
  (tmp_path / 'readme.txt').write_text('x')
  with pytest.raises(checkpoint.CheckpointError, match='it has readme.txt'):
    checkpoint.open_checkpoint(str(tmp_path))
  with pytest.raises(checkpoint.CheckpointError, match='readme.txt'):
    checkpoint.open_checkpoint(str(tmp_path / 'readme.txt'))


def test_step_folders_that_link_outside_are_refused(tmp_path):
  oracle.write_t5x(tmp_path / 'elsewhere', oracle.arrays(oracle.TINY))
  (tmp_path / 'run').mkdir()
  (tmp_path / 'run' / '7').symlink_to(tmp_path / 'elsewhere')
  with pytest.raises(checkpoint.CheckpointError, match='a link to'):
    checkpoint.open_checkpoint(str(tmp_path / 'run'))


def test_vocabulary_lies_beside_the_weights_or_the_run(tmp_path):
  run = tmp_path / 'run'
  oracle.write_t5x(run / 'checkpoint_7', oracle.arrays(oracle.TINY))

  def found():
    return layout.open_checkpoint(str(run / 'checkpoint_7')).vocabulary
  assert found() is None
  for place in (tmp_path / 'sentencepiece.model', run / 'spiece.model',
                run / 'checkpoint_7' / 'spiece.model'):
    place.write_bytes(b'x')
    assert found() == place
