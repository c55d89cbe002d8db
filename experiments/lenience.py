"""Lenience (appendix A.5): what quality buys, at both temperature rules.

    python -m experiments.lenience --workdir=runs/paper

Expected result: for l = 1, 0.5, 0.3 and 0.1 acceptance and factor that rise as
l falls, with BLEU beside them. l < 1 is lossy: its output is not the target's.
Time: about three minutes on two cores.
"""

from experiments import common
from experiments import paper_tables

LENIENCES = (1.0, 0.5, 0.3, 0.1)


def lines(settings: list[common.Row]) -> list[common.Row]:
  rows = []
  for row in settings:
    lenience, role = row.get('lenience', 1.0), common.role(row)
    alpha = paper_tables.LENIENCE_ALPHA.get(role, {}).get(lenience)
    if row['temperature'] == 0:
      alpha = (paper_tables.LENIENCE_GREEDY.get(lenience, (None,))[0]
               if role == 'small' else None)
    elif row['temperature'] != 1:
      alpha = None
    rows.append({**row, 'lenience': lenience, 'printed_alpha': alpha})
  return rows


COLUMNS = {
    'draft': common.draft, 'temperature': common.column('temperature', 1),
    'l': common.column('lenience', 1), 'γ': common.text('gamma'),
    'α': common.column('alpha'), 'paper α': common.column('printed_alpha'),
    'accepted / drafted': common.column('acceptance'),
    'tokens a round': common.column('tokens_per_round'),
    'factor': common.column('speedup'),
    'BLEU (plain)': common.with_plain('bleu'),
    'exact': lambda row: 'yes' if row['lenience'] == 1 else '**lossy**',
}


def make(lab: common.Lab) -> None:
  studies = [common.study(lab, 'lenience', f'lenience/{l:g}', lenience=l)
             for l in LENIENCES]
  rows = sorted(
      (row for study in studies for row in lines(study.settings)),
      key=lambda row: (row['temperature'], row['draft'], -row['lenience']))
  common.publish(lab, 'lenience', 'Lenience: faster and no longer exact', [
      common.Table('lines', COLUMNS, rows), common.conditions(studies[0]),
      'At temperature 1 a draft is accepted with probability min(1, p / (l q)),'
      ' so no token comes more often than p / l; at temperature 0 where '
      'p ≥ l max p. "paper α" is T5-XXL on EnDe with the draft of the same '
      'name (γ 8 at temperature 0).\n'])


if __name__ == '__main__':
  common.main(make)
