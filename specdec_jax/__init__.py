"""Speculative decoding of T5 in JAX (Leviathan, Kalman and Matias, 2023).

`specdec_jax.load("mini/target")` gives a model, `specdec_jax.Decoder` decodes
with it. Submodules load when first used, so that reports need no jax.
"""

import importlib
from typing import Any

__version__ = '0.1.0'

_PUBLIC = {
    'load': 'drafters', 'Loaded': 'checkpoint', 'Decoder': 'generate',
    'Output': 'generate',
}
__all__ = ['Decoder', 'Loaded', 'Output', 'load']  # pyright: ignore


def __getattr__(name: str) -> Any:
  if name not in _PUBLIC:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  module = importlib.import_module(f'{__name__}.{_PUBLIC[name]}')
  return getattr(module, name)
