"""Tiny T5 models with random weights, for the tests that need a real one."""

import jax
from jax import numpy as jnp
import numpy as np

from specdec_jax import architecture
from specdec_jax import t5

# No two sizes are equal, so that an exchanged axis cannot go unseen.
_SHAPE = dict(d_model=24, d_ff=40, num_heads=4, head_dim=5, encoder_layers=1,
              decoder_layers=2, vocab_size=64)
CONFIGS = {
    '1.0': architecture.T5Config(**_SHAPE, gated=False, tied=True),
    '1.1': architecture.T5Config(**_SHAPE, gated=True, tied=False),
}


def random_params(config: architecture.T5Config, seed: int = 0) -> t5.Params:
  """Weights with which every part of the model matters to the logits.

  Norm scales away from 1 and position tables of order 1: with the values of a
  fresh initialisation a fault in either would be too small to see.
  """
  generator = np.random.default_rng(seed)

  def fill(path, leaf):
    name = path[-1].key
    noise = generator.standard_normal(leaf.shape).astype(np.float32)
    if name == 'scale':
      noise = 1 + 0.3 * noise
    if name == 'kernel':
      noise *= leaf.shape[0]**-0.5
    return jnp.asarray(noise)
  return jax.tree_util.tree_map_with_path(fill, t5.param_shapes(config))
