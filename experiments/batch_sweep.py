"""Factor against batch size: what is gained one by one is lost in large ones.

    python -m experiments.batch_sweep --workdir=runs/paper

Expected result: the factor falls, and v rises, as batches grow towards being
bound by arithmetic. Time: about two minutes on two cores.
"""

from experiments import common
from specdec_jax import figures

SIZES = (1, 2, 4, 8, 16, 32)

COLUMNS = {
    'draft': common.draft, 'batch': common.text('batch_size'),
    'γ': common.text('gamma'), 'α': common.column('alpha'),
    'c': common.column('c', 3), 'v': common.column('verify_ratio'),
    'tokens a round': common.column('tokens_per_round'),
    'with v': common.column('predicted_with_verify'),
    'factor': common.column('speedup'),
    'lowest repeat': common.column('speedup_low'),
    'highest': common.column('speedup_high'),
    'tokens a second': common.column('tokens_per_second', 0),
    'plain': common.column('tokens_per_second_plain', 0),
}


def make(lab: common.Lab, sizes: tuple[int, ...] = SIZES) -> None:
  studies = [common.study(lab, 'batch_sweep', f'batch_sweep/{size}',
                          batch_size=size) for size in sizes]
  rows = [row for study in studies for row in study.settings]
  picture = common.save_svg(lab, 'batch_sweep', lambda dark: (
      figures.svg_against(rows, 'batch_size', 'batch size', dark)))
  common.publish(lab, 'batch_sweep', 'Factor against batch size', [
      common.Table('lines', COLUMNS, rows), picture,
      common.conditions(studies[0]),
      'A batch runs until its last sentence ends, so a large one also waits '
      'for the sentence with the fewest accepted drafts: that is not in the '
      'prediction.\n'])


if __name__ == '__main__':
  common.main(make)
