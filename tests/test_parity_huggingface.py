"""Parity with transformers: same weights, same logits, same greedy ids.

The weights are random and mapped here, name by name, so that this test does not
rest on the package's own converter. Needs `pip install -e .[parity]`.
"""

import jax
from jax import numpy as jnp
import numpy as np
import pytest

from specdec_jax import architecture
from specdec_jax import t5
from tests import tiny_t5

_REASON = 'needs torch and transformers: pip install -e .[parity]'
torch = pytest.importorskip('torch', reason=_REASON)
transformers = pytest.importorskip('transformers', reason=_REASON)
torch.set_num_threads(1)  # the models are tiny

TOLERANCE = dict(rtol=1e-4, atol=1e-4)

# 32 heads and 32 buckets: a position table that is not transposed fits too, so
# only its values can tell.
CONFIGS = {
    flavour: architecture.T5Config(
        d_model=24, d_ff=40, num_heads=32, head_dim=5, encoder_layers=2,
        decoder_layers=3, vocab_size=64, gated=config.gated, tied=config.tied)
    for flavour, config in tiny_t5.CONFIGS.items()}

both_flavours = pytest.mark.parametrize('flavour', CONFIGS)


def huggingface_names(config: architecture.T5Config) -> dict[str, str]:
  """{T5X name: transformers name} of every parameter."""
  attention = {'query': 'q', 'key': 'k', 'value': 'v', 'out': 'o'}
  wi = ['wi_0', 'wi_1'] if config.gated else ['wi']
  names = {'token_embedder/embedding': 'shared.weight'}
  if not config.tied:
    names['decoder/logits_dense/kernel'] = 'lm_head.weight'
  stacks = {
      'encoder': [('attention', 'SelfAttention', 'pre_attention_layer_norm')],
      'decoder': [
          ('self_attention', 'SelfAttention', 'pre_self_attention_layer_norm'),
          ('encoder_decoder_attention', 'EncDecAttention',
           'pre_cross_attention_layer_norm')]}
  depths = {'encoder': config.encoder_layers, 'decoder': config.decoder_layers}
  for stack, parts in stacks.items():
    names[f'{stack}/{stack}_norm/scale'] = f'{stack}.final_layer_norm.weight'
    names[f'{stack}/relpos_bias/rel_embedding'] = (
        f'{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight')
    for i in range(depths[stack]):
      ours, theirs = f'{stack}/layers_{i}', f'{stack}.block.{i}.layer'
      for j, (part, their_part, norm) in enumerate(parts):
        names[f'{ours}/{norm}/scale'] = f'{theirs}.{j}.layer_norm.weight'
        for a, b in attention.items():
          names[f'{ours}/{part}/{a}/kernel'] = (
              f'{theirs}.{j}.{their_part}.{b}.weight')
      last = f'{theirs}.{len(parts)}'
      names[f'{ours}/pre_mlp_layer_norm/scale'] = f'{last}.layer_norm.weight'
      for a in (*wi, 'wo'):
        names[f'{ours}/mlp/{a}/kernel'] = f'{last}.DenseReluDense.{a}.weight'
  return names


def huggingface_model(config: architecture.T5Config, params: t5.Params):
  """transformers' model with exactly these weights."""
  model = transformers.T5ForConditionalGeneration(transformers.T5Config(
      vocab_size=config.vocab_size, d_model=config.d_model, d_ff=config.d_ff,
      d_kv=config.head_dim, num_heads=config.num_heads,
      num_layers=config.encoder_layers,
      num_decoder_layers=config.decoder_layers,
      feed_forward_proj='gated-gelu' if config.gated else 'relu',
      tie_word_embeddings=config.tied, dropout_rate=0.0,
      decoder_start_token_id=0, pad_token_id=0, eos_token_id=1))
  if not config.tied:
    # This config class ties the logits whatever it is told.
    table = model.shared.weight.detach().clone()
    model.lm_head.weight = torch.nn.Parameter(table)
  names = huggingface_names(config)
  leaves, _ = jax.tree_util.tree_flatten_with_path(params)
  state = {}
  for path, leaf in leaves:
    name = '/'.join(k.key for k in path)
    turned = name.endswith(('kernel', 'rel_embedding'))
    array = np.array(leaf.T if turned else leaf)
    state[names.pop(name)] = torch.from_numpy(array)
  assert not names
  theirs = dict(model.named_parameters())
  assert state.keys() == theirs.keys()
  model.load_state_dict(state, strict=False)
  for name, value in state.items():
    assert torch.equal(theirs[name], value), name
  return model.eval()


def sources(long: int, short: int) -> np.ndarray:
  """Two rows of different lengths."""
  ids = np.random.default_rng(1).integers(2, 64, (2, long), np.int32)
  ids[1, short:] = 0
  return ids


@both_flavours
def test_logits_are_really_tied_or_untied(flavour):
  config = CONFIGS[flavour]
  model = huggingface_model(config, tiny_t5.random_params(config))
  same = model.lm_head.weight.data_ptr() == model.shared.weight.data_ptr()
  assert same == config.tied
  assert model.config.scale_decoder_outputs == config.tied


@both_flavours
def test_logits_equal_those_of_transformers(flavour):
  config = CONFIGS[flavour]
  params = tiny_t5.random_params(config)
  source = sources(300, 140)  # past 128, so that every bucket is used
  inputs = np.random.default_rng(2).integers(2, 64, (2, 150), np.int32)
  inputs[:, 0] = 0

  def logits_of(params):
    model = t5.bind(config)
    cache = model.start(params, jnp.asarray(source), 150)
    return model.extend(params, jnp.asarray(inputs), cache)[0]
  with torch.no_grad():
    theirs = huggingface_model(config, params)(
        input_ids=torch.from_numpy(source).long(),
        attention_mask=torch.from_numpy(source > 0).long(),
        decoder_input_ids=torch.from_numpy(inputs).long()).logits.numpy()
  np.testing.assert_allclose(jax.jit(logits_of)(params), theirs, **TOLERANCE)


@both_flavours
def test_greedy_ids_equal_those_of_transformers(flavour):
  config = CONFIGS[flavour]
  params = tiny_t5.random_params(config)
  source, steps = sources(20, 7), 16
  theirs = huggingface_model(config, params).generate(
      input_ids=torch.from_numpy(source).long(),
      attention_mask=torch.from_numpy(source > 0).long(),
      do_sample=False, num_beams=1, max_new_tokens=steps,
      use_cache=False).numpy()

  model = t5.bind(config)
  extend = jax.jit(model.extend)
  cache = jax.jit(model.start, static_argnums=2)(
      params, jnp.asarray(source), steps)
  tokens, ended = [np.zeros(2, np.int32)], np.zeros(2, bool)
  while len(tokens) < theirs.shape[1]:
    logits, cache = extend(params, jnp.asarray(tokens[-1][:, None]), cache)
    best = np.argmax(logits[:, 0], axis=-1).astype(np.int32)
    tokens.append(np.where(ended, 0, best).astype(np.int32))
    ended |= tokens[-1] == 1
  np.testing.assert_array_equal(np.stack(tokens, axis=1), theirs)
  assert len(tokens) == steps + 1 or ended.all()
