"""α and factor against temperature, and with top-k and top-p.

    python -m experiments.temperatures --workdir=runs/paper

Expected result: α and the factor fall as the temperature rises; at temperature
1 cutting the tail of both laws (top-k 10, top-p 0.9) brings some of it back.
Time: about two minutes on two cores.
"""

from typing import Any

from experiments import common
from specdec_jax import figures

# Changes of each run; the first has all temperatures.
LAWS: dict[str, dict[str, Any]] = {
    'whole law': {},
    'top_k 10': dict(temperatures=(1.0,), top_k=10),
    'top_p 0.9': dict(temperatures=(1.0,), top_p=0.9),
}

COLUMNS = {
    'draft': common.draft, 'temperature': common.column('temperature', 1),
    'law': common.text('law'), 'γ': common.text('gamma'),
    'α': common.column('alpha'), '± (s.e.)': common.column('alpha_se', 3),
    'accepted / drafted': common.column('acceptance'),
    'tokens a round': common.column('tokens_per_round'),
    'with v': common.column('predicted_with_verify'),
    'factor': common.column('speedup'),
    'BLEU (plain)': common.with_plain('bleu'),
}


def make(lab: common.Lab) -> None:
  studies = {
      law: common.study(lab, 'temperatures',
                        f'temperatures/{law.replace(" ", "_")}', **changes)
      for law, changes in LAWS.items()}
  rows = [{**row, 'law': law} for law, study in studies.items()
          for row in study.settings]
  picture = common.save_svg(lab, 'temperatures', lambda dark: (
      figures.svg_against([r for r in rows if r['law'] == 'whole law'],
                          'temperature', 'temperature', dark)))
  common.publish(lab, 'temperatures', 'α and factor against temperature', [
      common.Table('lines', COLUMNS, rows), picture,
      common.conditions(studies['whole law'])])


if __name__ == '__main__':
  common.main(make)
