"""What the theory needs from the device: alpha's terms, c and the verify ratio.

The timed programs are loops of the very step that decoding runs (model call,
law, draw), on the same shapes; each is compiled and run once before timing, and
they run in turn.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import statistics
import time
from typing import Any

import jax
from jax import numpy as jnp
from jaxtyping import Array, Float, Int

from specdec_jax import accept
from specdec_jax import cache as cache_lib
from specdec_jax import sampling as sampling_lib
from specdec_jax import t5
from specdec_jax import vocab

STEPS = 32     # calls in one timed program
ROUNDS = 7     # timed runs of each program; the median counts


@dataclasses.dataclass(frozen=True)
class Side:
  """A model and its weights."""
  model: t5.Model
  params: Any


def betas(
    target: Side,
    draft: Side,
    source_bs: Int[Array, 'b s'],
    output_bm: Int[Array, 'b m'],
    sampling: sampling_lib.Sampling,
) -> Float[Array, 'b m']:
  """Sum of min(p, q) at every position of a target's own output (section 3.1).

  Args:
    output_bm: tokens that the target generated; positions past a row's length
      have values of no meaning.
  """
  return _betas(target.model, draft.model, target.params, draft.params,
                source_bs, output_bm, sampling)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _betas(target, draft, target_params, draft_params, source_bs, output_bm,
           sampling):
  inputs = jnp.pad(output_bm, ((0, 0), (1, 0)),
                   constant_values=vocab.START_ID)[:, :-1]

  def laws(model, params):
    cache = model.start(params, source_bs, inputs.shape[1])
    return sampling_lib.law(model.extend(params, inputs, cache)[0], sampling)
  return accept.beta(laws(target, target_params), laws(draft, draft_params))


@dataclasses.dataclass(frozen=True)
class Costs:
  """Median seconds of one call, by width; ratios are taken against width 1."""
  draft_step: float
  target_step: float
  target_by_width: dict[int, float]

  @property
  def c(self) -> float:
    return self.draft_step / self.target_step

  def verify_ratio(self, gamma: int) -> float:
    return self.target_by_width[gamma + 1] / self.target_step


def _steps(
    model: t5.Model, width: int, batch_size: int, slots: int,
    params, cache, sampling
):
  """A loop of `STEPS` calls, each reading tokens that the last one gave."""
  uniforms = jnp.full((batch_size, width), 0.5)

  def step(i, carry):
    tokens, cache = carry
    position = 1 + i % (slots - width)
    cache = cache_lib.rewind(cache, jnp.full(batch_size, position, jnp.int32))
    logits, cache = model.extend(params, tokens, cache)
    return sampling_lib.draw(
        sampling_lib.law(logits, sampling), uniforms), cache
  tokens = jnp.full((batch_size, width), vocab.START_ID, jnp.int32)
  return jax.lax.fori_loop(0, STEPS, step, (tokens, cache))


def _program(side: Side, width, source_bs, slots, sampling) -> Callable:
  """Compiles and runs the loop once; returns a call that waits for it."""
  start = jax.jit(side.model.start, static_argnums=2)
  cache = start(side.params, source_bs, slots)
  loop = jax.jit(functools.partial(
      _steps, side.model, width, source_bs.shape[0], slots))
  compiled = loop.lower(side.params, cache, sampling).compile()

  def call():
    jax.block_until_ready(compiled(side.params, cache, sampling))
  call()
  return call


def seconds(call: Callable[[], None]) -> float:
  """Seconds of one call that waits for its device."""
  began = time.perf_counter()
  call()
  return time.perf_counter() - began


def costs(
    target: Side,
    draft: Side,
    source_bs: Int[Array, 'b s'],
    slots: int,
    gammas: Sequence[int],
    sampling: sampling_lib.Sampling,
) -> Costs:
  """Times draft and target steps in turn on the shapes of decoding."""
  widths = sorted({1, *(g + 1 for g in gammas)})
  programs = {('draft', 1): _program(draft, 1, source_bs, slots, sampling)}
  for width in widths:
    programs['target', width] = _program(
        target, width, source_bs, slots, sampling)
  samples: dict[tuple[str, int], list[float]] = {name: [] for name in programs}
  for _ in range(ROUNDS):
    for name, call in programs.items():
      samples[name].append(seconds(call) / STEPS)
  median = {name: statistics.median(s) for name, s in samples.items()}
  return Costs(
      draft_step=median['draft', 1], target_step=median['target', 1],
      target_by_width={w: median['target', w] for w in widths})
