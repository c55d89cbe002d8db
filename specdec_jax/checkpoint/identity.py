"""Which T5 a checkpoint holds, found out from names and shapes.

The only place that compares names and shapes, whatever the layout.
"""

from collections.abc import Mapping
import dataclasses
import functools
import re
from typing import Any

import numpy as np

from specdec_jax import architecture
from specdec_jax import t5
from specdec_jax.checkpoint import errors
from specdec_jax.checkpoint import leaf as leaf_lib
from specdec_jax.checkpoint import tree as tree_lib

MAX_LAYERS = 128  # of a stack; the largest T5 has 24
_MAX_SIZE = 1 << 24  # of a width; the largest is T5-11B's MLP, 65536
_LISTED = 40  # problems named in a message
_LAYER = re.compile(r'(encoder|decoder)/layers_\d+(?=/)')
# Not told by any shape; read from a config file where the layout has one.
_UNSHAPED = ('relpos_max_distance', 'norm_epsilon')


def make_config(where: str, **fields: Any) -> architecture.T5Config:
  """An architecture that a checkpoint claims; CheckpointError if it cannot be.

  Sizes are bounded because shapes are worked out layer by layer: a claim of a
  thousand million layers must not keep the reader busy.
  """
  kinds: dict[str, Any] = {
      field.name: field.type
      for field in dataclasses.fields(architecture.T5Config)}
  for name, value in fields.items():
    limit = MAX_LAYERS if name.endswith('_layers') else _MAX_SIZE
    allowed = {bool: 'True or False', int: f'whole numbers from 1 to {limit}',
               float: 'numbers above 0 and below 1'}[kinds[name]]
    highest = {bool: True, int: limit, float: 1.0}[kinds[name]]
    lowest = {bool: False, int: 1, float: 1e-30}[kinds[name]]
    if type(value) is not kinds[name] or not lowest <= value <= highest:
      raise errors.CheckpointError(
          f'checkpoint {where}: {name}={str(value)[:200]!r}, allowed are '
          f'{allowed}')
  config = architecture.T5Config(**fields)
  # Below this the buckets of an encoder have no logarithmic part.
  half = config.relpos_buckets // 2
  if half < 2 or config.relpos_max_distance <= half:
    raise errors.CheckpointError(
        f'checkpoint {where}: relpos_buckets={config.relpos_buckets} and '
        f'relpos_max_distance={config.relpos_max_distance}, allowed are 4 '
        'buckets and more and a distance above half of them')
  return config


@functools.lru_cache(maxsize=8)
def expected(config: architecture.T5Config) -> Mapping[str, Any]:
  """Flat names and shapes of the parameters of `config`."""
  return tree_lib.flatten(t5.param_shapes(config))


def check_names_and_shapes(
    found: Mapping[str, Any], expected: Mapping[str, Any], where: str
) -> None:
  """Raises CheckpointError naming missing, unexpected and misshapen leaves.

  Args:
    found, expected: leaves with a `shape`, by flat name.
    where: the checkpoint's path, for the message.
  """
  problems = [f'missing {name}' for name in expected.keys() - found.keys()]
  problems += [f'unexpected {str(name)[:200]}'
               for name in found.keys() - expected.keys()]
  for name in expected.keys() & found.keys():
    shapes = tuple(found[name].shape), tuple(expected[name].shape)
    if shapes[0] != shapes[1]:
      problems.append(f'{name} has shape {shapes[0]}, the model {shapes[1]}')
  if problems:
    raise errors.CheckpointError(
        f'checkpoint {where}: {_listed(sorted(problems))}')


def _listed(problems: list[str]) -> str:
  more = len(problems) - _LISTED
  return '; '.join(problems[:_LISTED]) + (f'; {more} more' if more > 0 else '')


def infer(leaves: leaf_lib.Leaves, where: str) -> architecture.T5Config:
  """The architecture that the leaves have; what they cannot tell is T5's.

  Flavour: `wi_0` means gated, `logits_dense` means untied. The heads are the
  rows of the relative-position table.
  """
  gated = 'encoder/layers_0/mlp/wi_0/kernel' in leaves
  names = {
      'embedding': 'token_embedder/embedding',
      'table': 'encoder/relpos_bias/rel_embedding',
      'query': 'encoder/layers_0/attention/query/kernel',
      'wi': f'encoder/layers_0/mlp/{"wi_0" if gated else "wi"}/kernel',
  }
  shapes = {}
  for part, name in names.items():
    if name not in leaves:
      raise errors.CheckpointError(
          f'checkpoint {where}: not a T5 checkpoint: missing {name}; it has '
          f'{", ".join(str(found)[:80] for found in sorted(leaves)[:8])}')
    shapes[part] = tuple(leaves[name].shape)
    if len(shapes[part]) != 2:
      raise errors.CheckpointError(
          f'checkpoint {where}: {name} has shape {shapes[part]}, allowed are '
          'two axes')
  heads, buckets = shapes['table']
  if shapes['query'][1] % heads:
    raise errors.CheckpointError(
        f'checkpoint {where}: {names["query"]} has shape {shapes["query"]}, '
        f'which {heads} heads ({names["table"]}) do not divide')
  stacks = [match[1] for match in {
      m[0]: m for m in map(_LAYER.match, leaves) if m}.values()]
  return make_config(
      where, d_model=shapes['embedding'][1], d_ff=shapes['wi'][1],
      num_heads=heads, head_dim=shapes['query'][1] // heads,
      encoder_layers=stacks.count('encoder'),
      decoder_layers=stacks.count('decoder'), gated=gated,
      tied='decoder/logits_dense/kernel' not in leaves,
      vocab_size=shapes['embedding'][0], relpos_buckets=buckets)


def settle(
    leaves: leaf_lib.Leaves,
    declared: Mapping[str, architecture.T5Config | None],
    where: str,
) -> architecture.T5Config:
  """The architecture of the leaves, with which every declared one must agree.

  Args:
    leaves: the weights.
    declared: who says so ('config.json', 'the config given') and what.
    where: the checkpoint's path, for the message.

  Raises:
    CheckpointError: naming each field with both values, and each missing,
      unexpected or misshapen leaf.
  """
  config = found = infer(leaves, where)
  if config.gated == config.tied and not any(declared.values()):
    # Both would load; that nothing is missing has then to be said by someone.
    raise errors.CheckpointError(
        f'checkpoint {where}: gated={config.gated} with tied={config.tied}: '
        'T5 1.0 has one `wi` and no logits_dense, T5 1.1 has wi_0 and '
        'logits_dense; if nothing is missing, give the config')
  for who, wanted in declared.items():
    if wanted is None:
      continue
    unshaped = {name: getattr(wanted, name) for name in _UNSHAPED}
    if config is found:
      config = dataclasses.replace(config, **unshaped)
    differing = [
        f'{name} is {value}, {who} says {getattr(wanted, name)}'
        for name, value in dataclasses.asdict(config).items()
        if value != getattr(wanted, name)]
    if differing:
      names = _problems(leaves, wanted, where)
      raise errors.CheckpointError(
          f'checkpoint {where}: {"; ".join([*differing, *names])}')
  check_names_and_shapes(leaves, expected(config), where)
  return config


def _problems(
    leaves: leaf_lib.Leaves, wanted: architecture.T5Config, where: str
) -> list[str]:
  """What `check_names_and_shapes` finds, as a part of another message."""
  try:
    check_names_and_shapes(leaves, expected(wanted), where)
  except errors.CheckpointError as error:
    return [str(error).removeprefix(f'checkpoint {where}: ')]
  return []


def stored_dtype(leaves: leaf_lib.Leaves, where: str) -> np.dtype:
  """The dtype of all leaves; CheckpointError where they are mixed.

  transformers keeps `wo` in float32 when it saves the rest in half precision;
  that one mixture is read.
  """
  names: dict[np.dtype, list[str]] = {}
  for name, leaf in leaves.items():
    names.setdefault(leaf.dtype, []).append(name)
  wide = names.get(leaf_lib.DTYPES['float32'], [])
  if len(names) == 2 and wide and all(
      name.endswith('/mlp/wo/kernel') for name in wide):
    del names[leaf_lib.DTYPES['float32']]
  if len(names) > 1:
    raise errors.CheckpointError(
        f'checkpoint {where}: mixed dtypes: ' + ', '.join(
            f'{dtype} in {len(of)} (first {of[0]})'
            for dtype, of in names.items())
        + '; allowed is one for all: save it again in one dtype')
  return next(iter(names))
