"""Hugging Face folders, with transformers and safetensors as the reference."""

import dataclasses
import json
import os

import numpy as np
import pytest
from safetensors import numpy as safetensors_numpy

from specdec_jax import architecture
from specdec_jax import checkpoint
from specdec_jax.checkpoint import huggingface
from tests import checkpoint_oracle as oracle

# Small sizes (T5 1.0 and 1.1), and 3B's 32 heads, where the bias table is
# square and no shape tells that it is transposed (case 44).
_SIZES = {
    't5_small': architecture.SIZES['t5_small'],
    't5_1_1_small': architecture.SIZES['t5_1_1_small'],
    'square_table': architecture.T5Config(16, 24, 32, 2, 2, 2, vocab_size=160),
    'gated_and_tied': architecture.T5Config(16, 24, 4, 4, 2, 1, tied=True,
                                  vocab_size=160),
}
_TOLERANCE = 1e-4  # float32 logits of two programs


def _read(folder):
  stored = checkpoint.open_checkpoint(str(folder))
  checkpoint.settle(stored)
  return {name: leaf.read() for name, leaf in stored.leaves.items()}


def _write(folder, config, dtype=np.float32, seed=0):
  weights = oracle.arrays(config, seed, dtype)
  checkpoint.write(folder, checkpoint.from_arrays(weights), config, None, 'hf',
                   dtype)
  return weights


def _transformers():
  return pytest.importorskip(
      'transformers', reason='transformers is not installed')


def _torch_model(config: architecture.T5Config):
  """A random transformers model, with a head of its own where untied."""
  transformers = _transformers()
  torch = pytest.importorskip('torch', reason='torch is not installed')
  torch.manual_seed(0)
  model = transformers.T5ForConditionalGeneration(transformers.T5Config(
      vocab_size=config.vocab_size, d_model=config.d_model,
      d_kv=config.head_dim, d_ff=config.d_ff, num_layers=config.encoder_layers,
      num_decoder_layers=config.decoder_layers, num_heads=config.num_heads,
      feed_forward_proj='gated-gelu' if config.gated else 'relu',
      tie_word_embeddings=config.tied, decoder_start_token_id=0)).eval()
  if not config.tied:
    # transformers 5 ties the head whatever its config says.
    head = torch.randn(config.vocab_size, config.d_model)
    model.lm_head.weight = torch.nn.Parameter(head * config.d_model**-0.5)
  with torch.no_grad():
    for stack in (model.encoder, model.decoder):  # initialised near 0
      table = stack.block[0].layer[0].SelfAttention.relative_attention_bias
      table.weight.normal_()
  return model


def _torch_logits(model, source, tokens):
  torch = pytest.importorskip('torch')
  with torch.no_grad():
    return model(
        input_ids=torch.from_numpy(source).long(),
        attention_mask=torch.from_numpy((source > 0).astype(np.int64)),
        decoder_input_ids=torch.from_numpy(tokens).long()).logits.numpy()


def _ids(config):
  generator = np.random.default_rng(1)
  source = generator.integers(2, config.vocab_size, (2, 24)).astype(np.int32)
  source[1, 15:] = 0
  tokens = generator.integers(2, config.vocab_size, (2, 9)).astype(np.int32)
  tokens[:, 0] = 0
  return source, tokens


@pytest.mark.parametrize('size', _SIZES)
def test_logits_equal_transformers_through_its_own_folder(tmp_path, size):
  config = _SIZES[size]
  model = _torch_model(config)
  model.save_pretrained(tmp_path / 'm', max_shard_size='100MB')
  is_sharded = (tmp_path / 'm' / huggingface.INDEX).exists()
  assert is_sharded == (size in ('t5_small', 't5_1_1_small'))
  oracle.train_vocabulary(tmp_path / 'm' / 'spiece.model')
  loaded = checkpoint.load(str(tmp_path / 'm'))
  assert loaded.config == config
  source, tokens = _ids(config)
  ours = oracle.logits(loaded.params, config, source, tokens)
  theirs = _torch_logits(model, source, tokens)
  difference = np.max(np.abs(ours - theirs))
  print(f'{size}: largest difference {difference:.2e}, largest logit '
        f'{np.max(np.abs(theirs)):.1f}')
  assert difference < _TOLERANCE


@pytest.mark.parametrize('size', _SIZES)
def test_transformers_loads_a_folder_that_we_wrote(tmp_path, size):
  config = _SIZES[size]
  transformers = _transformers()
  weights = oracle.arrays(config)
  # Of the initialiser's size, so that logits stay of order one.
  for name, x in weights.items():
    if name.endswith('kernel'):
      x *= 3 * x.shape[0]**-0.5
  checkpoint.write(tmp_path / 'm', checkpoint.from_arrays(weights), config,
                   None, 'hf', np.float32)
  model, report = transformers.T5ForConditionalGeneration.from_pretrained(
      tmp_path / 'm', output_loading_info=True)
  assert not report['missing_keys'] and not report['unexpected_keys']
  source, tokens = _ids(config)
  ours = oracle.logits(checkpoint.unflatten(weights), config, source, tokens)
  theirs = _torch_logits(model.eval(), source, tokens)
  difference = np.max(np.abs(ours - theirs))
  print(f'{size}: largest difference {difference:.2e}, largest logit '
        f'{np.max(np.abs(theirs)):.1f}')
  assert difference < _TOLERANCE


@pytest.mark.parametrize('dtype', [np.float32, oracle.BFLOAT16], ids=str)
def test_file_that_we_write_is_read_by_safetensors(tmp_path, dtype):
  weights = _write(tmp_path / 'm', oracle.TINY, dtype)
  theirs = safetensors_numpy.load_file(tmp_path / 'm' / 'model.safetensors')
  oracle.assert_same(
      {'table': theirs['encoder.block.0.layer.0.SelfAttention'
                       '.relative_attention_bias.weight']},
      {'table': weights['encoder/relpos_bias/rel_embedding'].T})
  oracle.assert_same(
      {'wo': theirs['decoder.block.1.layer.2.DenseReluDense.wo.weight']},
      {'wo': weights['decoder/layers_1/mlp/wo/kernel'].T})
  oracle.assert_same(_read(tmp_path / 'm'), weights)


def _rewrite(folder, edit):
  path = folder / 'model.safetensors'
  content = safetensors_numpy.load_file(path)
  edit(content)
  safetensors_numpy.save_file(content, path)


def _edit_config(folder, **fields):
  path = folder / 'config.json'
  path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_copies_of_the_embedding_are_read_once(tmp_path):
  weights = _write(tmp_path / 'm', oracle.TINY_1_0)

  def add_copies(content):
    for name in ('encoder.embed_tokens.weight', 'decoder.embed_tokens.weight',
                 'lm_head.weight'):
      content[name] = content['shared.weight'].copy()
    content['decoder.block.0.layer.1.EncDecAttention'
            '.relative_attention_bias.weight'] = np.zeros((32, 2), np.float32)
  _rewrite(tmp_path / 'm', add_copies)
  oracle.assert_same(_read(tmp_path / 'm'), weights)


def test_config_of_transformers_5_is_told_apart_by_its_scaling(tmp_path):
  _write(tmp_path / 'm', oracle.TINY)
  _edit_config(tmp_path / 'm', tie_word_embeddings=True,
               scale_decoder_outputs=False)
  assert checkpoint.settle(
      checkpoint.open_checkpoint(str(tmp_path / 'm'))) == oracle.TINY


def test_wo_in_float32_beside_half_precision_is_read(tmp_path):
  _write(tmp_path / 'm', oracle.TINY, oracle.BFLOAT16)

  def widen(content):
    for name in content:
      if name.endswith('DenseReluDense.wo.weight'):
        content[name] = content[name].astype(np.float32)
  _rewrite(tmp_path / 'm', widen)
  stored = checkpoint.open_checkpoint(str(tmp_path / 'm'))
  checkpoint.settle(stored)
  assert checkpoint.stored_dtype(stored.leaves, '') == oracle.BFLOAT16


@pytest.mark.parametrize('edit, message', [
    (lambda c: c.update({'lm_head.weight': np.ones((160, 8), np.float32)}),
     'lm_head.weight differs from shared.weight'),
    (lambda c: c.pop('shared.weight'), 'missing token_embedder/embedding'),
    (lambda c: c.pop('decoder.block.1.layer.2.layer_norm.weight'),
     'missing decoder/layers_1/pre_mlp_layer_norm/scale'),
    (lambda c: c.update({'a.b': np.ones((3,), np.float32)}), 'unexpected a.b'),
    (lambda c: c.update({'shared.weight': np.ones((160, 8), np.int32)}),
     "dtype 'I32'"),
    (lambda c: c.update({'shared.weight': np.ones((160, 8), np.float16)}),
     'mixed dtypes: float'),
], ids=lambda value: None if callable(value) else str(value))
def test_wrong_weights_are_refused_by_name(tmp_path, edit, message):
  _write(tmp_path / 'm', oracle.TINY_1_0)
  _rewrite(tmp_path / 'm', edit)
  with pytest.raises(checkpoint.CheckpointError, match=message):
    _read(tmp_path / 'm')


@pytest.mark.parametrize('fields, message', [
    (dict(d_model=16), 'd_model is 8, config.json says 16'),
    (dict(num_heads=3, d_kv=2), 'num_heads is 2, config.json says 3'),
    (dict(num_layers=12), 'missing encoder/layers_11/attention/key/kernel'),
    (dict(feed_forward_proj='relu'), 'gated is True, config.json says False'),
    (dict(tie_word_embeddings=True), 'lm_head.weight differs'),
    (dict(feed_forward_proj='gated-silu'), 'feed_forward_proj'),
    (dict(decoder_start_token_id=1), 'decoder_start_token_id=.1., allowed'),
    (dict(pad_token_id=-1), 'pad_token_id=.-1., allowed'),
    (dict(model_type='bart'), "model_type='bart'"),
    (dict(d_ff='16'), 'd_ff=16, allowed are integers'),
    (dict(vocab_size=1 << 60), 'vocab_size=.*numbers from 1 to'),
    (dict(num_layers=1 << 30), 'encoder_layers=.*from 1 to 128'),
    (dict(layer_norm_epsilon=[]), 'layer_norm_epsilon'),
], ids=str)
def test_config_that_contradicts_the_weights_is_refused(
    tmp_path, fields, message):
  _write(tmp_path / 'm', oracle.TINY)
  _edit_config(tmp_path / 'm', **fields)
  with pytest.raises(checkpoint.CheckpointError, match=message):
    _read(tmp_path / 'm')


def test_pickled_weights_are_refused(tmp_path):
  _write(tmp_path / 'm', oracle.TINY)
  os.rename(tmp_path / 'm' / 'model.safetensors',
            tmp_path / 'm' / 'pytorch_model.bin')
  with pytest.raises(checkpoint.CheckpointError, match='can run code'):
    _read(tmp_path / 'm')


@pytest.mark.parametrize('target, message', [
    ('../secret.safetensors', 'inside the checkpoint folder'),
    ('/secret.safetensors', 'inside the checkpoint folder'),
    ('missing.safetensors', 'no such file'),
    (3, 'weight_map'),
])
def test_index_that_leaves_the_folder_is_refused(tmp_path, target, message):
  _write(tmp_path / 'm', oracle.TINY)
  os.rename(tmp_path / 'm' / 'model.safetensors',
            tmp_path / 'secret.safetensors')
  (tmp_path / 'm' / huggingface.INDEX).write_text(
      json.dumps({'weight_map': {'shared.weight': target}}))
  with pytest.raises(checkpoint.CheckpointError, match=message):
    _read(tmp_path / 'm')


def test_hub_cache_links_into_its_blobs_are_followed(tmp_path):
  """models--x/snapshots/REVISION/FILE -> ../../blobs/HASH, and nothing else."""
  weights = _write(tmp_path / 'm', oracle.TINY)
  snapshot = tmp_path / 'models--x' / 'snapshots' / 'abc'
  blobs = tmp_path / 'models--x' / 'blobs'
  snapshot.mkdir(parents=True)
  blobs.mkdir()
  for i, name in enumerate(('config.json', 'model.safetensors')):
    os.rename(tmp_path / 'm' / name, blobs / str(i))
    (snapshot / name).symlink_to(f'../../blobs/{i}')
  oracle.assert_same(_read(snapshot), weights)
  os.rename(blobs, tmp_path / 'elsewhere')
  blobs.symlink_to(tmp_path / 'elsewhere')
  with pytest.raises(checkpoint.CheckpointError, match='a link to'):
    _read(snapshot)


def test_names_cover_every_parameter_of_every_size():
  for config in (oracle.TINY, oracle.TINY_1_0):
    names = huggingface.torch_names({
        'encoder': config.encoder_layers, 'decoder': config.decoder_layers})
    assert oracle.arrays(config).keys() <= names.keys()
    assert len(set(names.values())) == len(names)


def test_written_config_reads_back(tmp_path):
  config = dataclasses.replace(
      oracle.TINY, relpos_max_distance=64, norm_epsilon=1e-5)
  _write(tmp_path / 'm', config)
  assert checkpoint.settle(
      checkpoint.open_checkpoint(str(tmp_path / 'm'))) == config
