"""A worked example: γ = 4, a ceiling on c and a draft by its bytes.

    python -m experiments.worked_example

c = 0.05 is the paper's ceiling in its text, c = 0.115 an 8B draft for a 70B
target if both are bound by reading their weights (8.03 over 70.55). Expected
result: tokens a step and factors for α from 0.5 to 0.9. Time: at once.
"""

import numpy as np

from experiments import common
from specdec_jax import theory

GAMMA = 4
COSTS = (0.05, 0.115)


def lines() -> list[common.Row]:
  return [
      {'alpha': float(alpha),
       'tokens_per_round': float(theory.tokens_per_round(alpha, GAMMA)),
       **{f'factor_{c}': float(theory.walltime_factor(alpha, GAMMA, c))
          for c in COSTS},
       **{f'best_gamma_{c}': int(theory.best_gamma(alpha, c)) for c in COSTS},
       **{f'sure_{c}': float(theory.sure_factor(alpha, c)) for c in COSTS}}
      for alpha in np.round(np.arange(0.5, 0.95, 0.1), 1)]


def make(lab: common.Lab) -> None:
  columns = {'α': common.column('alpha', 1),
             'tokens a step': common.column('tokens_per_round')}
  for c in COSTS:
    columns |= {f'factor, c = {c}': common.column(f'factor_{c}'),
                f'best γ, c = {c}': common.text(f'best_gamma_{c}'),
                f'Cor 3.9, c = {c}': common.column(f'sure_{c}')}
  common.publish(
      lab, 'worked_example', f'Worked example: γ = {GAMMA}', [
          common.Table('lines', columns, lines()),
          'Theory only: nothing here was measured. The best γ is that of Thm '
          '3.8; Cor 3.9 is what some γ gains at least.\n'])


if __name__ == '__main__':
  common.main(make, needs_workdir=False)
