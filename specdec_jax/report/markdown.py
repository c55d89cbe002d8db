"""The report as Markdown."""

from collections.abc import Sequence
import json
import re

from specdec_jax.report import gather
from specdec_jax.report import tables
from specdec_jax.report import words


def plain(text: str) -> str:
  """Text that Markdown shows as it is, on one line.

  Example: `a|b` and a line end become `a\\|b` and a blank.
  """
  text = re.sub(r'\s+', ' ', text)
  return re.sub(r'([\\`*|<>\[\]#])', r'\\\1', text)


def table(shown: tables.Table) -> str:
  """A Markdown table; lines that are no measurement of ours are in italics."""
  rule = ['---:' if numeric else '---' for numeric in shown.numeric]
  lines = [list(map(plain, shown.header)), rule]
  for line in shown.lines:
    mark = '*' if line.kind == 'printed' else ''
    lines.append([f'{mark}{plain(cell.text)}{mark}' for cell in line.cells])
  return '\n'.join('| ' + ' | '.join(cells) + ' |' for cells in lines) + '\n'


def items(texts: Sequence[str]) -> str:
  return ''.join(f'- {plain(text)}\n' for text in texts)


def _fenced(value) -> str:
  """JSON that cannot end its own code block: no line of it starts with ```."""
  return '```json\n' + json.dumps(value, indent=2) + '\n```\n'


def render(jobs: Sequence[gather.Job]) -> str:
  """The whole report."""
  rows = tables.with_place(jobs)
  parts = ['# Speculative decoding, measured\n',
           f'**{plain(words.headline(rows))}**\n']
  parts += [plain(where) + '\n' for where in words.places(jobs)]
  if len(jobs) > 1:
    parts += ['## Runs\n', table(tables.runs(jobs))]
  else:
    parts += [plain(words.conditions(job)) + '\n' for job in jobs]
  if rows:
    parts += ['## Against the paper\n', table(tables.comparison(rows))]
  for (task, target, machine, run, temperature), group in (
      tables.by_place(rows).items()):
    title = f'## Temperature {temperature:g}'
    if len(jobs) > 1:
      title += plain(f': {task}, {target}, {machine} ({run})')
    faster, slower = words.verdict(group)
    parts += [title + '\n', f'{plain(faster)} **{plain(slower)}**\n',
              table(tables.settings('', group, drop=('T',)))]
  parts += ['## How to read this\n', items(words.LEGEND),
            '## Not comparable\n', items(words.warnings(jobs))]
  for job in jobs:
    if job.problems:
      parts += [f'## Missing in {plain(job.name)}\n', items(job.problems)]
  for job in jobs:
    parts += [f'## Configuration of {plain(job.name)}\n', _fenced(
        {'config': job.config, 'environment': job.environment})]
  return '\n'.join(parts)
