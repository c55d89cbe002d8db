"""Table 3: alpha of every draft, n-gram tables and copying included.

    python -m experiments.table3 --workdir=runs/paper --tokens=10000

Expected result: α of each draft at temperature 0 and 1 over at least so many
tokens that the target generated, with the paper's beside. The trained drafts
lie far above the tables. Time: about nine minutes on two cores.
"""

from collections.abc import Sequence

from absl import flags

from experiments import common
from experiments import paper_tables
from specdec_jax import examples as examples_lib

TOKENS = 10_000
# A piece has about four letters; the target may stop before its reference.
LETTERS_A_TOKEN = 5


def sentences_for(
    examples: Sequence[examples_lib.Example], tokens: int
) -> int:
  """How many first sentences should give so many output tokens.

  Judged by the letters of the reference, or of the source where there is none.

  Example: 100 tokens and references of 150 letters each: 4 sentences.
  """
  letters = 0
  for count, example in enumerate(examples, 1):
    letters += len(example.reference or example.source)
    if letters >= LETTERS_A_TOKEN * tokens:
      return count
  return len(examples)


def verified(examples: Sequence[common.Row]) -> dict[tuple, int]:
  """Target tokens that α rests on, by draft and temperature."""
  counts: dict[tuple, int] = {}
  for row in examples:
    key = (row['draft'], row['temperature'])
    counts[key] = counts.get(key, 0) + len(row.get('beta') or ())
  return counts


def lines(
    settings: Sequence[common.Row], tokens: dict[tuple, int]
) -> list[common.Row]:
  """A line a draft; α is that of the target's text, so any γ has it."""
  rows: dict[str, common.Row] = {}
  for setting in settings:
    printed = paper_tables.alpha('T5-XXL EnDe', common.role(setting))
    row = rows.setdefault(setting['draft'], {
        **{key: setting[key] for key in ('draft', 'synthetic', 'lenience')
           if key in setting},
        'printed_0': getattr(printed, 'greedy', None),
        'printed_1': getattr(printed, 'sampled', None)})
    t = f'{setting["temperature"]:g}'
    row |= {
        f'alpha_{t}': setting['alpha'], f'se_{t}': setting['alpha_se'],
        f'tokens_{t}': tokens.get((setting['draft'], setting['temperature']))}
  return list(rows.values())


def columns(settings: list[common.Row]) -> dict[str, common.Column]:
  shown: dict[str, common.Column] = {'draft': common.draft}
  for t in dict.fromkeys(f'{row["temperature"]:g}' for row in settings):
    shown |= {f'α, temperature {t}': common.column(f'alpha_{t}', 3),
              f'± {t}': common.column(f'se_{t}', 3),
              f'tokens {t}': common.column(f'tokens_{t}', 0),
              f'paper {t}': common.column(f'printed_{t}')}
  return shown


def short(tokens: dict[tuple, int], wanted: int) -> str:
  """Says so where fewer tokens were verified than asked for."""
  return ''.join(
      f'**{common.cell(draft)}, temperature {t:g}: {count} target tokens, '
      f'fewer than the {wanted} asked for.**\n'
      for (draft, t), count in tokens.items() if count < wanted)


def make(lab: common.Lab, tokens: int = TOKENS) -> None:
  task = common.config(lab, 'table3')['task']
  count = sentences_for(examples_lib.load(task), tokens)
  study = common.study(lab, 'table3', sentences=count)
  found = verified(study.examples)
  common.publish(lab, 'table3', 'Table 3: α of every draft', [
      common.Table(
          'lines', columns(study.settings), lines(study.settings, found)),
      short(found, tokens), common.conditions(study),
      f'α is the mean of Σ min(p, q) over the target\'s own tokens '
      f'({common.cell(study.config["config"]["task"])}), ± its standard error '
      'over sentences. "paper" is T5-XXL on EnDe.\n'])


if __name__ == '__main__':
  flags.DEFINE_integer('tokens', TOKENS, 'Target tokens to verify.', 1)
  common.main(lambda lab: make(lab, flags.FLAGS.tokens))
