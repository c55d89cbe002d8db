"""Model folders: architecture, weights (Orbax), vocabulary.

A folder holds `config.json` (the fields of `T5Config`), `params/` (an Orbax
checkpoint of the tree with T5X names) and `sentencepiece.model`. It is complete
when its name is: a save writes `NAME.partial` first and renames it.
"""

from collections.abc import Mapping
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
    folder: pathlib.Path,
    params: t5.Params,
    config: t5.T5Config,
    vocabulary: vocab.Vocabulary,
    dtype: Any = None,
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


def find(name: str) -> pathlib.Path:
  """The folder of a model: `mini/ROLE` for the built-in ladder, or a path.

  Raises:
    CheckpointError: where there is none, or only an unfinished save.
  """
  built_in, _, role = name.partition('/')
  if built_in == 'mini':
    ladder = examples.ASSETS / 'ende_mini'
    roles = sorted(p.parent.name for p in ladder.glob('*/config.json'))
    if role not in roles:
      raise CheckpointError(
          f'model {name!r}: the built-in ones are '
          f'{", ".join(f"mini/{r}" for r in roles)}')
    return ladder / role
  folder = pathlib.Path(name)
  partial = folder.with_name(folder.name + '.partial')
  if not folder.exists() and partial.exists():
    raise CheckpointError(
        f'model {name}: only an unfinished save ({partial.name})')
  if not (folder / 'config.json').is_file():
    raise CheckpointError(f'model {name}: no folder with a config.json')
  if not (folder / 'params' / '_METADATA').is_file():
    raise CheckpointError(
        f'model {name}: params/ has no _METADATA, so it is missing or was not '
        'written to its end')
  return folder


def read_config(folder: pathlib.Path) -> t5.T5Config:
  """The architecture in `config.json`, checked field by field."""
  path = folder / 'config.json'
  try:
    fields = json.loads(path.read_text('utf-8'))
  except ValueError as error:
    raise CheckpointError(f'{path}: not JSON: {error}') from error
  known: dict[str, Any] = {
      field.name: field.type for field in dataclasses.fields(t5.T5Config)}
  if not isinstance(fields, dict) or fields.keys() != known.keys():
    found = sorted(fields) if isinstance(fields, dict) else fields
    raise CheckpointError(
        f'{path}: has {found}, allowed are exactly {sorted(known)}')
  for name, value in fields.items():
    if type(value) is not known[name] or value < 0:
      raise CheckpointError(
          f'{path}: {name}={value!r}: allowed is {known[name].__name__} of 0 '
          'and above')
  return t5.T5Config(**fields)


def flatten(tree: Mapping[str, Any]) -> dict[str, Any]:
  """{'encoder/encoder_norm/scale': leaf, ...}, in the order of the tree."""
  flat, _ = jax.tree_util.tree_flatten_with_path(tree)
  return {'/'.join(str(k.key) for k in path): leaf for path, leaf in flat}


def check_names_and_shapes(
    found: Mapping[str, Any], expected: Mapping[str, Any], where: str
) -> None:
  """Raises CheckpointError naming every missing, unexpected or misshapen leaf.

  Args:
    found, expected: leaves with a `shape`, by flat name.
    where: the checkpoint's path, for the message.
  """
  problems = [f'missing {name}' for name in expected.keys() - found.keys()]
  problems += [f'unexpected {name}' for name in found.keys() - expected.keys()]
  for name in expected.keys() & found.keys():
    shapes = tuple(found[name].shape), tuple(expected[name].shape)
    if shapes[0] != shapes[1]:
      problems.append(f'{name} has shape {shapes[0]}, the model {shapes[1]}')
  if problems:
    raise CheckpointError(
        f'checkpoint {where}: ' + '; '.join(sorted(problems)))


def load(name: str, dtype: Any = jnp.float32) -> Loaded:
  """Loads a model folder by path or `mini/ROLE`, weights in `dtype`.

  Raises:
    CheckpointError: before anything is computed, if the folder is missing,
      unfinished, or holds other names or shapes than its `config.json` says.
  """
  folder = find(name).absolute()
  config = read_config(folder)
  vocabulary = vocab.Vocabulary(folder / 'sentencepiece.model')
  if vocabulary.text_size > config.vocab_size:
    raise CheckpointError(
        f'model {name}: vocabulary of {vocabulary.text_size} ids, table of '
        f'{config.vocab_size}')
  expected = t5.param_shapes(config)
  with ocp.StandardCheckpointer() as checkpointer:
    try:
      stored = checkpointer.metadata(folder / 'params').item_metadata.tree
      check_names_and_shapes(
          flatten(stored), flatten(expected), str(folder / 'params'))
      sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
      params = checkpointer.restore(
          folder / 'params',
          jax.tree.map(
              lambda x: jax.ShapeDtypeStruct(x.shape, dtype, sharding=sharding),
              expected))
    except CheckpointError:
      raise
    except (ValueError, OSError, KeyError, TypeError) as error:
      raise CheckpointError(
          f'checkpoint {folder / "params"}: not readable: {error}') from error
  return Loaded(name, config, params, vocabulary)
