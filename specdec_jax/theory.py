"""The paper's formulas, in NumPy, vectorised by broadcasting.

alpha: mean acceptance probability; gamma: drafts a round; c: time of one draft
run over time of one target run; v: time of one target run on gamma + 1
positions over time of one on a single position.
"""

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
