"""Nested dicts of parameters, and their flat T5X names."""

from collections.abc import Mapping
from typing import Any, TypeVar

import jax

T = TypeVar('T')

# Where the weights are in a training checkpoint: T5X's old and new wrapper, and
# a training state of ours. A bare tree of weights has none of these.
_ROOTS = ('optimizer/target/', 'target/', 'params/')


def flatten(tree: Mapping[str, Any]) -> dict[str, Any]:
  """{'encoder/encoder_norm/scale': leaf, ...}, in the order of the tree."""
  flat, _ = jax.tree_util.tree_flatten_with_path(tree)
  return {'/'.join(str(k.key) for k in path): leaf for path, leaf in flat}


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
  """The inverse of `flatten`."""
  tree: dict[str, Any] = {}
  for name, leaf in flat.items():
    *parents, last = name.split('/')
    node = tree
    for parent in parents:
      node = node.setdefault(parent, {})
    node[last] = leaf
  return tree


def weights_only(flat: Mapping[str, T]) -> dict[str, T]:
  """The entries under the root of the weights, without it.

  Example: {'target/a': 1, 'state/step': 2} becomes {'a': 1}.
  """
  for root in _ROOTS:
    chosen = {name.removeprefix(root): value for name, value in flat.items()
              if name.startswith(root)}
    if chosen:
      return chosen
  return dict(flat)
