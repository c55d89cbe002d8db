"""Summaries of CNN/Daily Mail articles: the paper's second experiment.

    python -m specdec_jax.main \\
        --config=configs/cnndm.py:t5_1_0,checkpoints=DIR,task=tsv:FILE \\
        --workdir=runs/cnndm

Variants `t5_1_0`, `t5_1_1` and `flan`, each with `checkpoints=DIR`; the data is
`tsv:PATH` or `jsonl:PATH` (article, highlights), or TFDS where that is
installed. One accelerator with 32 GB; not timed by us yet.
"""

import ml_collections

from configs import study

PAPER = dict(
    task='tfds:cnn_dailymail', prefix='summarize: ', sentences=1000,
    max_new_tokens=256, source_buckets=(512, 1024, 2048), dtype='bfloat16',
    scores=('bleu', 'rouge'))


def get_config(arg: str = 't5_1_0') -> ml_collections.ConfigDict:
  return study.build(arg, 'cnndm', None, PAPER)
