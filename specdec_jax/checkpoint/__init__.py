"""T5 checkpoints of every public layout, in and out.

The walk of `load`: `layout` finds out what a folder holds and opens it as
leaves that are known but not read (`t5x`, `orbax`, `huggingface`, over `zarr`,
`msgpack_index`, `safetensors_file`); `identity` finds out which T5 they are
and checks names, shapes and dtypes; `loading` reads them one by one to the
device. `saving` goes the other way. All files are read through `folder`.

Our own layout: `config.json` (the fields of `T5Config`), `params/` (an Orbax
checkpoint of the tree with T5X names) and `sentencepiece.model`.
"""

import os

from specdec_jax import architecture
from specdec_jax.checkpoint import folder as _folder
from specdec_jax.checkpoint import layout as _layout
from specdec_jax.checkpoint.errors import CheckpointError
from specdec_jax.checkpoint.identity import check_names_and_shapes
from specdec_jax.checkpoint.identity import stored_dtype
from specdec_jax.checkpoint.layout import find
from specdec_jax.checkpoint.layout import open_checkpoint
from specdec_jax.checkpoint.layout import Stored
from specdec_jax.checkpoint.leaf import from_arrays
from specdec_jax.checkpoint.loading import load
from specdec_jax.checkpoint.loading import Loaded
from specdec_jax.checkpoint.loading import place
from specdec_jax.checkpoint.loading import settle
from specdec_jax.checkpoint.saving import FORMATS
from specdec_jax.checkpoint.saving import save
from specdec_jax.checkpoint.saving import write
from specdec_jax.checkpoint.tree import flatten
from specdec_jax.checkpoint.tree import unflatten

__all__ = [
    'CheckpointError', 'FORMATS', 'Loaded', 'Stored', 'check_names_and_shapes',
    'find', 'flatten', 'from_arrays', 'load', 'open_checkpoint', 'place',
    'read_config', 'save', 'settle', 'stored_dtype', 'unflatten', 'write']


def read_config(path: str | os.PathLike[str]) -> architecture.T5Config:
  """The architecture in the `config.json` of a folder of our own layout."""
  return _layout.read_config(_folder.Folder(find(os.fspath(path))))
