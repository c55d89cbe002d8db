"""What the study configs share: defaults, and how an argument is read."""

from collections.abc import Mapping
from typing import Any

import ml_collections
from ml_collections import config_dict

from configs import t5

DEFAULTS: dict[str, Any] = dict(
    prefix='', temperatures=(0.0, 1.0), top_k=0, top_p=1.0, batch_size=1,
    repeats=2, seed=0, dtype='float32', matmul_precision='highest',
    scores=('bleu',), lenience=1.0,
    acceptance=config_dict.placeholder(float),
    mesh='', draft_layout='replicated')


def build(
    arg: str, study: str, mini: Mapping[str, Any] | None,
    paper: Mapping[str, Any]
) -> ml_collections.ConfigDict:
  """Options of one variant, as in `mini,sentences=8`; leftovers are refused.

  Args:
    arg: `VARIANT` or `VARIANT,NAME=VALUE,...`; the variants of real checkpoints
      (`t5.LADDERS`) need `checkpoints=DIR`.
    study: 'ende' or 'cnndm'.
    mini: options of the built-in ladder, where the study has one.
    paper: options of the variants of real checkpoints.
  """
  variant, *parts = arg.split(',')
  given: dict[str, str] = {}
  for part in parts:
    name, _, given[name] = part.partition('=')
  variants = [*(['mini'] if mini else []), *t5.LADDERS]
  if variant not in variants:
    raise ValueError(
        f'config variant {variant!r}: allowed are {", ".join(variants)}')
  if variant == 'mini':
    chosen: dict[str, Any] = dict(mini or {})
  else:
    grid = t5.paper_grid(variant, given.pop('checkpoints', ''), study)
    names = ('target', 'drafts', 'temperatures', 'gammas')
    chosen = {**paper, **{name: grid[name] for name in names}}
  options = {**DEFAULTS, **chosen}
  for name, value in given.items():
    if not isinstance(options.get(name), int | float | str):
      raise ValueError(
          f'config part {name}={value}: allowed are checkpoints=DIR (real '
          f'checkpoints) and single options of {sorted(options)}')
    options[name] = type(options[name])(value)
  return ml_collections.ConfigDict(options).lock()
