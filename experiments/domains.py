"""Two domains: regular help pages and freer package descriptions.

    python -m experiments.domains --workdir=runs/paper

Expected result: higher α and factor on the text that is easier to predict.
Time: about a minute on two cores.
"""

from experiments import common

TASKS = ('ende_mini', 'ende_mini_packages')

COLUMNS = {
    'draft': common.draft, 'task': common.text('task'),
    'γ': common.text('gamma'),
    'temperature': common.column('temperature', 1),
    'α': common.column('alpha'), '± (s.e.)': common.column('alpha_se', 3),
    'accepted / drafted': common.column('acceptance'),
    'tokens a round': common.column('tokens_per_round'),
    'factor': common.column('speedup'),
    'lowest repeat': common.column('speedup_low'),
    'highest': common.column('speedup_high'),
    'BLEU (plain)': common.with_plain('bleu'),
}


def make(lab: common.Lab, tasks: tuple[str, ...] = TASKS) -> None:
  studies = [common.study(lab, 'domains', f'domains/{i}', task=task)
             for i, task in enumerate(tasks)]
  rows = sorted((row for study in studies for row in study.settings),
                key=lambda row: (row['draft'], row['gamma']))
  common.publish(lab, 'domains', 'Predictable and free text', [
      common.Table('lines', COLUMNS, rows), common.conditions(studies[0])])


if __name__ == '__main__':
  common.main(make)
