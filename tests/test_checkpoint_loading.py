"""From a name to parameters on a device, within the memory they take."""

import os
import pathlib
import subprocess
import sys

import jax
from jax import numpy as jnp
import numpy as np
import pytest

from specdec_jax import checkpoint
from specdec_jax import vocab
from tests import checkpoint_oracle as oracle


@pytest.fixture(scope='module')
def words(tmp_path_factory):
  return oracle.train_vocabulary(
      tmp_path_factory.mktemp('vocab') / 'sentencepiece.model')


@pytest.fixture
def folder(tmp_path, words):
  weights = oracle.arrays(oracle.TINY)
  checkpoint.save(tmp_path / 'm', checkpoint.unflatten(weights), oracle.TINY,
                  words)
  return tmp_path / 'm'


def test_loads_model_and_vocabulary(folder, words):
  loaded = checkpoint.load(str(folder))
  assert loaded.name == str(folder) and loaded.config == oracle.TINY
  oracle.assert_same(loaded.params, oracle.arrays(oracle.TINY))
  vocab.check_same(loaded.vocabulary, words)


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16, 'bfloat16'])
def test_weights_come_in_the_wanted_dtype(folder, dtype):
  loaded = checkpoint.load(str(folder), dtype)
  expected = {name: x.astype(dtype)
              for name, x in oracle.arrays(oracle.TINY).items()}
  oracle.assert_same(loaded.params, expected)


def test_config_that_contradicts_is_refused_before_any_read(
    folder, monkeypatch):
  monkeypatch.setattr(jax, 'device_put', None)
  with pytest.raises(checkpoint.CheckpointError, match='tied is False, the '):
    checkpoint.load(str(folder), config=oracle.TINY_1_0)


def test_vocabulary_is_needed_and_can_be_given(tmp_path, words):
  oracle.write_t5x(tmp_path / 'c', oracle.arrays(oracle.TINY))
  with pytest.raises(checkpoint.CheckpointError, match='give `vocabulary`'):
    checkpoint.load(str(tmp_path / 'c'))
  loaded = checkpoint.load(str(tmp_path / 'c'), vocabulary=words.path)
  assert loaded.vocabulary.text_size == 136


def test_table_wider_than_the_vocabulary_is_right_and_narrower_refused(
    tmp_path, words):
  """Cases 33 and 38: 136 ids of text in a table of 160, or of 135."""
  assert words.text_size == 136
  for size in (160, 136, 135):
    config = oracle.TINY.__class__(8, 16, 2, 3, 1, 1, vocab_size=size)
    oracle.write_t5x(tmp_path / str(size), oracle.arrays(config), inline=True)
    load = lambda size=size: checkpoint.load(
        str(tmp_path / str(size)), vocabulary=words.path)
    if size >= 136:
      assert load().config.vocab_size == size
    else:
      with pytest.raises(checkpoint.CheckpointError,
                         match='of 136 ids, table of 135'):
        load()


def test_vocabularies_of_two_models_are_compared_by_piece(tmp_path, words):
  """Case 34: the first id that differs, and both pieces."""
  data = words.path.read_bytes()
  # Two pieces of equal length change places; a field is its length and text.
  texts = [b'\n%c%s' % (len(piece), piece) for piece in (
      words.piece(i).encode() for i in range(3, 36))]
  first, second = next(
      (a, b) for i, a in enumerate(texts) for b in texts[i + 1:]
      if len(a) == len(b))
  swapped = data.replace(first, b'<swap>').replace(second, first).replace(
      b'<swap>', second)
  (tmp_path / 'other.model').write_bytes(swapped)
  other = vocab.Vocabulary(tmp_path / 'other.model')
  with pytest.raises(vocab.VocabularyError) as error:
    vocab.check_same(words, other)
  assert f'differ at id {3 + texts.index(first)}' in str(error.value)
  assert repr(first[2:].decode()) in str(error.value)
  assert repr(second[2:].decode()) in str(error.value)


def test_placement_is_one_sharding_or_one_a_name(folder):
  device = jax.devices()[0]
  one = jax.sharding.SingleDeviceSharding(device)
  named = []

  def by_name(name):
    named.append(name)
    return one
  for placement in (None, one, by_name):
    loaded = checkpoint.load(str(folder), placement=placement)
    assert all(x.sharding == one for x in jax.tree.leaves(loaded.params))
  assert sorted(named) == sorted(oracle.arrays(oracle.TINY))


def _run(code: str, **env) -> str:
  done = subprocess.run(
      [sys.executable, '-c', code], env=os.environ | env, text=True,
      capture_output=True, cwd=pathlib.Path(__file__).parents[1], check=False)
  assert done.returncode == 0, done.stderr
  return done.stdout


_SAVE_ON_EIGHT = '''
import sys
import jax
import numpy as np
import orbax.checkpoint as ocp
from specdec_jax import checkpoint
from tests import checkpoint_oracle as oracle
assert jax.device_count() == 8
mesh = jax.sharding.Mesh(np.array(jax.devices()), ('x',))
rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('x'))
whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
params = {name: jax.device_put(x, whole if x.shape[0] % 8 else rows)
          for name, x in oracle.arrays(oracle.TINY).items()}
with ocp.StandardCheckpointer() as checkpointer:
  checkpointer.save(sys.argv[1], {'target': checkpoint.unflatten(params)})
'''


def test_checkpoint_of_eight_devices_loads_on_one(tmp_path, words):
  """Case 42."""
  code = _SAVE_ON_EIGHT.replace('sys.argv[1]', repr(str(tmp_path / 'c')))
  _run(code, XLA_FLAGS='--xla_force_host_platform_device_count=8',
       JAX_PLATFORMS='cpu')
  loaded = checkpoint.load(str(tmp_path / 'c'), vocabulary=words.path)
  oracle.assert_same(loaded.params, oracle.arrays(oracle.TINY))
  devices = {d for x in jax.tree.leaves(loaded.params) for d in x.devices()}
  assert devices == {jax.devices()[0]}


@pytest.mark.parametrize('form', ['t5x', 'orbax', 'hf'])
def test_peak_memory_is_at_most_1_3_times_the_weights(tmp_path, form):
  """Case 41; the optimizer's state, as large as the weights, is not read."""
  if not os.path.exists('/proc/self/clear_refs'):
    pytest.skip('peak memory of a part of a process needs /proc')
  # 250 MB: the libraries' own pages, about 30 MB, count as well.
  config = oracle.TINY.__class__(512, 2048, 8, 64, 6, 6, vocab_size=9000)
  weights = oracle.arrays(config)
  if form == 't5x':
    oracle.write_t5x(tmp_path / 'm', weights, split=2, compressor=None)
  elif form == 'orbax':
    oracle.write_orbax(tmp_path / 'm', weights, ocdbt=True)
  else:
    checkpoint.write(tmp_path / 'm', checkpoint.from_arrays(weights), config,
                     None, 'hf', np.float32)
  printed = _run('from experiments import load_checkpoint\n'
                 f'print(load_checkpoint.measure({str(tmp_path / "m")!r}))')
  ratio = float(printed.split('ratio=')[1].split(',')[0].rstrip(')\n'))
  print(f'{form}: peak memory {ratio:.2f} of the weights')
  assert ratio < 1.3
