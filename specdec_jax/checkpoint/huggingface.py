"""Hugging Face folders: `config.json` and safetensors, one file or several.

PyTorch keeps kernels transposed. The relative-position table is transposed as
well, which with 32 heads and 32 buckets no shape would tell.
"""

import json
import pathlib
from typing import Any

import numpy as np

from specdec_jax import architecture
from specdec_jax.checkpoint import errors
from specdec_jax.checkpoint import folder as folder_lib
from specdec_jax.checkpoint import identity
from specdec_jax.checkpoint import leaf as leaf_lib
from specdec_jax.checkpoint import safetensors_file

CONFIG = 'config.json'
WEIGHTS = 'model.safetensors'
INDEX = 'model.safetensors.index.json'
PICKLE = 'pytorch_model.bin'

_SHARED = 'shared.weight'
_HEAD = 'lm_head.weight'
# Copies of `shared.weight` that some savers write.
_COPIES = ('encoder.embed_tokens.weight', 'decoder.embed_tokens.weight')
# A table that the first public files have and no T5 uses.
_UNUSED = ('decoder.block.0.layer.1.EncDecAttention'
           '.relative_attention_bias.weight')

_MODEL = {
    'token_embedder/embedding': _SHARED,
    'decoder/logits_dense/kernel': _HEAD,
}
_STACK = {
    'relpos_bias/rel_embedding':
        'block.0.layer.0.SelfAttention.relative_attention_bias.weight',
    '{stack}_norm/scale': 'final_layer_norm.weight',
}
_ATTENTION = {'query': 'q', 'key': 'k', 'value': 'v', 'out': 'o'}
_MLP = ('wi', 'wi_0', 'wi_1', 'wo')
# Of each stack, in the order of PyTorch's sublayers:
# (T5X norm, T5X sublayer, PyTorch sublayer).
_SUBLAYERS = {
    'encoder': (
        ('pre_attention_layer_norm', 'attention', 'SelfAttention'),
        ('pre_mlp_layer_norm', 'mlp', 'DenseReluDense')),
    'decoder': (
        ('pre_self_attention_layer_norm', 'self_attention', 'SelfAttention'),
        ('pre_cross_attention_layer_norm', 'encoder_decoder_attention',
         'EncDecAttention'),
        ('pre_mlp_layer_norm', 'mlp', 'DenseReluDense')),
}


def torch_names(layers: dict[str, int]) -> dict[str, str]:
  """T5X name to PyTorch name, for both flavours, `layers` of each stack."""
  names = dict(_MODEL)
  for stack, count in layers.items():
    for ours, theirs in _STACK.items():
      names[f'{stack}/{ours.format(stack=stack)}'] = f'{stack}.{theirs}'
    for i in range(count):
      for j, (norm, sublayer, torch) in enumerate(_SUBLAYERS[stack]):
        ours, theirs = f'{stack}/layers_{i}', f'{stack}.block.{i}.layer.{j}'
        names[f'{ours}/{norm}/scale'] = f'{theirs}.layer_norm.weight'
        parts = ({part: part for part in _MLP} if sublayer == 'mlp'
                 else _ATTENTION)
        for part, short in parts.items():
          names[f'{ours}/{sublayer}/{part}/kernel'] = (
              f'{theirs}.{torch}.{short}.weight')
  return names


def _is_transposed(name: str) -> bool:
  return name.endswith(('/kernel', '/rel_embedding'))


def _files(folder: folder_lib.Folder) -> dict[str, leaf_lib.Leaf]:
  """All arrays of the folder by PyTorch name; the index must name just them."""
  if folder.size(INDEX) is None:
    return safetensors_file.leaves(folder, WEIGHTS)
  where = folder.where(INDEX)
  index = folder_lib.parse_json(folder.read(INDEX), where).get('weight_map')
  if not isinstance(index, dict) or not all(
      isinstance(file, str) for file in index.values()):
    raise errors.CheckpointError(
        f'checkpoint {where}: needed is a weight_map from name to file')
  out: dict[str, leaf_lib.Leaf] = {}
  for file in sorted(set(index.values())):
    found = safetensors_file.leaves(folder, file)
    listed = {name for name, at in index.items() if at == file}
    if found.keys() != listed:
      raise errors.CheckpointError(
          f'checkpoint {where}: {file} differs from the index in '
          f'{", ".join(sorted(found.keys() ^ listed)[:8])}')
    out |= found
  return out


def _same(a: leaf_lib.Leaf, b: leaf_lib.Leaf) -> bool:
  return a.shape == b.shape and a.dtype == b.dtype and (
      np.array_equal(a.read().view(np.uint8), b.read().view(np.uint8)))


def _drop_copies(
    found: dict[str, leaf_lib.Leaf], tied: bool, where: str
) -> None:
  """Takes out second copies of the embedding, which must be copies."""
  found.pop(_UNUSED, None)
  for name in (*_COPIES, *((_HEAD,) if tied else ())):
    if name in found and _SHARED in found:
      if not _same(found[name], found[_SHARED]):
        raise errors.CheckpointError(
            f'checkpoint {where}: {name} differs from {_SHARED}, and '
            f'{CONFIG} says that they are one (tie_word_embeddings)')
      del found[name]


def leaves(
    folder: folder_lib.Folder, config: architecture.T5Config
) -> dict[str, leaf_lib.Leaf]:
  """The weights under T5X names; arrays without one keep theirs."""
  found = _files(folder)
  _drop_copies(found, config.tied, folder.where())
  ours = {theirs: name for name, theirs in torch_names(
      {'encoder': config.encoder_layers,
       'decoder': config.decoder_layers}).items()}
  out = {}
  for theirs, leaf in found.items():
    name = ours.get(theirs, theirs)
    out[name] = leaf.transposed() if _is_transposed(name) else leaf
  return out


_SIZES = {  # T5Config: config.json
    'd_model': 'd_model', 'd_ff': 'd_ff', 'num_heads': 'num_heads',
    'head_dim': 'd_kv', 'encoder_layers': 'num_layers',
    'vocab_size': 'vocab_size',
    'relpos_buckets': 'relative_attention_num_buckets'}
_DEFAULTS = {
    'relative_attention_num_buckets': 32,
    'relative_attention_max_distance': 128,
    'layer_norm_epsilon': 1e-6, 'feed_forward_proj': 'relu',
    'decoder_start_token_id': 0, 'pad_token_id': 0, 'eos_token_id': 1,
    'tie_word_embeddings': True}
_ALLOWED = {
    'model_type': ('t5',), 'feed_forward_proj': ('relu', 'gated-gelu'),
    'decoder_start_token_id': (0,), 'pad_token_id': (0,), 'eos_token_id': (1,),
    'tie_word_embeddings': (True, False)}


def _size(fields: dict[str, Any], name: str, where: str) -> int:
  value = fields.get(name)
  if type(value) is not int or value < 1:
    raise errors.CheckpointError(
        f'checkpoint {where}: {name}={str(value)[:200]}, allowed are integers '
        'of 1 and above')
  return value


def read_config(folder: folder_lib.Folder) -> architecture.T5Config:
  """The architecture in `config.json`; another model than T5 is refused."""
  where = folder.where(CONFIG)
  fields = folder_lib.parse_json(folder.read(CONFIG), where)
  given = {k: v for k, v in fields.items() if v is not None}
  fields = _DEFAULTS | given
  for name, allowed in _ALLOWED.items():
    value = fields.get(name)
    if not isinstance(value, str | int) or value not in allowed:
      raise errors.CheckpointError(
          f'checkpoint {where}: {name}={str(value)[:200]!r}, allowed are '
          f'{", ".join(map(repr, allowed))}')
  fields.setdefault('num_decoder_layers', fields.get('num_layers'))
  epsilon = fields['layer_norm_epsilon']
  if not isinstance(epsilon, float) or not 0 < epsilon < 1:
    raise errors.CheckpointError(
        f'checkpoint {where}: layer_norm_epsilon={str(epsilon)[:200]}, allowed '
        'are numbers between 0 and 1')
  # transformers 5 writes `tie_word_embeddings: true` for both flavours and
  # tells them apart by whether the outputs are scaled.
  tied = fields.get('scale_decoder_outputs', fields['tie_word_embeddings'])
  return identity.make_config(
      where,
      **{ours: _size(fields, theirs, where)
         for ours, theirs in _SIZES.items()},
      decoder_layers=_size(fields, 'num_decoder_layers', where),
      relpos_max_distance=_size(
          fields, 'relative_attention_max_distance', where),
      gated=fields['feed_forward_proj'] == 'gated-gelu', tied=bool(tied),
      norm_epsilon=epsilon)


def _config_fields(
    config: architecture.T5Config, dtype: np.dtype
) -> dict[str, Any]:
  sizes = {theirs: getattr(config, ours) for ours, theirs in _SIZES.items()}
  return sizes | {
      'architectures': ['T5ForConditionalGeneration'],
      'model_type': 't5',
      'num_decoder_layers': config.decoder_layers,
      'relative_attention_max_distance': config.relpos_max_distance,
      'layer_norm_epsilon': config.norm_epsilon,
      'feed_forward_proj': 'gated-gelu' if config.gated else 'relu',
      'tie_word_embeddings': config.tied,
      'is_encoder_decoder': True,
      'decoder_start_token_id': 0,
      'pad_token_id': 0,
      'eos_token_id': 1,
      'dropout_rate': 0.1,
      'initializer_factor': 1.0,
      'use_cache': True,
      'torch_dtype': dtype.name,
  }


def write(
    folder: pathlib.Path, leaves: leaf_lib.Leaves, dtype: np.dtype,
    config: architecture.T5Config
) -> None:
  """Writes `config.json` and one safetensors file."""
  (folder / CONFIG).write_text(
      json.dumps(_config_fields(config, dtype), indent=2) + '\n')
  names = torch_names({'encoder': config.encoder_layers,
                       'decoder': config.decoder_layers})
  safetensors_file.write(folder / WEIGHTS, {
      names[name]: leaf.transposed() if _is_transposed(name) else leaf
      for name, leaf in leaves.items()}, dtype)
