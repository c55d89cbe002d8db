"""The checker of shape annotations under pytest.

Functions are checked at every call. Pytree dataclasses are checked when they
hold arrays; jax also rebuilds them around its own placeholders (argument infos,
sentinels), which have no shape to check.
"""

import functools

import beartype
import jax
import numpy as np

_PLAIN = (jax.Array, np.ndarray, np.generic, bool, int, float, str)


# An int is a float where a float is asked for, as everywhere in Python.
_CHECK = beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))


def _is_plain(value) -> bool:
  try:
    leaves = jax.tree.leaves(value, is_leaf=lambda x: x is None)
  except ValueError:  # a dict whose keys have no order
    return False
  return all(isinstance(x, _PLAIN) or callable(x) for x in leaves)


def checker(function):
  """beartype, but for dataclasses around placeholders."""
  checked = _CHECK(function)
  if function.__name__ != '__init__':
    return checked

  @functools.wraps(function)
  def init(self, *args, **kwargs):
    plain = _is_plain((args, kwargs))
    return (checked if plain else function)(self, *args, **kwargs)
  return init
