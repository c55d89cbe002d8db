"""The experiments' runs, one a study, all on the same ladder.

    python -m specdec_jax.main --config=configs/paper.py:grid \\
        --workdir=runs/paper/grid

The scripts of `experiments` run these and read them; `experiments.all` runs all
of them in under 30 minutes on two CPU cores. Studies: `grid` (Tables 2 and 4,
the figures), `table3`, `lenience`, `batch_sweep`, `domains`, `temperatures`.
Parts override options, as in `grid,sentences=8`; `ladder=DIR` takes target and
drafts from DIR/target, DIR/small and so on. What is not known is refused.
"""

from typing import Any

import ml_collections

from configs import ende
from configs import study

STUDIES: dict[str, dict[str, Any]] = {
    'grid': dict(repeats=2),
    # Only plain decoding counts here; one gamma is the least that a run takes.
    'table3': dict(
        drafts=('mini/unigram', 'mini/bigram', 'mini/small', 'mini/base',
                'mini/large', 'lookup', 'copy', 'uniform'),
        gammas=(1,), batch_size=16, repeats=1),
    'lenience': dict(
        drafts=('mini/small', 'mini/base'), gammas=(3,), sentences=32,
        repeats=1),
    'batch_sweep': dict(
        drafts=('mini/small',), temperatures=(0.0,), gammas=(3,), sentences=32,
        repeats=2),
    'domains': dict(
        drafts=('mini/small', 'mini/base'), temperatures=(0.0,), gammas=(3, 5),
        sentences=32, repeats=2),
    'temperatures': dict(
        drafts=('mini/small',), temperatures=(0.0, 0.3, 0.7, 1.0, 1.5),
        gammas=(3,), sentences=32, repeats=1),
}


def get_config(arg: str = 'grid') -> ml_collections.ConfigDict:
  name, *parts = arg.split(',')
  if name not in STUDIES:
    raise ValueError(f'study {name!r}: allowed are {", ".join(STUDIES)}')
  folder = [p for p in parts if p.startswith('ladder=')]
  rest = [p for p in parts if p not in folder]
  options = {**ende.MINI, **STUDIES[name]}
  for part in folder:
    ladder = part.partition('=')[2].rstrip('/')
    options['target'], *drafts = [
        f'{ladder}/{n.removeprefix("mini/")}' if n.startswith('mini/') else n
        for n in (options['target'], *options['drafts'])]
    options['drafts'] = tuple(drafts)
  return study.build(','.join(['mini', *rest]), 'ende', options, {})
