"""English to German: the paper's main experiment.

    python -m specdec_jax.main --config=configs/ende.py:mini \\
        --workdir=runs/ende_mini

Variants:
* `mini`: the ladder that ships with the package, on any machine. Expected: ids
  identical at temperature 0; two CPU cores: under 10 minutes.
* `t5_1_0,checkpoints=DIR`, `t5_1_1,...`, `flan,...`: the paper's grid on public
  or your own checkpoints (see the README), small, base and large as drafts of
  11B. One accelerator with 32 GB; not timed by us yet.

Parts override options, as in `mini,sentences=8`; what is not known is refused.
"""

import ml_collections

from configs import study

MINI = dict(
    task='ende_mini', sentences=48,
    target='mini/target', drafts=('mini/small', 'mini/base', 'mini/large'),
    gammas=(1, 3, 5, 7), max_new_tokens=64, source_buckets=(64,), repeats=3)

# The budget is T5X's length of this task at inference.
PAPER = dict(
    task='wmt14', prefix='translate English to German: ', sentences=1000,
    max_new_tokens=64, source_buckets=(32, 64, 128, 256), dtype='bfloat16')


def get_config(arg: str = 'mini') -> ml_collections.ConfigDict:
  return study.build(arg, 'ende', MINI, PAPER)
