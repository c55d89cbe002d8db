"""What the experiments share: run a study, read it, publish its tables.

Every script has `make(lab)`; `lab` says where to work and which options to
change. A study's run lies in a folder of its own below the workdir, so that it
goes on where it stopped and several scripts can read it.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import json
import math
import pathlib
import re
import sys
from typing import Any

from absl import app
from absl import flags
from absl import logging

from configs import paper
from specdec_jax import figures
from specdec_jax import records
from specdec_jax import report
from specdec_jax.report import paper as printed

Row = dict[str, Any]
Column = Callable[[Row], str]

MISSING = 'n/a'

# Why a figure may be missing, by its key.
REASONS = {
    'alpha': 'no token of the target was verified',
    'acceptance': 'no draft was verified',
    'tokens_per_round': 'nothing was decoded',
    'c': 'costs.jsonl has no line for this draft and temperature',
    'verify_ratio': 'costs.jsonl has no target time for this γ',
    'speedup': 'plain or speculative seconds are missing',
    'bleu': 'the sentences have no references',
}


@dataclasses.dataclass(frozen=True)
class Lab:
  """Where the experiments work.

  Attributes:
    workdir: for runs and tables; None prints only.
    options: parts of a config that every study takes, as in
      'ladder=DIR,task=tsv:FILE,sentences=8' (see `configs.paper`).
  """
  workdir: pathlib.Path | None
  options: str = ''

  @property
  def folder(self) -> pathlib.Path:
    if self.workdir is None:
      raise ValueError('workdir=None: allowed is a folder')
    return self.workdir


@dataclasses.dataclass(frozen=True)
class Study:
  """The records of one run; what is not a finite number is None."""
  folder: pathlib.Path
  config: Row
  settings: list[Row]
  examples: list[Row]
  costs: list[Row]


def _finite(row: Row) -> Row:
  return {key: None if isinstance(value, float) and not math.isfinite(value)
          else value for key, value in row.items()}


def read(folder: pathlib.Path) -> Study:
  """The records of a run."""
  def rows(name):
    return [_finite(row) for row in records.read(folder / f'{name}.jsonl')]
  config = json.loads((folder / 'config.json').read_text('utf-8'))
  return Study(
      folder, config, rows('settings'), rows('examples'), rows('costs'))


def config(lab: Lab, name: str) -> Any:
  """Options of a study; those of `lab` go before those of `configs.paper`."""
  return paper.get_config(','.join(filter(None, (name, lab.options))))


def study(
    lab: Lab, name: str, folder: str | None = None, **changes: Any
) -> Study:
  """Runs what is missing of a study of `configs.paper` and reads it.

  Args:
    folder: below the workdir, if it should not be the study's name.
    changes: options of this run alone; they go before all others.
  """
  options = config(lab, name)
  with options.unlocked():
    options.update(changes)
  path = lab.folder / (folder or name)
  from specdec_jax import run  # here: theory alone should print at once
  run.run(options, path)
  return read(path)


def grid(lab: Lab) -> Study:
  """The run behind Tables 2 and 4 and the figures.

  A workdir that is itself a run (of `specdec_jax.main`) is read as it is.
  """
  if (lab.folder / 'examples.jsonl').exists():
    report.write(lab.folder)
    return read(lab.folder)
  return study(lab, 'grid')


def cell(text: str) -> str:
  """Text of others on one line of Markdown, in which nothing is markup."""
  return re.sub(r'([\\`*|<>\[\]])', r'\\\1', ' '.join(text.split()))


def column(key: str, digits: int = 2) -> Column:
  """Shows a number of a row; what was not measured is n/a."""
  def show(row):
    value = row.get(key)
    known = value is not None and math.isfinite(value)
    return f'{value:.{digits}f}' if known else MISSING
  return show


def text(key: str) -> Column:
  """Shows a text or a whole number of a row."""
  return lambda row: cell(str(row[key]))


def draft(row: Row) -> str:
  """A draft's name, marked where its row is not exact and measured."""
  kind = figures.kind(row)
  name = cell(row['draft'])
  return name if kind == 'measured' else f'{name} ({kind})'


def with_plain(key: str, digits: int = 1) -> Column:
  """A score and, in brackets, that of plain decoding."""
  return lambda row: (
      f'{column(key, digits)(row)} ({column(f"{key}_plain", digits)(row)})')


def role(row: Row) -> str:
  """small, base, ...: what the paper calls a draft of this name."""
  return printed.role(row['draft']) or row['draft'].rstrip('/').split('/')[-1]


@dataclasses.dataclass(frozen=True)
class Table:
  """Rows and how each column shows them."""
  name: str
  columns: Mapping[str, Column]
  rows: Sequence[Row]

  def markdown(self) -> str:
    if not self.rows:
      return f'{MISSING}: nothing was measured here.\n'
    rule = ['---', *['---:'] * (len(self.columns) - 1)]
    lines = [list(self.columns), rule, *(
        [show(row) for show in self.columns.values()] for row in self.rows)]
    page = ''.join(f'| {" | ".join(line)} |\n' for line in lines)
    return '\n'.join(filter(None, (page, self.gaps())))

  def gaps(self) -> str:
    """What is missing, and why."""
    missing = {key: sum(key in row and row[key] is None for row in self.rows)
               for key in REASONS}
    return ''.join(
        f'{MISSING}: {key} in {count} of {len(self.rows)} lines, because '
        f'{REASONS[key]}.\n' for key, count in missing.items() if count)


def conditions(study: Study) -> str:
  """One line: where and how a run was measured."""
  known = {**study.config['environment'], **study.config['config']}

  def say(name):
    return cell(str(known.get(name, f'unknown {name}')))
  count = max((row['sentences'] for row in study.settings), default=0)
  return (
      f'Measured: target {say("target")}, {count} sentences of {say("task")}, '
      f'{say("repeats")} times, batch {say("batch_size")}, on {say("device")} '
      f'({say("processor")}, {say("cores")} cores), {say("dtype")}, commit '
      f'{say("commit")[:12]}. Factors are against this program\'s own plain '
      'decoding; the paper\'s are against T5X on a TPU-v4.\n')


def publish(
    lab: Lab, name: str, title: str, parts: Sequence[str | Table]
) -> None:
  """Prints text and tables; with a workdir also NAME.md and NAME.json."""
  page = '\n'.join([f'# {title}\n', *(
      part if isinstance(part, str) else part.markdown() for part in parts)])
  print(page, flush=True)
  if lab.workdir is None:
    return
  lab.workdir.mkdir(parents=True, exist_ok=True)
  tables = {part.name: [_finite(row) for row in part.rows]
            for part in parts if isinstance(part, Table)}
  records.replace(lab.workdir / f'{name}.md', page)
  records.replace(
      lab.workdir / f'{name}.json',
      json.dumps({'title': title, **tables}, indent=1, ensure_ascii=False,
                 allow_nan=False) + '\n')


def save_svg(
    lab: Lab, name: str, draw: Callable[[bool], str]
) -> str:
  """Writes a figure for light and dark pages; returns Markdown that shows it.

  Args:
    draw: gives the SVG text; its argument says whether the page is dark.
  """
  folder = lab.folder / 'figures'
  folder.mkdir(parents=True, exist_ok=True)
  for style, dark in (('light', False), ('dark', True)):
    records.replace(folder / f'{name}.{style}.svg', draw(dark))
  return f'![{name}](figures/{name}.light.svg)\n'


def main(make: Callable[[Lab], None], needs_workdir: bool = True) -> None:
  """The command line of a script."""
  flags.DEFINE_string(
      'workdir', None, 'Folder for runs and tables.', required=needs_workdir)
  flags.DEFINE_string(
      'options', '', 'Parts of the config, as in ladder=DIR,sentences=8.')

  def start(argv):
    if len(argv) > 1:
      raise app.UsageError(f'unexpected arguments {argv[1:]}')
    logging.set_verbosity(logging.WARNING)
    given = flags.FLAGS.workdir
    try:
      make(Lab(given and pathlib.Path(given), flags.FLAGS.options))
    except (ValueError, FloatingPointError) as error:
      sys.exit(f'error: {error}')
  app.run(start)
