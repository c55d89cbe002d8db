"""Algorithm 1 of Leviathan, Kalman and Matias (2023), with its lenience.

Letters: `b` batch, `g` drafted tokens, `v` vocabulary; p has one position more
than q, the law after the last draft.

Lenience l (App. A.5) is in (0, 1]; 1, the default, is Algorithm 1 itself. Below
1 the output is no longer the target's: a draft is kept with min(1, p / (l q)).
The residual stays norm(max(0, p - q)): l stands in the comparison only. Then

    P(x) = min(p / l, q) + s (p - q)+,  0 <= s <= 1

since less is rejected than (p - q)+ holds. So no token comes with more than
p / l, none with more than p where p >= q, and what the residual adds never
moves the law further from p. norm(max(0, p - l q)) keeps the first bound too,
but also adds to tokens that drafts have brought above p already.
"""

import dataclasses

import jax
from jax import numpy as jnp
from jaxtyping import Array, Bool, Float, Int
import numpy as np

from specdec_jax import sampling


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Accepted:
  """`count` leading drafts are kept, then comes `next`."""
  count: Int[Array, ' b']
  next: Int[Array, ' b']


def beta(
    p: Float[Array, '... v'], q: Float[Array, '... v'], lenience: float = 1.0
) -> Float[Array, '...']:
  """Acceptance probability at one prefix: sum of min(p / l, q) (Thm 3.5)."""
  if lenience < 1:
    p = p / lenience
  return jnp.sum(jnp.minimum(p, q), axis=-1)


def near_argmax(
    logits: Float[Array, '... v'], tokens: Int[Array, '...'], lenience: float
) -> Bool[Array, '...']:
  """Lenience at temperature 0: where p(x) >= l max p, p before standardising.

  p is the target's law at temperature 1, unfiltered. (The paper prints the
  inequality the other way round; with l = 1 this is plain argmax.)

  Example: with p = (0.5, 0.3, 0.2) and l = 0.5 tokens 0 and 1 pass.
  """
  logits = logits.astype(jnp.float32)
  own = jnp.take_along_axis(logits, tokens[..., None], axis=-1)[..., 0]
  return own >= jnp.max(logits, axis=-1) + float(np.log(lenience))


def keep_probability(
    p_bpv: Float[Array, 'b p v'],
    q_bgv: Float[Array, 'b g v'],
    tokens_bg: Int[Array, 'b g'],
    lenience: float = 1.0,
) -> Float[Array, 'b g']:
  """min(1, p(x) / (l q(x))) for each drafted token x."""
  g = tokens_bg.shape[1]
  at = tokens_bg[..., None]
  p_bg = jnp.take_along_axis(p_bpv[:, :g], at, axis=-1)[..., 0]
  q_bg = jnp.take_along_axis(q_bgv, at, axis=-1)[..., 0]
  if lenience < 1:
    q_bg = lenience * q_bg
  return jnp.where(p_bg >= q_bg, 1.0, p_bg / jnp.where(q_bg > 0, q_bg, 1.0))


def residual(
    p_bv: Float[Array, 'b v'], q_bv: Float[Array, 'b v']
) -> Float[Array, 'b v']:
  """norm(max(0, p - q)), the law after a rejection; p itself where q = 0.

  Where p equals q nothing is left, and nothing can be rejected but by rounding:
  the law is then p.

  Example: p = (0.2, 0.4, 0.4), q = (0.6, 0.3, 0.1) give (0, 0.25, 0.75).
  """
  left = jnp.maximum(p_bv - q_bv, 0)
  left = jnp.where(jnp.sum(left, axis=-1, keepdims=True) > 0, left, p_bv)
  return left / jnp.sum(left, axis=-1, keepdims=True)


def accept(
    p_bpv: Float[Array, 'b p v'],
    q_bgv: Float[Array, 'b g v'],
    tokens_bg: Int[Array, 'b g'],
    drafted_b: Int[Array, ' b'],
    uniforms_bp: Float[Array, 'b p'],
    near_bg: Bool[Array, 'b g'] | None = None,
    lenience: float = 1.0,
    acceptance: float | Float[Array, ''] | None = None,
) -> Accepted:
  """Keeps the leading drafts that pass their coin and draws the next token.

  Args:
    p_bpv: target laws at the prefix and after each draft, p = g + 1 of them.
    q_bgv: the laws that the drafts were drawn from.
    tokens_bg: the drafts.
    drafted_b: how many of the g drafts count in each row; the others are
      ignored as if they had not been made.
    uniforms_bp: in [0, 1): one coin a draft, then one for the next token.
    near_bg: drafts to keep whatever their coin (`near_argmax`).
    lenience: l, static.
    acceptance: a synthetic one: every coin passes below it, whatever the laws
      say. The output then means nothing.

  Returns:
    Accepted. With every draft kept, the next token comes from the target's law
    after the last one; otherwise from the residual where the first one failed.

  Example: v = 3, g = 1, p = [(0.2, 0.4, 0.4), (1, 0, 0)], q = [(0.6, 0.3,
  0.1)], draft 0 is kept for coins below 1/3 and followed by 0; for other coins
  count is 0 and the next token is 1 (a quarter) or 2.
  """
  b, g = tokens_bg.shape
  if p_bpv.shape[1] != g + 1 or uniforms_bp.shape != (b, g + 1):
    raise ValueError(
        f'p {p_bpv.shape} and uniforms {uniforms_bp.shape}: {g} drafts need '
        f'{g + 1} positions')
  coins_bg, last_b = uniforms_bp[:, :g], uniforms_bp[:, g]
  passed = coins_bg < (
      keep_probability(p_bpv, q_bgv, tokens_bg, lenience)
      if acceptance is None else acceptance)
  if near_bg is not None:
    passed |= near_bg
  passed &= jnp.arange(g)[None] < drafted_b[:, None]
  count_b = jnp.sum(jnp.cumprod(passed.astype(jnp.int32), axis=1), axis=1)
  # Past the drafts q is 0, so that the residual there is the target's law.
  q_bpv = jnp.pad(q_bgv, ((0, 0), (0, 1), (0, 0)))
  p_bv, q_bv = (_at(x, count_b) for x in (p_bpv, q_bpv))
  q_bv = jnp.where((count_b < drafted_b)[:, None], q_bv, 0)
  return Accepted(count_b, sampling.draw(residual(p_bv, q_bv), last_b))


def _at(x_bpv, position_b):
  return jnp.take_along_axis(x_bpv, position_b[:, None, None], axis=1)[:, 0]
