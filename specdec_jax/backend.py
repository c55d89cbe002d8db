"""What depends on the kind of device: the layout of weights, compiler options.

On a CPU XLA's default is meant for large products. Decoding reads few positions
at once, so weights are laid out for that (`products`) and the options see to it
that its sums become one vector loop over all cores, with nothing hoisted out of
the loop over tokens. Figures: `experiments.bench.decoder`.
"""

import functools
from typing import Any

import jax

_OPTIONS = {
    # Products of few rows are written as sums; Eigen has the rest, but for
    # small ones, which are XLA's own loops.
    'xla_cpu_experimental_ynn_fusion_type': '',
    'xla_cpu_multi_thread_eigen': False,
    'xla_cpu_prefer_vector_width': 512,
    # Barriers hold to the end, so that they keep operations apart; a sum is one
    # loop and not a tree of windows.
    'xla_disable_hlo_passes': 'cse_barrier_expander,tree_reduction_rewriter',
    # Sums may be added in another order, and nothing else may change.
    'xla_cpu_enable_fast_math': True,
    'xla_cpu_fast_math_honor_nans': True,
    'xla_cpu_fast_math_honor_infs': True,
    'xla_cpu_fast_math_honor_division': True,
    'xla_cpu_fast_math_honor_functions': True}


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
