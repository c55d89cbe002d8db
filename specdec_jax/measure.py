"""What the theory needs from the device: alpha's terms, c and the verify ratio.

The timed programs are loops of the very step that decoding runs (model call,
law, draw; for the draft whole blocks of gamma), on the same shapes; each is
compiled and run once before timing, and they run in turn.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import statistics
import time
from typing import Any, TypeVar

import jax
from jax import numpy as jnp
from jaxtyping import Array, Float, Int

from specdec_jax import accept
from specdec_jax import backend
from specdec_jax import cache as cache_lib
from specdec_jax import draft as draft_lib
from specdec_jax import sampling as sampling_lib
from specdec_jax import t5
from specdec_jax import vocab

Name = TypeVar('Name')

STEPS = 32     # calls in one timed program
ROUNDS = 7     # timed runs of each program; the median counts


@dataclasses.dataclass(frozen=True)
class Side:
  """A model and its weights."""
  model: t5.Model
  params: Any


@dataclasses.dataclass(frozen=True)
class DraftSide:
  """A drafter, with a model or without, and its parameters."""
  drafter: draft_lib.Drafter
  params: Any


def betas(
    target: Side,
    draft: DraftSide,
    source_bs: Int[Array, 'b s'],
    output_bm: Int[Array, 'b m'],
    sampling: sampling_lib.Sampling,
    lenience: float = 1.0,
) -> Float[Array, 'b m']:
  """Sum of min(p / l, q) at each place of a target's own output (section 3.1).

  At temperature 0 with lenience: whether the draft's token would be kept.

  Args:
    output_bm: tokens that the target generated; positions past a row's length
      have values of no meaning.
  """
  return _betas(target.model, draft.drafter, lenience, target.params,
                draft.params, source_bs, output_bm, sampling)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _betas(target, drafter, lenience, target_params, draft_params, source_bs,
           output_bm, sampling):
  tokens_bn = jnp.pad(
      output_bm, ((0, 0), (1, 0)), constant_values=vocab.START_ID)
  cache = target.start(target_params, source_bs, output_bm.shape[1])
  logits, _ = target.extend(target_params, tokens_bn[:, :-1], cache)
  q_bmv = forced_laws(drafter, draft_params, source_bs, tokens_bn, sampling)
  if sampling.greedy and lenience < 1:
    near = accept.near_argmax(logits, jnp.argmax(q_bmv, axis=-1), lenience)
    return near.astype(jnp.float32)
  return accept.beta(sampling_lib.law(logits, sampling), q_bmv, lenience)


def forced_laws(
    drafter: draft_lib.Drafter,
    params: Any,
    source_bs: Int[Array, 'b s'],
    tokens_bn: Int[Array, 'b n'],
    sampling: sampling_lib.Sampling,
) -> Float[Array, 'b m v']:
  """q behind each of m = n - 1 prefixes of a text, the start token first.

  One draft of one token a prefix, as in a round whose drafts were all refused:
  the very q of decoding, for every kind of drafter.
  """
  b, n = tokens_bn.shape
  uniforms = jnp.full((b, 1), 0.5)

  def step(state, length):
    prefix = draft_lib.Prefix(tokens_bn, jnp.full(b, length))
    drafted = drafter.draft(
        params, state, prefix, 1, jnp.asarray(1), sampling, uniforms)
    return drafted.state, drafted.q[:, 0]
  _, q_mbv = jax.lax.scan(
      step, drafter.start(params, source_bs, n), jnp.arange(1, n))
  return jnp.moveaxis(q_mbv, 0, 1)


@dataclasses.dataclass(frozen=True)
class Costs:
  """Median seconds of one call, by width; ratios are taken against width 1.

  `draft_step` is the time of a block of the largest gamma, divided by gamma.
  """
  draft_step: float
  target_step: float
  target_by_width: dict[int, float]

  @property
  def c(self) -> float:
    return self.draft_step / self.target_step

  def verify_ratio(self, gamma: int) -> float:
    return self.target_by_width[gamma + 1] / self.target_step


@dataclasses.dataclass(frozen=True)
class Loop:
  """A program of `steps` steps, compiled and run once."""
  call: Callable[[], None]
  steps: int
  compile_seconds: float


def _steps(
    model: t5.Model, width: int, count: int, batch_size: int, slots: int,
    params, cache, sampling
):
  """A loop of `count` calls, each reading tokens that the last one gave."""
  uniforms = jnp.full((batch_size, width), 0.5)

  def step(i, carry):
    tokens, cache = carry
    position = 1 + i % (slots - width)
    cache = cache_lib.rewind(cache, jnp.full(batch_size, position, jnp.int32))
    logits, cache = model.extend(params, tokens, cache)
    return sampling_lib.sample(
        sampling_lib.law(logits, sampling), uniforms, sampling), cache
  tokens = jnp.full((batch_size, width), vocab.START_ID, jnp.int32)
  return jax.lax.fori_loop(0, count, step, (tokens, cache))


def _drafts(
    drafter: draft_lib.Drafter, gamma: int, count: int, batch_size: int,
    slots: int, params, state, sampling
):
  """A loop of `count` blocks, each behind the tokens that the last one gave."""
  uniforms = jnp.full((batch_size, gamma), 0.5)

  def block(i, tokens_bn, state):
    length = 1 + i * gamma % (slots - gamma)
    prefix = draft_lib.Prefix(tokens_bn, jnp.full(batch_size, length))
    drafted = drafter.draft(
        params, state, prefix, gamma, jnp.asarray(gamma), sampling, uniforms)
    return jax.lax.dynamic_update_slice_in_dim(
        tokens_bn, drafted.tokens, length, axis=1), drafted

  def step(i, carry):
    tokens_bn, drafted = carry
    return block(i, tokens_bn, drafted.state)
  tokens = jnp.full((batch_size, slots), vocab.START_ID, jnp.int32)
  # The last block's laws are part of the result, so that they are computed.
  return jax.lax.fori_loop(
      1, count, step, block(jnp.asarray(0), tokens, state))


def _compiled(loop: Callable, steps: int, start: Callable, params, source_bs,
              slots, sampling) -> Loop:
  """Compiles and runs the loop once."""
  state = jax.jit(start, static_argnums=2)(params, source_bs, slots)
  run = functools.partial(loop, source_bs.shape[0], slots)
  began = time.perf_counter()
  compiled = jax.jit(
      run, compiler_options=backend.compiler_options()
  ).lower(params, state, sampling).compile()
  compile_seconds = time.perf_counter() - began

  def call():
    jax.block_until_ready(compiled(params, state, sampling))
  call()
  return Loop(call, steps, compile_seconds)


def target_loop(
    target: Side, width: int, source_bs: Int[Array, 'b s'], slots: int,
    sampling: sampling_lib.Sampling, steps: int
) -> Loop:
  """Calls of the target on `width` positions of each row."""
  return _compiled(
      functools.partial(_steps, target.model, width, steps), steps,
      target.model.start, target.params, source_bs, slots, sampling)


def draft_loop(
    draft: DraftSide, gamma: int, source_bs: Int[Array, 'b s'], slots: int,
    sampling: sampling_lib.Sampling, steps: int
) -> Loop:
  """Whole blocks of `gamma` drafts, of at least `steps` in all."""
  blocks = -(-steps // gamma)
  return _compiled(
      functools.partial(_drafts, draft.drafter, gamma, blocks), blocks * gamma,
      draft.drafter.start, draft.params, source_bs, slots, sampling)


def seconds(call: Callable[[], None]) -> float:
  """Seconds of one call that waits for its device."""
  began = time.perf_counter()
  call()
  return time.perf_counter() - began


def in_turn(loops: Mapping[Name, Loop], rounds: int) -> dict[Name, list[float]]:
  """Seconds a step of each loop, `rounds` times each, one after the other."""
  samples: dict[Name, list[float]] = {name: [] for name in loops}
  for _ in range(rounds):
    for name, loop in loops.items():
      samples[name].append(seconds(loop.call) / loop.steps)
  return samples


def costs(
    target: Side,
    draft: DraftSide,
    source_bs: Int[Array, 'b s'],
    slots: int,
    gammas: Sequence[int],
    sampling: sampling_lib.Sampling,
) -> Costs:
  """Times drafts and target steps in turn on the shapes of decoding."""
  gamma, widths = max(gammas), sorted({1, *(g + 1 for g in gammas)})
  shapes = (source_bs, slots, sampling)
  # By target width; 0 is the draft, whose program makes whole blocks.
  loops = {0: draft_loop(draft, gamma, *shapes, STEPS)} | {
      width: target_loop(target, width, *shapes, STEPS) for width in widths}
  median = {name: statistics.median(samples)
            for name, samples in in_turn(loops, ROUNDS).items()}
  return Costs(
      draft_step=median[0], target_step=median[1],
      target_by_width={w: median[w] for w in widths})
