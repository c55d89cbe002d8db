"""Layout, leaves, check, place: from a name to parameters on a device."""

from collections.abc import Callable
import dataclasses
import functools
import os
import pathlib
from typing import Any

import jax
from jax import numpy as jnp
import numpy as np

from specdec_jax import architecture
from specdec_jax import backend
from specdec_jax import sharding
from specdec_jax import t5
from specdec_jax import vocab
from specdec_jax.checkpoint import errors
from specdec_jax.checkpoint import identity
from specdec_jax.checkpoint import layout
from specdec_jax.checkpoint import leaf as leaf_lib
from specdec_jax.checkpoint import tree

# One sharding for all parameters, or one for each by flat name.
Placement = jax.sharding.Sharding | Callable[[str], jax.sharding.Sharding]


@dataclasses.dataclass(frozen=True)
class Loaded:
  """One model ready to decode."""
  name: str
  config: architecture.T5Config
  params: t5.Params
  vocabulary: vocab.Vocabulary
  placement: Placement | None = None

  @property
  def packs(self) -> bool:
    """Whether decoding reads packed weights; those of a mesh stay as placed."""
    return backend.packs() and self.placement is None

  @functools.cached_property
  def packed(self) -> t5.Params:
    """The weights as decoding reads them (see `t5.pack`)."""
    return t5.pack(self.config, self.params) if self.packs else self.params


def place(
    leaves: leaf_lib.Leaves, dtype: Any, placement: Placement | None = None
) -> t5.Params:
  """Reads leaf by leaf, each straight to its dtype and device.

  A host reads only what its own devices hold. The largest leaves come first:
  while little else is there, so that the memory for reading them hardly adds to
  the peak.
  """
  if placement is None:
    placement = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
  params = {}
  for name, leaf in sorted(leaves.items(), key=lambda item: -item[1].nbytes):
    where = placement(name) if callable(placement) else placement
    params[name] = jax.block_until_ready(_put(leaf, np.dtype(dtype), where))
  return tree.unflatten(params)


def _put(
    leaf: leaf_lib.Leaf, dtype: np.dtype, where: jax.sharding.Sharding
) -> jax.Array:
  """The array of a leaf; each part that this host holds is read once."""
  parts: dict[str, np.ndarray] = {}

  def part(index):
    if (key := str(index)) not in parts:
      parts[key] = leaf.part(index).astype(dtype, copy=False)
    return parts[key]
  return jax.make_array_from_callback(leaf.shape, where, part)


def find_vocabulary(
    stored: layout.Stored, given: str | os.PathLike[str] | None
) -> vocab.Vocabulary:
  """The vocabulary given, or the one beside the checkpoint.

  Its ids must fit into the model's table. The table may be larger (T5's is
  padded from 32100 to 32128); ids past the vocabulary have no text.
  """
  path = pathlib.Path(given) if given else stored.vocabulary
  if path is None:
    raise errors.CheckpointError(
        f'checkpoint {stored.where}: no {" or ".join(layout.VOCABULARIES)} '
        'beside it; put it there or give `vocabulary`')
  words = vocab.Vocabulary(path)
  size = stored.leaves['token_embedder/embedding'].shape[0]
  if words.text_size > size:
    raise errors.CheckpointError(
        f'checkpoint {stored.where}: vocabulary {path} of {words.text_size} '
        f'ids, table of {size}')
  return words


def settle(
    stored: layout.Stored, config: architecture.T5Config | None = None
) -> architecture.T5Config:
  """The checkpoint's architecture; refused where anything contradicts it."""
  identity.stored_dtype(stored.leaves, stored.where)
  return identity.settle(
      stored.leaves,
      {layout.CONFIG: stored.declared, 'the config given': config},
      stored.where)


def load(
    name: str | os.PathLike[str],
    dtype: Any = jnp.float32,
    *,
    vocabulary: str | os.PathLike[str] | None = None,
    config: architecture.T5Config | None = None,
    placement: Placement | None = None,
) -> Loaded:
  """Loads a model of any layout by path, URL or `mini/ROLE`.

  Args:
    name: where it is.
    dtype: of the parameters in memory, whatever the stored one is.
    vocabulary: a SentencePiece file; by default the one beside the weights.
    config: an architecture that the checkpoint must have; by default it is
      found out.
    placement: where the parameters go; by default the first device.

  Raises:
    CheckpointError: before anything is computed, if the checkpoint is missing,
      unfinished, damaged, or of another model than `config` or its own config
      file says.
  """
  stored = layout.open_checkpoint(name)
  settled = settle(stored, config)
  words = find_vocabulary(stored, vocabulary)
  if isinstance(placement, sharding.Layout):
    placement.check(settled, os.fspath(name))
  params = place(stored.leaves, np.dtype(dtype), placement)
  return Loaded(os.fspath(name), settled, params, words, placement)
