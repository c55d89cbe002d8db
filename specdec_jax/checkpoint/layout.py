"""Finds out what a folder holds and opens it: layout to leaves.

| found | layout |
|---|---|
| a file | legacy T5X, all arrays in it |
| `config.json` and `params/` | our own |
| `config.json` and safetensors | Hugging Face |
| `_METADATA` here, or in `state/`, `default/`, `params/` | Orbax |
| `checkpoint`, perhaps with our `config.json` | legacy T5X |
| `checkpoint_N/` or `N/` | the newest of these that is complete |
"""

from collections.abc import Iterator
import dataclasses
import json
import os
import pathlib
import re

from absl import logging
from etils import epath

from specdec_jax import architecture
from specdec_jax import examples
from specdec_jax.checkpoint import errors
from specdec_jax.checkpoint import folder as folder_lib
from specdec_jax.checkpoint import huggingface
from specdec_jax.checkpoint import identity
from specdec_jax.checkpoint import leaf as leaf_lib
from specdec_jax.checkpoint import orbax
from specdec_jax.checkpoint import scanned
from specdec_jax.checkpoint import t5x

CONFIG = 'config.json'
PARAMS = 'params'
VOCABULARIES = ('sentencepiece.model', 'spiece.model')
_ITEMS = ('state', 'default', PARAMS)
_STEP = re.compile(r'(?:checkpoint_)?(\d{1,18})')
# T5X, Orbax and this package give a save its name only when it is complete.
_UNFINISHED = re.compile(r'.*(\.partial|\.tmp-\d+|\.orbax-checkpoint-tmp.*)')


@dataclasses.dataclass(frozen=True)
class Stored:
  """An opened checkpoint: what it holds, with no array read yet."""
  where: str
  layout: str  # 't5x', 'orbax', 'hf' or 'own'
  leaves: leaf_lib.Leaves
  declared: architecture.T5Config | None  # what its config file says
  vocabulary: pathlib.Path | None  # the SentencePiece file beside it


def built_in(name: str) -> pathlib.Path | None:
  """The folder of `mini/ROLE`; None for any other name."""
  family, _, role = name.partition('/')
  if family != 'mini':
    return None
  ladder = examples.ASSETS / 'ende_mini'
  roles = sorted(p.parent.name for p in ladder.glob(f'*/{CONFIG}'))
  if role not in roles:
    raise errors.CheckpointError(
        f'model {name!r}: the built-in ones are '
        f'{", ".join(f"mini/{r}" for r in roles)}')
  return ladder / role


def find(name: str) -> epath.Path:
  """The place of a model: `mini/ROLE` for the built-in ladder, a path or URL.

  Raises:
    CheckpointError: where there is none, or only an unfinished save.
  """
  path = epath.Path(built_in(name) or name)
  if _UNFINISHED.fullmatch(path.name):
    raise errors.CheckpointError(f'model {name}: an unfinished save')
  if not path.exists():
    siblings = path.parent.iterdir() if path.parent.is_dir() else ()
    unfinished = sorted(
        p.name for p in siblings
        if p.name.startswith(path.name) and _UNFINISHED.fullmatch(p.name))
    raise errors.CheckpointError(
        f'model {name}: ' + (
            f'only an unfinished save ({", ".join(unfinished)})'
            if unfinished else 'no such file or folder'))
  return path


def read_config(folder: folder_lib.Folder) -> architecture.T5Config:
  """The architecture in our own `config.json`, checked field by field."""
  where = folder.where(CONFIG)
  fields = folder_lib.parse_json(folder.read(CONFIG), where)
  known = {f.name for f in dataclasses.fields(architecture.T5Config)}
  if fields.keys() != known:
    raise errors.CheckpointError(
        f'{where}: has {sorted(fields)}, allowed are exactly {sorted(known)}')
  return identity.make_config(where, **fields)


def config_text(config: architecture.T5Config) -> str:
  """What `read_config` reads."""
  return json.dumps(dataclasses.asdict(config), indent=2) + '\n'


def _steps(folder: folder_lib.Folder) -> Iterator[str]:
  """Sub-folders that are steps of a run, the newest first."""
  steps = [(int(match[1]), name) for name in folder.names()
           if (match := _STEP.fullmatch(name)) and folder.has_folder(name)]
  return (name for _, name in sorted(steps, reverse=True))


def _vocabulary(folder: folder_lib.Folder) -> pathlib.Path | None:
  """A SentencePiece file in the folder or beside it.

  For a step of a run, beside the run's folder counts as well.
  """
  if not folder.is_local:
    return None
  root = folder.root
  parents = [root.parent] + (
      [root.parent.parent] if _STEP.fullmatch(root.name) else [])
  for place in (folder, *map(folder_lib.Folder, parents)):
    for name in VOCABULARIES:
      if place.size(name) is not None:
        return pathlib.Path(place.file(name))
  return None


def _with_config(folder: folder_lib.Folder) -> tuple[
    str, leaf_lib.Leaves, architecture.T5Config]:
  """The layouts with a `config.json`: ours, T5X as we write it, and HF."""
  if folder.has_folder(PARAMS):
    config = read_config(folder)
    params = folder_lib.Folder(folder.root / PARAMS)
    if params.size(orbax.METADATA) is None:
      raise errors.CheckpointError(
          f'checkpoint {folder.where(PARAMS)}: no {orbax.METADATA}, so it was '
          'not written to its end')
    return 'own', orbax.leaves(params), config
  if folder.size(t5x.FILE) is not None:
    return 't5x', t5x.leaves(folder), read_config(folder)
  if folder.size(huggingface.WEIGHTS) is None and (
      folder.size(huggingface.INDEX) is None):
    pickle = folder.size(huggingface.PICKLE) is not None
    raise errors.CheckpointError(
        f'checkpoint {folder.where()}: {CONFIG}, but neither {PARAMS}/ nor '
        f'{huggingface.WEIGHTS}' + (
            f'; {huggingface.PICKLE} can run code and is not read: save it '
            'with `safe_serialization=True`' if pickle else ''))
  config = huggingface.read_config(folder)
  return 'hf', huggingface.leaves(folder, config), config


def _leaves(folder: folder_lib.Folder) -> tuple[
    str, leaf_lib.Leaves, architecture.T5Config | None] | None:
  """(layout, leaves, declared config); None where no layout is found."""
  if folder.size(CONFIG) is not None:
    return _with_config(folder)
  if folder.size(orbax.METADATA) is not None:
    return 'orbax', orbax.leaves(folder), None
  for item in _ITEMS:
    if folder.size(f'{item}/{orbax.METADATA}') is not None:
      inner = folder_lib.Folder(folder.root / item)
      return 'orbax', orbax.leaves(inner), None
  if folder.size(t5x.FILE) is not None:
    return 't5x', t5x.leaves(folder), None
  return None


def _newest(folder: folder_lib.Folder) -> Stored:
  """The newest complete step of a run; a newer incomplete one is named."""
  skipped = []
  for name in _steps(folder):
    inner = folder_lib.Folder(folder.root / name)
    if (found := _open_folder(inner)) is not None:
      if skipped:
        logging.warning(
            'checkpoint %s: step %s is used; not complete: %s',
            folder.where(), name, ', '.join(skipped))
      return found
    skipped.append(name)
  raise errors.CheckpointError(
      f'checkpoint {folder.where()}: ' + (
          f'not complete: {", ".join(skipped)}' if skipped else
          'no checkpoint in it; it has '
          f'{", ".join(list(folder.names())[:20]) or "no entries"}'))


def _open_folder(folder: folder_lib.Folder) -> Stored | None:
  found = _leaves(folder)
  if found is None:
    return None
  layout, leaves, declared = found
  where = folder.where()
  return Stored(where, layout, scanned.unstack(leaves, where), declared,
                _vocabulary(folder))


def open_checkpoint(name: str | os.PathLike[str]) -> Stored:
  """Opens a checkpoint of any layout.

  Raises:
    CheckpointError: where nothing complete of a known layout is found.
  """
  path = find(os.fspath(name))
  if not path.is_dir():
    folder = folder_lib.Folder(path.parent)
    leaves = scanned.unstack(
        t5x.leaves(folder, path.name), folder.where(path.name))
    return Stored(os.fspath(path), 't5x', leaves, None, _vocabulary(folder))
  folder = folder_lib.Folder(path)
  return _open_folder(folder) or _newest(folder)
