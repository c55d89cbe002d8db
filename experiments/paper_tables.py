"""Printed numbers of the paper; Tables 2 and 4 stand in `report.paper`.

Leviathan, Kalman and Matias (ICML 2023). Only figures: what they mean stands
with the scripts that print them.
"""

from typing import NamedTuple


class Simplified(NamedTuple):
  """Table 1: c = c_hat = 0."""
  alpha: float
  gamma: int
  operations: float
  speed: float


class Alpha(NamedTuple):
  """Table 3: alpha at temperature 0 and 1."""
  target: str
  draft: str
  greedy: float
  sampled: float


TABLE_1 = (
    Simplified(0.6, 2, 1.53, 1.96),
    Simplified(0.7, 3, 1.58, 2.53),
    Simplified(0.8, 2, 1.23, 2.44),
    Simplified(0.8, 5, 1.63, 3.69),
    Simplified(0.9, 2, 1.11, 2.71),
    Simplified(0.9, 10, 1.60, 6.86),
)

TABLE_3 = (
    Alpha('T5-XXL EnDe', 'unigram', 0.08, 0.07),
    Alpha('T5-XXL EnDe', 'bigram', 0.20, 0.19),
    Alpha('T5-XXL EnDe', 'small', 0.75, 0.62),
    Alpha('T5-XXL EnDe', 'base', 0.80, 0.68),
    Alpha('T5-XXL EnDe', 'large', 0.82, 0.71),
    Alpha('T5-XXL CNNDM', 'unigram', 0.13, 0.08),
    Alpha('T5-XXL CNNDM', 'bigram', 0.23, 0.16),
    Alpha('T5-XXL CNNDM', 'small', 0.65, 0.53),
    Alpha('T5-XXL CNNDM', 'base', 0.73, 0.55),
    Alpha('T5-XXL CNNDM', 'large', 0.74, 0.56),
    Alpha('GPT-like 97M (lm1b)', 'unigram', 0.03, 0.03),
    Alpha('GPT-like 97M (lm1b)', 'bigram', 0.05, 0.05),
    Alpha('GPT-like 97M (lm1b)', 'GPT-like 6M', 0.88, 0.89),
    Alpha('LaMDA 137B', '100M', 0.61, 0.57),
    Alpha('LaMDA 137B', '2B', 0.71, 0.71),
    Alpha('LaMDA 137B', '8B', 0.75, 0.74),
)

# EnDe with a bigram draft: alpha, gamma, c and the stated factor.
BIGRAM_EXAMPLE = (0.2, 3, 0.0, 1.25)

# Appendix A.5, EnDe, temperature 1: alpha by lenience.
LENIENCE_ALPHA = {
    'unigram': {1.0: 0.07, 0.5: 0.10, 0.3: 0.11, 0.1: 0.16},
    'bigram': {1.0: 0.19, 0.5: 0.23, 0.3: 0.25, 0.1: 0.32},
    'small': {1.0: 0.62, 0.5: 0.71, 0.3: 0.76, 0.1: 0.84},
    'base': {1.0: 0.68, 0.5: 0.80, 0.3: 0.83, 0.1: 0.90},
}

# The same at temperature 0, small, gamma 8, c 0.015: (alpha, factor).
LENIENCE_GREEDY = {
    1.0: (0.75, 3.3), 0.5: (0.75, 3.3), 0.3: (0.80, 3.9), 0.1: (0.87, 4.9)}


def alpha(target: str, draft: str) -> Alpha | None:
  """The line of Table 3, None where the paper has none."""
  return next((a for a in TABLE_3 if (a.target, a.draft) == (target, draft)),
              None)
