"""Records to `settings.jsonl` and `report.md`; cannot run a model.

    python -m specdec_jax.report --workdir=runs/ende_mini
"""

from collections.abc import Callable, Sequence
import json
import pathlib
import sys
from typing import Any

from absl import app
from absl import flags

from specdec_jax import metrics
from specdec_jax import records

Row = dict[str, Any]

MISSING = 'n/a'


def number(value: float | None, digits: int = 2) -> str:
  """A number as printed everywhere; what was not measured is `n/a`."""
  return MISSING if value is None else f'{value:.{digits}f}'


def cell(text: str) -> str:
  """Text that cannot leave its table cell."""
  return text.replace('\\', '\\\\').replace('|', '\\|').replace('\n', ' ')


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  """A Markdown table; the first column is text, the others are numbers."""
  rule = ['---', *['---:'] * (len(header) - 1)]
  return '\n'.join(
      '| ' + ' | '.join(line) + ' |' for line in (header, rule, *rows)) + '\n'


def _range(low: float | None, high: float | None) -> str:
  return MISSING if low is None else f'{number(low)}–{number(high)}'


def _score(row: Row, name: str) -> str:
  """A score and, in brackets, that of plain decoding."""
  return (f'{number(row.get(name), 1)} ({number(row.get(name + "_plain"), 1)})'
          if name in row else '')


_COLUMNS: dict[str, Callable[[Row], str]] = {
    'draft': lambda s: cell(s['draft']),
    'γ': lambda s: str(s['gamma']),
    'α': lambda s: number(s['alpha']),
    '± (s.e.)': lambda s: number(s['alpha_se'], 3),
    'accepted / drafted': lambda s: number(s['acceptance']),
    'tokens a round': lambda s: number(s['tokens_per_round']),
    'c': lambda s: number(s['c'], 3),
    'v': lambda s: number(s['verify_ratio']),
    'Thm 3.8': lambda s: number(s['predicted_thm38']),
    'with v': lambda s: number(s['predicted_with_verify']),
    'measured': lambda s: number(s['speedup']),
    'repeats': lambda s: _range(s['speedup_low'], s['speedup_high']),
    'with encoder': lambda s: number(s['speedup_with_encoder']),
    'BLEU (plain)': lambda s: _score(s, 'bleu'),
    'ROUGE-1': lambda s: _score(s, 'rouge1'),
    'ROUGE-2': lambda s: _score(s, 'rouge2'),
    'ROUGE-Lsum': lambda s: _score(s, 'rougeLsum'),
    'same ids': lambda s: (
        '–' if s['identical'] is None
        else f'{s["identical"]} of {s["sentences"]}'),
}

def settings_table(rows: Sequence[Row]) -> str:
  """Settings as a table; a column that is empty everywhere is left out."""
  columns = {name: [show(row) for row in rows]
             for name, show in _COLUMNS.items()}
  columns = {name: cells for name, cells in columns.items() if any(cells)}
  return table(list(columns), list(zip(*columns.values(), strict=True)))


_LEGEND = """\
α: mean of Σ min(p, q) over the tokens that the target generated (paper, section
3.1), with its standard error over sentences. c: time of a draft step over that
of a target step. v: time of a target call on γ + 1 positions over one on a
single position; Theorem 3.8 takes v = 1. Measured: total plain decoder seconds
over total speculative decoder seconds, plain and speculative in turn in one
process, the device waited for, compilation outside; `repeats` is the smallest
and largest ratio of a single repeat. `with encoder` adds the encoders' seconds
(the draft's too). accepted / drafted falls with γ by itself and ranks nothing.
"""


def verdicts(rows: Sequence[Row]) -> str:
  """One sentence a temperature: where speculation was faster, where slower."""
  lines = []
  for temperature in dict.fromkeys(row['temperature'] for row in rows):
    known = [row for row in rows if row['temperature'] == temperature
             and row['speedup'] is not None]
    if not known:
      lines.append(f'- Temperature {temperature:g}: nothing was measured.')
      continue
    faster = [_name(row) for row in known if row['speedup'] >= 1]
    slower = [_name(row) for row in known if row['speedup'] < 1]
    best = max(known, key=lambda row: row['speedup'])
    lines.append(
        f'- Temperature {temperature:g}: best {_name(best)}. '
        f'Faster than plain: {", ".join(faster) or "none"}. '
        f'**Slower than plain: {", ".join(slower) or "none"}.**')
  return '\n'.join(lines) + '\n'


def _name(row: Row) -> str:
  return (f'{cell(row["draft"])} γ={row["gamma"]} '
          f'({number(row["speedup"])}×)')


def conditions(rows: Sequence[Row]) -> str:
  """What the figures rest on: counts, cuts, units."""
  cut = max((row['cut_by_length'] for row in rows), default=0)
  sources = max((row['cut_sources'] for row in rows), default=0)
  first = rows[0]
  return (
      f'{first["sentences"]} sentences of `{cell(first["task"])}`, each '
      f'decoded {first["repeats"]} times with every setting, batch '
      f'{first["batch_size"]}. Up to {cut} outputs of a setting were cut by '
      f'the budget, {sources} sources were cut to the largest bucket. Plain '
      f'decoding: {number(first["tokens_per_second_plain"], 0)} output tokens '
      'a second in the decoder.\n')


def compile_line(costs: Sequence[Row]) -> str:
  seconds = sum(row['compile_seconds'] for row in costs)
  return (f'Compilation and warm-up, outside every figure: '
          f'{number(seconds, 0)} s.\n')


def markdown(
    config: Row, rows: Sequence[Row], costs: Sequence[Row]
) -> str:
  """The whole report."""
  where = config['environment']
  parts = [
      '# Speculative decoding, measured\n',
      f'Target `{cell(config["config"]["target"])}` on '
      f'{cell(where["device"])} ({cell(where["processor"])}, {where["cores"]} '
      f'cores), {where["dtype"]}, jax {where["versions"]["jax"]}, commit '
      f'{where["commit"][:12]}.\n']
  if not rows:
    return '\n'.join([*parts, 'No setting has been decoded yet.\n'])
  parts += [verdicts(rows), conditions(rows), compile_line(costs)]
  for temperature in dict.fromkeys(row['temperature'] for row in rows):
    parts += [f'## Temperature {temperature:g}\n', settings_table(
        [row for row in rows if row['temperature'] == temperature])]
  parts += [
      '## How to read this\n', _LEGEND,
      '## Not comparable with the paper\n',
      'The paper measured T5-XXL on one TPU-v4 against the T5X codebase; these '
      'are other models on another machine, against this program\'s own plain '
      'decoding. α, c and the formulas carry over, seconds and factors do '
      'not.\n',
      '## Configuration\n',
      '```json\n' + json.dumps(config, indent=2) + '\n```\n']
  return '\n'.join(parts)


def write(workdir: pathlib.Path) -> None:
  """Makes `settings.jsonl` and `report.md` from the records of a workdir."""
  path = workdir / 'config.json'
  try:
    config = json.loads(path.read_text('utf-8'))
  except (OSError, ValueError) as error:
    raise records.WorkdirError(f'{path}: not readable: {error}') from error
  examples = records.read(workdir / 'examples.jsonl')
  costs = records.read(workdir / 'costs.jsonl')
  rows = metrics.settings(examples, costs, config['config']['scores'])
  records.replace_rows(workdir / 'settings.jsonl', rows)
  records.replace(workdir / 'report.md', markdown(config, rows, costs))


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments {argv[1:]}')
  try:
    write(pathlib.Path(flags.FLAGS.workdir))
  except records.WorkdirError as error:
    sys.exit(f'error: {error}')


if __name__ == '__main__':
  flags.DEFINE_string('workdir', None, 'Folder of a run.', required=True)
  app.run(main)
