"""Writes and reads T5X layouts without the package's checkpoint code.

TensorStore writes the arrays and flax.serialization the msgpack file, so that
reader and writer of the package cannot agree on a mistake.
"""

import functools
import json
import pathlib
from typing import Any

from flax import serialization
from flax import traverse_util
import jax
from jax import numpy as jnp
import ml_dtypes
import numpy as np
import tensorstore as ts

from specdec_jax import architecture
from specdec_jax import t5
from specdec_jax import vocab

TINY = architecture.T5Config(
    d_model=8, d_ff=16, num_heads=2, head_dim=3, encoder_layers=3,
    decoder_layers=2, vocab_size=160)
TINY_1_0 = architecture.T5Config(
    d_model=8, d_ff=16, num_heads=2, head_dim=3, encoder_layers=2,
    decoder_layers=3, gated=False, tied=True, vocab_size=160)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FIXTURE = (pathlib.Path(__file__).parents[2] / 'shared' / 'fixtures'
           / 'test_t5_tiny.checkpoint_0')
# Files of a test need not survive a power cut.
_NO_SYNC = ts.Context({'file_io_sync': False})
Arrays = dict[str, np.ndarray]


@functools.cache
def _shapes(config: architecture.T5Config) -> dict[str, tuple[int, ...]]:
  flat = traverse_util.flatten_dict(t5.param_shapes(config), sep='/')
  return {name: x.shape for name, x in sorted(flat.items())}


def arrays(
    config: architecture.T5Config, seed: int = 0, dtype: Any = np.float32
) -> Arrays:
  """Random weights by flat T5X name."""
  generator = np.random.default_rng(seed)
  return {name: (generator.standard_normal(shape) * 0.3).astype(dtype)
          for name, shape in _shapes(config).items()}


def train_vocabulary(path: pathlib.Path, size: int = 36) -> vocab.Vocabulary:
  """A small SentencePiece model of `size` pieces."""
  texts = ['Open the file and save it again.', 'The dog sees a small house.',
           'Click the button to close the window.'] * 8
  return vocab.train(texts, path, size)


def assert_same(found: Any, expected: Arrays) -> None:
  """Equal names and bit-equal leaves; `found` is nested or flat."""
  flat = traverse_util.flatten_dict(found, sep='/')
  assert flat.keys() == expected.keys()
  for name, x in expected.items():
    y = np.ascontiguousarray(flat[name])
    assert y.dtype == x.dtype and y.shape == x.shape, name
    np.testing.assert_array_equal(
        y.view(np.uint8), np.ascontiguousarray(x).view(np.uint8), name)


def _write_zarr(kvstore: dict[str, Any], x: np.ndarray, compressor, chunks):
  dtype = 'bfloat16' if x.dtype == BFLOAT16 else x.dtype.str
  store = ts.open({
      'driver': 'zarr', 'kvstore': kvstore,
      'metadata': {'shape': list(x.shape), 'dtype': dtype,
                   'chunks': list(chunks or x.shape),
                   'compressor': compressor},
      'create': True, 'delete_existing': True,
      'store_data_equal_to_fill_value': True}, context=_NO_SYNC).result()
  store.write(x).result()


GZIP = {'id': 'gzip', 'level': 1}
ZSTD = {'id': 'zstd', 'level': 1}


def write_t5x(
    folder: pathlib.Path, weights: Arrays, *, driver: str = 'file',
    version: int | None = 3, inline: bool = False, old_spec: bool = False,
    placeholders: bool = False, compressor: Any = GZIP, split: int = 1
) -> None:
  """A legacy T5X checkpoint, with Adafactor state.

  Args:
    driver: of the kvstore in the specs: file, gfile or gcs.
    version: 2 keeps the bits of bfloat16 as uint16; None is a bare tree.
    inline: arrays in the msgpack file.
    old_spec: `path` at the top of the spec, as TensorStore before 0.1.14.
    placeholders: texts instead of specs, as the first Orbax versions wrote.
    split: chunks along the first axis.
  """
  folder.mkdir(parents=True)
  leaves: dict[str, Any] = {}
  for name, x in weights.items():
    if inline:
      leaves[name] = x
      continue
    path = f'target.{name.replace("/", ".")}'
    stored = x.view(np.uint16) if version == 2 and x.dtype == BFLOAT16 else x
    chunks = (-(-x.shape[0] // split), *x.shape[1:])
    _write_zarr({'driver': 'file', 'path': f'{folder}/{path}/'}, stored,
                compressor, chunks)
    spec = {'driver': 'zarr', 'dtype': stored.dtype.name,
            'kvstore': {'driver': driver, 'path': f'{path}/'},
            # What stands here is not the truth in old files; `.zarray` is.
            'metadata': {'shape': list(x.shape), 'chunks': [1] * x.ndim,
                         'compressor': GZIP}}
    if driver == 'gcs':
      spec['kvstore']['bucket'] = 't5x-dummy-bucket'
    if old_spec:
      spec['path'] = spec['kvstore'].pop('path')
    leaves[name] = f'PLACEHOLDER://{path}' if placeholders else spec
  target = traverse_util.unflatten_dict(leaves, sep='/')
  if placeholders:
    content = {'target': target, 'state': {'step': np.int32(7)}}
  elif version is None:
    content = target
  else:
    state = {name: {'v_row': np.full(x.shape[:1], 9.0, np.float32)}
             for name, x in weights.items()}
    content = {'version': version, 'optimizer': {
        'target': target,
        'state': {'step': np.int32(7), 'param_states':
                  traverse_util.unflatten_dict(state, sep='/')}}}
  (folder / 'checkpoint').write_bytes(serialization.msgpack_serialize(content))


def read_t5x(folder: pathlib.Path) -> Arrays:
  """The weights of a version-3 checkpoint whose leaves are specs."""
  content = serialization.msgpack_restore((folder / 'checkpoint').read_bytes())
  assert content['version'] == 3
  assert content['optimizer']['state']['step'].dtype == np.int32
  specs = traverse_util.flatten_dict(
      content['optimizer']['target'], sep='/',
      is_leaf=lambda _, value: 'kvstore' in value)
  out = {}
  for name, spec in specs.items():
    spec['kvstore']['path'] = f'{folder}/{spec["kvstore"]["path"]}'
    store = ts.open(spec, open=True).result()
    assert store.dtype.numpy_dtype == np.dtype(
        BFLOAT16 if spec['dtype'] == 'bfloat16' else spec['dtype'])
    out[name] = store.read().result()
  return out


def _orbax_metadata(names: list[str], use_ocdbt: bool) -> dict[str, Any]:
  def entry(name):
    keys = name.split('/')
    return str(tuple(keys)), {
        'key_metadata': [{'key': key, 'key_type': 2} for key in keys],
        'value_metadata': {'value_type': 'jax.Array',
                           'skip_deserialize': False}}
  return {'tree_metadata': dict(map(entry, names)), 'use_ocdbt': use_ocdbt,
          'use_zarr3': False, 'custom_metadata': None}


def write_orbax(
    folder: pathlib.Path, weights: Arrays, *, ocdbt: bool, item: str = 'state',
    root: str = 'target'
) -> None:
  """An Orbax-written T5X checkpoint, with a step and an optimizer slot."""
  inner = folder / item
  inner.mkdir(parents=True)
  entries = {f'{root}/{name}': x for name, x in weights.items()}
  entries |= {'state/step': np.full((1,), 7, np.int32),
              'state/param_states/m': np.full((5,), 9.0, np.float32)}
  for name, x in entries.items():
    path = name.replace('/', '.')
    kvstore = {'driver': 'file', 'path': f'{inner}/{path}/'}
    if ocdbt:
      kvstore = {'driver': 'ocdbt', 'path': f'{path}/', 'base':
                 {'driver': 'file', 'path': f'{inner}/'}}
    _write_zarr(kvstore, x, ZSTD, None)
  (inner / '_METADATA').write_text(
      json.dumps(_orbax_metadata(list(entries), ocdbt)))
  (folder / '_CHECKPOINT_METADATA').write_text('{}')


def scan(weights: Arrays, config: architecture.T5Config) -> Arrays:
  """The same weights with the layers stacked on axis 1, as T5X scans them."""
  out: Arrays = {}
  layers = {'encoder': config.encoder_layers, 'decoder': config.decoder_layers}
  for name, x in weights.items():
    stack, _, rest = name.partition('/')
    if rest.startswith('layers_'):
      layer, _, part = rest.partition('/')
      if layer == 'layers_0':
        xs = [weights[f'{stack}/layers_{i}/{part}']
              for i in range(layers[stack])]
        out[f'{stack}/{stack}/{part}'] = np.stack(
            [_three(x, part, config) for x in xs], axis=1)
    elif rest.startswith('relpos_bias'):
      out[f'{stack}/{stack}/{rest}'] = np.stack([x] * layers[stack], axis=1)
    else:
      out[name] = x
  return out


def _three(
    x: np.ndarray, part: str, config: architecture.T5Config
) -> np.ndarray:
  heads = (config.num_heads, config.head_dim)
  if 'attention/' not in part:
    return x
  if part.endswith('out/kernel'):
    return x.reshape(*heads, -1)
  return x.reshape(x.shape[0], *heads)


def logits(params, config: architecture.T5Config, source, tokens) -> np.ndarray:
  """Logits (b, t, v) of our own model, all tokens in one call."""
  model = t5.bind(config)
  params, source, tokens = jax.tree.map(jnp.asarray, (params, source, tokens))

  @jax.jit
  def run(params, source, tokens):
    cache = model.start(params, source, tokens.shape[1])
    return model.extend(params, tokens, cache)[0]
  return np.asarray(run(params, source, tokens))
