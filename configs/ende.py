"""English to German: the paper's main experiment.

    python -m specdec_jax.main --config=configs/ende.py:mini \\
        --workdir=runs/ende_mini

Variants: `mini` runs the ladder that ships with the package on any machine
(two CPU cores: under 10 minutes). Parts after the variant override options, as
in `mini,sentences=8`; what is not known is refused.
"""

from typing import Any

import ml_collections

VARIANTS: dict[str, dict[str, Any]] = {
    'mini': dict(
        task='ende_mini', prefix='', sentences=32,
        target='mini/target', drafts=('mini/small', 'mini/base', 'mini/large'),
        gammas=(1, 3, 5, 7), max_new_tokens=64, source_buckets=(64,),
        repeats=2),
}


def get_config(arg: str = 'mini') -> ml_collections.ConfigDict:
  variant, *parts = arg.split(',')
  if variant not in VARIANTS:
    raise ValueError(
        f'config variant {variant!r}: allowed are {", ".join(VARIANTS)}')
  options: dict[str, Any] = dict(
      temperatures=(0.0, 1.0), top_k=0, top_p=1.0, batch_size=1, seed=0,
      dtype='float32', matmul_precision='highest')
  options.update(VARIANTS[variant])
  for part in parts:
    name, _, value = part.partition('=')
    if name not in options or not isinstance(options[name], int | str):
      raise ValueError(f'config part {part!r}: allowed are NAME=VALUE with one '
                       f'of {sorted(options)}')
    options[name] = type(options[name])(value)
  return ml_collections.ConfigDict(options).lock()
