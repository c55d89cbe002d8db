"""The paper's formulas, in NumPy, vectorised by broadcasting.

alpha: mean acceptance probability; gamma: drafts a round; c: time of one draft
run over time of one target run, c_hat the same in arithmetic operations; v:
time of one target run on gamma + 1 positions over time of one on a single
position.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

Figures = np.ndarray | np.floating  # a scalar for scalars


def _check(name: str, values: ArrayLike, low: float, high: float):
  array = np.asarray(values, np.float64)
  if not np.all((array >= low) & (array <= high)):
    raise ValueError(f'{name}={values}: allowed are {low} to {high}')
  return array


def tokens_per_round(alpha: ArrayLike, gamma: ArrayLike) -> Figures:
  """Eq. 1: (1 - alpha^(gamma+1)) / (1 - alpha), gamma + 1 at alpha = 1."""
  alpha = _check('alpha', alpha, 0, 1)
  gamma = _check('gamma', gamma, 0, np.inf)
  sure = alpha == 1
  ratio = (1 - alpha**(gamma + 1)) / np.where(sure, 1, 1 - alpha)
  return np.where(sure, gamma + 1, ratio)


def walltime_factor(
    alpha: ArrayLike,
    gamma: ArrayLike,
    c: ArrayLike,
    verify_ratio: ArrayLike = 1,
) -> Figures:
  """Thm 3.8, with a measured `verify_ratio` in place of its assumption.

  The theorem takes gamma + 1 positions to cost the same as one: v = 1. A round
  then costs gamma * c + v target steps.
  """
  c = _check('c', c, 0, np.inf)
  verify_ratio = _check('verify_ratio', verify_ratio, 0, np.inf)
  tokens = tokens_per_round(alpha, gamma)
  return tokens / (np.asarray(gamma, np.float64) * c + verify_ratio)


def accepted_per_drafted(alpha: ArrayLike, gamma: ArrayLike) -> Figures:
  """Expected accepted / drafted of a round: it falls with gamma, so it ranks
  nothing by itself."""
  return (tokens_per_round(alpha, gamma) - 1) / np.asarray(gamma, np.float64)


def operations_factor(
    alpha: ArrayLike, gamma: ArrayLike, c_hat: ArrayLike
) -> Figures:
  """Thm 3.11: operations of speculative decoding over those of plain."""
  c_hat = _check('c_hat', c_hat, 0, np.inf)
  tokens = tokens_per_round(alpha, gamma)
  gamma = np.asarray(gamma, np.float64)
  return (gamma * c_hat + gamma + 1) / tokens


def best_gamma(
    alpha: ArrayLike,
    c: ArrayLike,
    verify_ratio: Callable[[np.ndarray], ArrayLike] | None = None,
    limit: int = 64,
) -> np.ndarray | np.integer:
  """Section 3.5: the integer gamma with the largest factor, found by trying.

  Args:
    alpha, c: broadcast against each other.
    verify_ratio: v as a function of an array of gammas; None is Thm 3.8's 1.
    limit: gammas 0 (plain decoding) to `limit` are tried; a result of `limit`
      says that the best is there or beyond.

  Example: alpha 0.8 and c 0.04 give 9; a draft that is as dear as the target
  (c = 1) gives 0.
  """
  gammas = np.arange(limit + 1)
  v = 1 if verify_ratio is None else verify_ratio(gammas)
  factors = walltime_factor(
      np.asarray(alpha, np.float64)[..., None], gammas,
      np.asarray(c, np.float64)[..., None], v)
  return np.argmax(factors, axis=-1)


def sure_factor(alpha: ArrayLike, c: ArrayLike) -> Figures:
  """Cor 3.9: where alpha > c some gamma gains at least (1+alpha)/(1+c).

  Elsewhere 1: plain decoding is always there.
  """
  alpha, c = _check('alpha', alpha, 0, 1), _check('c', c, 0, np.inf)
  return np.maximum(1, (1 + alpha) / (1 + c))


def oracle_tokens(alpha: ArrayLike) -> Figures:
  """Section 3.5: 1/(1-alpha) tokens a round where an oracle stops each round's
  drafting just before the first draft that would be rejected (inf at 1)."""
  alpha = _check('alpha', alpha, 0, 1)
  with np.errstate(divide='ignore'):
    return 1 / (1 - alpha)


def oracle_factor(alpha: ArrayLike, c: ArrayLike) -> Figures:
  """The factor with that oracle.

  A round drafts what it accepts, alpha/(1-alpha) on average, so it costs
  c * alpha/(1-alpha) + 1 for 1/(1-alpha) tokens: 1/(1 - alpha + alpha * c).
  """
  alpha, c = _check('alpha', alpha, 0, 1), _check('c', c, 0, np.inf)
  with np.errstate(divide='ignore'):
    return 1 / (1 - alpha + alpha * c)


def oracle_gain(alpha: ArrayLike, c: ArrayLike, limit: int = 64) -> Figures:
  """Oracle over the best fixed gamma: what no choice of gamma can exceed.

  The paper says up to about 1.6.
  """
  fixed = walltime_factor(alpha, best_gamma(alpha, c, limit=limit), c)
  return oracle_factor(alpha, c) / fixed


def lenient_acceptance(
    p: ArrayLike, q: ArrayLike, lenience: ArrayLike
) -> Figures:
  """Appendix A.5: sum of min(p / l, q) over the last axis, alpha(l) of one
  prefix; l = 1 is the exact rule's sum of min(p, q).

  Example: p = (0.2, 0.8), q = (0.6, 0.4): 0.6 at l = 1, 0.8 at l = 0.5.
  """
  lenience = _check_lenience(lenience)
  p, q = _check('p', p, 0, 1), _check('q', q, 0, 1)
  return np.sum(np.minimum(p / lenience[..., None], q), axis=-1)


def lenient_argmax_accepts(
    p: ArrayLike, token: int, lenience: ArrayLike
) -> np.bool | np.ndarray:
  """Appendix A.5 at temperature 0: is p(token) at least l * max p?

  p is the law before argmax. The printed inequality points the other way; so
  that l = 1 is plain argmax it must be this one.
  """
  p = _check('p', p, 0, 1)
  return p[..., token] >= _check_lenience(lenience) * np.max(p, axis=-1)


def _check_lenience(lenience: ArrayLike) -> np.ndarray:
  array = _check('lenience', lenience, 0, 1)
  if np.any(array == 0):
    raise ValueError(f'lenience={lenience}: allowed are above 0 to 1')
  return array
