"""Model folders: weights (Orbax), architecture, vocabulary.

A folder holds `config.json` (the fields of `T5Config`), `params/` (an Orbax
checkpoint of the tree with T5X names) and `sentencepiece.model`.
"""

import dataclasses
import json
import pathlib
import shutil
from typing import Any

import jax
from jax import numpy as jnp
import orbax.checkpoint as ocp

from specdec_jax import examples
from specdec_jax import t5
from specdec_jax import vocab


class CheckpointError(ValueError):
  """A checkpoint that is missing, unfinished, or not of the expected model."""


@dataclasses.dataclass(frozen=True)
class Loaded:
  """One model ready to decode."""
  name: str
  config: t5.T5Config
  params: t5.Params
  vocabulary: vocab.Vocabulary


def save(
    folder: pathlib.Path, params: t5.Params, config: t5.T5Config,
    vocabulary: vocab.Vocabulary, dtype: Any = None
) -> None:
  """Writes a model folder; an existing one is replaced only once complete."""
  folder = folder.absolute()
  partial = folder.with_name(folder.name + '.partial')
  shutil.rmtree(partial, ignore_errors=True)
  partial.mkdir(parents=True)
  if dtype is not None:
    params = jax.tree.map(lambda x: x.astype(dtype), params)
  with ocp.StandardCheckpointer() as checkpointer:
    checkpointer.save(partial / 'params', params)
  (partial / 'config.json').write_text(
      json.dumps(dataclasses.asdict(config), indent=2) + '\n')
  shutil.copy(vocabulary.path, partial / 'sentencepiece.model')
  shutil.rmtree(folder, ignore_errors=True)
  partial.rename(folder)
