"""`gamma=auto` against the best fixed gamma and the oracle, draft by draft.

    python -m experiments.bench.adaptive --json=adaptive.jsonl
    python -m experiments.bench.adaptive --sentences=3 --drafts=mini/small \\
        --tasks=ende_mini --repeats=1             # to try it

A run of the main job for each task, every gamma and `auto` in turn on the same
sentences, batch 1, temperature 0. `auto_over_best` is total seconds with the
gamma that was fastest, plain decoding included, over those with `auto`; the
best is known only afterwards and is the luckiest of five, `auto` is found on
the first 32 sentences, before (`auto is`: 0 for plain decoding, a gamma, or
`auto` for one that each sentence chooses round by round). `oracle` is the
factor of an oracle that stops each round before the first draft that would be
refused (section 3.5, with v = 1): no choice of gamma passes it. With --workdir
a run goes on where it stopped. Two cores: about ten minutes.
"""

from collections.abc import Sequence
import pathlib
import tempfile

from absl import flags

from configs import ende
from experiments import common as tables
from experiments.bench import common
from specdec_jax import config as config_lib
from specdec_jax import metrics
from specdec_jax import run
from specdec_jax import theory

DRAFTS = ('mini/small', 'mini/base', 'mini/large', 'mini/bigram', 'copy')
TASKS = ('ende_mini', 'ende_mini_packages')
AUTO = config_lib.AUTO


def study(
    workdir: pathlib.Path, task: str, drafts: Sequence[str], sentences: int,
    repeats: int, target: str = 'mini/target',
    gammas: Sequence[int] = config_lib.AUTO_GAMMAS
) -> tables.Study:
  """Runs what is missing of one task's run and reads it."""
  options = ende.get_config('mini')
  with options.unlocked():
    options.update(
        task=task, target=target, drafts=tuple(drafts), sentences=sentences,
        repeats=repeats, temperatures=(0.0,), gammas=(*gammas, AUTO))
  run.run(options, workdir)
  return tables.read(workdir)


def line(
    draft: str, examples: Sequence[common.Row], c: float
) -> common.Row:
  """The line of one draft, from what was decoded with each gamma.

  Example: plain 2.0 s, gamma 3 1.0 s and `auto` 1.25 s give 0.8 of the best.
  """
  by_gamma = {
      gamma: [row for row in examples if row['gamma'] == gamma]
      for gamma in dict.fromkeys(row['gamma'] for row in examples)}
  plain, auto = by_gamma[0], by_gamma[AUTO]
  factors = {gamma: metrics.speedup(plain, rows, 'decoder_seconds') or 0.0
             for gamma, rows in by_gamma.items()}
  best = max((g for g in factors if g != AUTO), key=factors.__getitem__)
  low, high = metrics.spread(by_gamma[best], auto)
  alpha, _ = metrics.alpha(plain)
  return {
      'draft': draft, 'alpha': alpha, 'c': c,
      'factors': {str(g): f for g, f in factors.items()}, 'best_gamma': best,
      'best_fixed': factors[best], 'auto': factors[AUTO],
      'auto_over_best': metrics.speedup(
          by_gamma[best], auto, 'decoder_seconds'),
      'auto_over_best_low': low, 'auto_over_best_high': high,
      'oracle': (None if alpha is None
                 else float(theory.oracle_factor(alpha, c))),
      'identical': metrics.identical(plain, auto),
      'sentences': len({row['index'] for row in auto})}


def rows(study: tables.Study) -> list[common.Row]:
  """A line a draft; from the examples, since settings have no `auto`."""
  return [
      {'task': study.config['config']['task'], 'auto_is': cost['fastest']}
      | line(cost['draft'], [row for row in study.examples
                             if row['draft'] == cost['draft']], cost['c'])
      for cost in study.costs]


COLUMNS = {
    'task': tables.text('task'), 'draft': tables.text('draft'),
    'α': tables.column('alpha'), 'c': tables.column('c', 3),
    'best γ': tables.text('best_gamma'),
    'best fixed': tables.column('best_fixed'),
    'auto is': tables.text('auto_is'), 'auto': tables.column('auto'),
    'auto over best': lambda row: '{} ({} to {})'.format(*(
        tables.column(f'auto_over_best{x}', 3)(row)
        for x in ('', '_low', '_high'))),
    'oracle': tables.column('oracle'),
    'identical': lambda row: f'{row["identical"]} of {row["sentences"]}'}


def main() -> None:
  options = flags.FLAGS
  with tempfile.TemporaryDirectory() as scratch:
    folder = pathlib.Path(options.workdir or scratch)
    found = []
    for task in options.tasks:
      found += rows(study(folder / task, task, options.drafts,
                          options.sentences, options.repeats))
  common.publish('gamma=auto against the best fixed gamma', COLUMNS, found,
                 options.json)


if __name__ == '__main__':
  flags.DEFINE_string('workdir', None, 'Folder that keeps the runs.')
  flags.DEFINE_list('tasks', list(TASKS), 'Data sets.')
  flags.DEFINE_list('drafts', list(DRAFTS), 'Models, tables or rules.')
  flags.DEFINE_integer('sentences', 48, 'Of each task.', 1)
  flags.DEFINE_integer('repeats', 2, 'Times each is decoded.', 1)
  common.main(main)
