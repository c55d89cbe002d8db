"""Table 1: the theory's operations and speed at c = c_hat = 0.

    python -m experiments.table1

Expected result: all twelve numbers equal to print. Time: at once.
"""

from experiments import common
from experiments import paper_tables
from specdec_jax import theory


def lines() -> list[common.Row]:
  return [
      {**line._asdict(),
       'operations_formula': float(
           theory.operations_factor(line.alpha, line.gamma, 0)),
       'speed_formula': float(
           theory.walltime_factor(line.alpha, line.gamma, 0))}
      for line in paper_tables.TABLE_1]


def make(lab: common.Lab) -> None:
  rows = lines()
  equal = sum(round(row[f'{name}_formula'], 2) == row[name]
              for row in rows for name in ('operations', 'speed'))
  table = common.Table('lines', {
      'α': common.column('alpha', 1), 'γ': common.text('gamma'),
      'operations (Thm 3.11)': common.column('operations_formula'),
      'printed': common.column('operations'),
      'speed (Thm 3.8)': common.column('speed_formula'),
      'printed ': common.column('speed')}, rows)
  common.publish(
      lab, 'table1', 'Table 1: operations and speed at c = 0',
      [table, f'{equal} of {2 * len(rows)} numbers are equal to print.\n'])


if __name__ == '__main__':
  common.main(make, needs_workdir=False)
