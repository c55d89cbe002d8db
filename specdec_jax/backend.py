"""What depends on the kind of device: the layout of weights, compiler options.

Measured on two cores of a CPU (AVX-512, float32, decoder weights of T5 base):
four positions cost 1.19 times one with XLA's default library for small products
and 1.12 with Eigen, eight 1.37 and 1.19. Its threads sleep between the products
of a small model and are woken for each.
"""

import functools
from typing import Any

import jax

_EIGEN = {'xla_cpu_experimental_ynn_fusion_type': ''}


def packs() -> bool:
  """Whether weights are packed (see `t5.pack`): on a CPU the layout of a weight
  is that of its product; the compilers of accelerators choose their own."""
  return jax.default_backend() == 'cpu'


@functools.cache
def compiler_options() -> dict[str, Any]:
  """For `jax.jit` of whatever decodes or is timed; empty but on a CPU."""
  if jax.default_backend() != 'cpu':
    return {}
  try:
    jax.jit(lambda: 0, compiler_options=_EIGEN).lower().compile()
  except jax.errors.JaxRuntimeError:  # a version without that library
    return {}
  return _EIGEN
