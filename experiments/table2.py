"""Table 2: speed of each draft against plain decoding, beside the paper's.

    python -m experiments.table2 --workdir=runs/paper

Runs or goes on with `runs/paper/grid`; a workdir of `specdec_jax.main` is read
as it is. Expected result: on two cores a factor a little above 1 for the
smallest draft; the ids of temperature 0 identical. Time: four minutes, or
seconds where the grid is there.
"""

from experiments import common
from specdec_jax import figures
from specdec_jax.report import paper


def lines(settings: list[common.Row]) -> list[common.Row]:
  """The fastest measured γ of each draft and temperature, with print."""
  rows = []
  for row in figures.best_measured(settings):
    printed = paper.find(row['task'], row['draft'], row['temperature'])
    rows.append({**row, **{
        f'printed_{name}': getattr(printed, name, None)
        for name in ('gamma', 'alpha', 'speed')}})
  return rows


def _same(row: common.Row) -> str:
  same = row.get('identical')
  return '–' if same is None else f'{same} of {row["sentences"]}'


COLUMNS = {
    'draft': common.draft, 'temperature': common.column('temperature', 1),
    'γ': common.text('gamma'), 'α': common.column('alpha'),
    'factor': common.column('speedup'),
    'lowest repeat': common.column('speedup_low'),
    'highest': common.column('speedup_high'),
    'with encoder': common.column('speedup_with_encoder'),
    'tokens a second': common.column('tokens_per_second', 0),
    'plain': common.column('tokens_per_second_plain', 0),
    'same ids': _same, 'BLEU (plain)': common.with_plain('bleu'),
    'paper γ': common.column('printed_gamma', 0),
    'paper α': common.column('printed_alpha'),
    'paper speed': common.column('printed_speed', 1),
}


def make(lab: common.Lab) -> None:
  grid = common.grid(lab)
  common.publish(lab, 'table2', 'Table 2: speed against plain decoding', [
      common.Table('lines', COLUMNS, lines(grid.settings)),
      common.conditions(grid),
      'γ is the fastest of those measured, so the factor is the best of '
      'several and a little too high by that. "paper" is T5-XXL with the '
      'T5 1.1 draft of the same name, on CNNDM for summaries and on EnDe '
      'otherwise; n/a where it has none.\n'])


if __name__ == '__main__':
  common.main(make)
