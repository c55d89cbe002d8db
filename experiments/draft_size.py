"""Draft size: why a larger draft is not a better one.

    python -m experiments.draft_size --workdir=runs/paper

Runs or goes on with `runs/paper/grid`; a workdir of `specdec_jax.main` is read
as it is. Expected result: from small to large α rises a little and c a lot; the
last column is the α that a draft would need to be worth its own cost. Time:
four minutes, or seconds where the grid is there.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from experiments import common
from specdec_jax import checkpoint
from specdec_jax import figures
from specdec_jax import t5
from specdec_jax import theory


def parameters(name: str) -> int | None:
  """Parameters of a draft whose folder says its architecture."""
  try:
    return t5.count_params(checkpoint.read_config(name))
  except ValueError:
    return None


def needed_alpha(
    factor: float, c: float, verify_ratios: Mapping[int, float]
) -> float | None:
  """Least α with which a draft of cost c reaches `factor` with some γ.

  Args:
    verify_ratios: v by γ.

  Returns:
    To a thousandth; None if even α = 1 does not reach it.

  Example: factor 2 with γ = 1 only, c = 0 and v = 1 needs α = 1.
  """
  alphas = np.linspace(0, 1, 1001)
  best = np.max([theory.walltime_factor(alphas, gamma, c, v)
                 for gamma, v in verify_ratios.items()], axis=0)
  enough = np.flatnonzero(best >= factor - 1e-12)
  return float(alphas[enough[0]]) if enough.size else None


def lines(settings: Sequence[common.Row]) -> list[common.Row]:
  """The fastest γ of each draft; the first draft's prediction is the mark."""
  marks: dict[float, float | None] = {}
  rows = []
  for row in sorted(figures.best_measured(settings),
                    key=lambda row: row['temperature']):
    costs = {r['gamma']: r['verify_ratio']
             for r in figures.known(settings, 'verify_ratio')
             if r['draft'] == row['draft']
             and r['temperature'] == row['temperature']}
    mark = marks.setdefault(
        row['temperature'], row.get('predicted_with_verify'))
    c = row.get('c')
    needed = (None if mark is None or c is None or not costs
              else needed_alpha(mark, c, costs))
    rows.append({
        **row, 'parameters': parameters(row['draft']), 'needed': needed})
  return rows


COLUMNS = {
    'draft': common.draft, 'temperature': common.column('temperature', 1),
    'parameters': common.column('parameters', 0),
    'γ': common.text('gamma'), 'α': common.column('alpha'),
    'c': common.column('c', 3), 'v': common.column('verify_ratio'),
    'tokens a round': common.column('tokens_per_round'),
    'with v': common.column('predicted_with_verify'),
    'factor': common.column('speedup'),
    'α needed': common.column('needed'),
}


def make(lab: common.Lab) -> None:
  grid = common.grid(lab)
  rows = lines(grid.settings)
  picture = common.save_svg(lab, 'draft_size', lambda dark: (
      figures.svg_factors(grid.settings, dark)))
  common.publish(lab, 'draft_size', 'Why a larger draft is not better', [
      common.Table('lines', COLUMNS, rows), picture,
      common.conditions(grid),
      'Each draft at its fastest γ. "α needed": with this draft\'s c and v, '
      'the least α that would predict the factor predicted for the first '
      'draft; n/a where even α = 1 would not. A draft whose α lies below it '
      'costs more than its acceptance repays.\n'])


if __name__ == '__main__':
  common.main(make)
