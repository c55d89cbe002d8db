"""What depends on the kind of device: the layout of weights, compiler options.

Measured on two cores of a CPU (AVX-512, float32), sizes of T5 base: for the
decoder's products alone eight positions take 1.37 times one with XLA's default
library for small products, 1.19 with Eigen. XLA writes vectors of 256 bits
where the machine has 512; a whole step then takes 1.16 times what reading its
bytes takes, with 512 bits 1.01.
"""

import functools
from typing import Any

import jax

_OPTIONS = {'xla_cpu_experimental_ynn_fusion_type': '',
            'xla_cpu_prefer_vector_width': 512}


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
    jax.jit(lambda: 0, compiler_options=_OPTIONS).lower().compile()
  except jax.errors.JaxRuntimeError:  # a version without them
    return {}
  return _OPTIONS
