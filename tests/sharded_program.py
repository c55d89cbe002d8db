"""Run by `test_sharding` on eight simulated devices; prints JSON.

The ids of plain and speculative decoding of one batch of eight sentences, with
three drafts, on one device and on each mesh; and what a sharded load reads.
"""

import json
import pathlib
import tempfile

import jax
import numpy as np

from specdec_jax import checkpoint
from specdec_jax import generate
from specdec_jax import sharding
from specdec_jax import t5
from specdec_jax import vocab
from tests import tiny

MESHES = ('data=1,model=8', 'data=2,model=4', 'data=8,model=1')
SOURCES = (*tiny.TEXTS, 'Open.', 'The dog.', 'Select a cell and close it.')
EIGHT = dict(num_heads=8, head_dim=4)
TARGET = tiny.config(d_model=24, **EIGHT)
DRAFTS = {
    'small': tiny.config(),
    'base': tiny.config(gated=False, tied=True, **EIGHT),
    'large': tiny.config(d_model=24, decoder_layers=2, **EIGHT),
}
EOS_SCALE = 2.5
SPLIT = {'base'}  # the others lie whole on every device


def sizes(mesh: str) -> dict[str, int]:
  return {axis: int(n) for axis, n in
          (part.split('=') for part in mesh.split(','))}


def model(config: t5.T5Config, seed: int, mesh: str | None, split: bool
          ) -> checkpoint.Loaded:
  """Random weights that make sentences of different lengths."""
  params = t5.init_params(config, jax.random.key(seed))
  params = jax.tree.map(lambda x: np.asarray(x) * 1.5, params)
  if not config.tied:  # EOS is far above or far below the other tokens
    params['decoder']['logits_dense']['kernel'][:, vocab.EOS_ID] *= EOS_SCALE
  layout = sharding.Layout(
      sharding.make_mesh(sizes(mesh)), split) if mesh else None
  placed = checkpoint.place(
      checkpoint.from_arrays(checkpoint.flatten(params)), 'float32', layout)
  return checkpoint.Loaded('tiny', config, placed, tiny.vocabulary(), layout)


def decode(mesh: str | None) -> dict:
  """Ids and rounds of every sentence, by draft and temperature."""
  target = model(TARGET, 0, mesh, True)
  found = {}
  for name in (None, *DRAFTS):
    draft = model(DRAFTS[name], 1, mesh, name in SPLIT) if name else None
    for temperature in (0.0, 1.0) if name == 'base' else (0.0,):
      decoder = generate.Decoder(
          target, draft, gamma=3 if name else 0, temperature=temperature,
          max_new_tokens=10, source_buckets=(32,), batch_size=8, slots=14)
      outputs = decoder(SOURCES)
      found[f'{name} {temperature}'] = [
          [*o.ids, len(o.rounds)] for o in outputs]
  return found


def placement() -> dict:
  """The axes that the compiled programs keep, seen on their results."""
  target = model(TARGET, 0, 'data=2,model=4', True)
  start = jax.jit(generate.bind(target, 192).start, static_argnums=2)
  cache = start(target.params, jax.numpy.ones((8, 16), int), 12)
  kernel = target.params['encoder']['layers_0']['mlp']['wo']['kernel']
  return {'keys': list(cache.k[0].sharding.spec),
          'length': list(cache.length.sharding.spec),
          'rows of wo': [kernel.shape[0], kernel.addressable_data(0).shape[0]]}


def refusal() -> str:
  """What a split over heads that do not divide says; whole is allowed."""
  mesh, config = sharding.make_mesh({'model': 4}), tiny.config(num_heads=6)
  sharding.Layout(mesh, split=False).check(config, 'x')
  try:
    sharding.Layout(mesh).check(config, 'x')
  except sharding.MeshError as error:
    return str(error)
  return 'nothing'


def main():
  with tempfile.TemporaryDirectory() as folder:
    checkpoint.save(
        pathlib.Path(folder) / 'm', model(TARGET, 0, None, True).params, TARGET,
        tiny.vocabulary())
    layout = sharding.Layout(sharding.make_mesh(sizes(MESHES[1])))
    loaded = checkpoint.load(pathlib.Path(folder) / 'm', placement=layout)
    same = jax.tree.all(jax.tree.map(
        lambda a, b: bool(np.array_equal(a, b)), loaded.params,
        model(TARGET, 0, None, True).params))
  print(json.dumps({
      'ids': {str(mesh): decode(mesh) for mesh in (None, *MESHES)},
      'placement': placement(), 'refused': refusal(),
      'loaded is the same': same}))


if __name__ == '__main__':
  main()
