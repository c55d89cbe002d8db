"""What stands in which column, for every form of the report."""

from collections.abc import Callable, Sequence
import dataclasses
from typing import Any

from specdec_jax.report import gather
from specdec_jax.report import paper

Row = dict[str, Any]

MISSING = 'n/a'


def number(value: float | None, digits: int = 2) -> str:
  """A number as printed everywhere; what was not measured is `n/a`."""
  return MISSING if value is None else f'{value:.{digits}f}'


@dataclasses.dataclass(frozen=True)
class Cell:
  """A cell as printed, and what it sorts by (None: behind everything)."""
  text: str
  value: float | str | None = None
  missing: bool = False


@dataclasses.dataclass(frozen=True)
class Line:
  """A row; `kind` is `measured`, `doubtful` (lossy, synthetic, random weights)
  or `printed` (the paper's)."""
  cells: tuple[Cell, ...]
  kind: str = 'measured'


@dataclasses.dataclass(frozen=True)
class Table:
  """`numeric[i]` tells whether column i holds numbers."""
  title: str
  header: tuple[str, ...]
  numeric: tuple[bool, ...]
  lines: tuple[Line, ...]


def text(value: Any) -> Cell:
  return Cell(str(value), str(value))


def figure(value: float | None, digits: int = 2, after: str = '') -> Cell:
  if value is None:
    return Cell(MISSING, missing=True)
  return Cell(number(value, digits) + after, value)


def gamma(row: Row) -> Cell:
  """A number, or `auto`."""
  value = row['gamma']
  return figure(value, 0) if isinstance(value, int) else text(value)


def _temperature(value: float) -> Cell:
  return Cell(f'{value:g}', value)


def marks(row: Row) -> list[str]:
  """Why a setting's figures are not those of exact decoding of real models."""
  found = []
  if lenience(row) < 1:
    found.append(f'lossy, lenience {lenience(row):g}')
  if row.get('synthetic') is not None:
    found.append(f'synthetic acceptance {row["synthetic"]}')
  if any('random' in row[side].lower() for side in ('target', 'draft')):
    found.append('random weights')
  return found


def lenience(row: Row) -> float:
  value = row.get('lenience')
  return value if isinstance(value, int | float) else 1.0


def draft(row: Row) -> str:
  """The draft's name with every mark."""
  return ' '.join([row['draft'], *(f'[{mark}]' for mark in marks(row))])


def _spread(row: Row) -> Cell:
  low, high = row['speedup_low'], row['speedup_high']
  if low is None:
    return Cell(MISSING, missing=True)
  return Cell(f'{number(low)}–{number(high)}', low)


def _score(name: str, row: Row) -> Cell | None:
  """A score and, in brackets, that of plain decoding."""
  if name not in row:
    return None
  plain = number(row.get(f'{name}_plain'), 1)
  return Cell(f'{number(row[name], 1)} ({plain})', row[name],
              row[name] is None)


def _identical(row: Row) -> Cell:
  if row['identical'] is None:
    return Cell('–')
  sentences = row['identical'] + row['differing']
  return Cell(f'{row["identical"]} of {sentences}', row['identical'])


# A column with None in every row is left out.
_COLUMNS: dict[str, Callable[[Row], Cell | None]] = {
    'draft': lambda s: text(draft(s)),
    'T': lambda s: _temperature(s['temperature']),
    'γ': gamma,
    'α': lambda s: figure(s['alpha']),
    '± (s.e.)': lambda s: figure(s['alpha_se'], 3),
    'c': lambda s: figure(s['c'], 3),
    'v': lambda s: figure(s['verify_ratio']),
    'Thm 3.8': lambda s: figure(s['predicted_thm38']),
    'with v': lambda s: figure(s['predicted_with_verify']),
    'measured': lambda s: figure(s['speedup']),
    'repeats': _spread,
    'with encoder': lambda s: figure(s['speedup_with_encoder']),
    'accepted / drafted': lambda s: figure(s['acceptance']),
    'tokens a round': lambda s: figure(s['tokens_per_round']),
    'BLEU (plain)': lambda s: _score('bleu', s),
    'ROUGE-1': lambda s: _score('rouge1', s),
    'ROUGE-2': lambda s: _score('rouge2', s),
    'ROUGE-Lsum': lambda s: _score('rougeLsum', s),
    'same ids': _identical,
}
# Only where they tell rows apart.
_PLACE: dict[str, Callable[[Row], Cell | None]] = {
    'task': lambda s: text(s['task']),
    'target': lambda s: text(s['target']),
    'machine': lambda s: text(s['machine']),
    'run': lambda s: text(s['run']),
    'batch': lambda s: figure(s['batch_size'], 0),
}
_TEXTS = {'draft', *_PLACE} - {'batch'}


def with_place(jobs: Sequence[gather.Job]) -> list[Row]:
  """Settings of every job, each with its machine and run."""
  return [{**row, 'machine': job.machine, 'run': job.name}
          for job in jobs for row in job.settings]


def _kind(row: Row) -> str:
  return 'doubtful' if marks(row) else 'measured'


def settings(
    title: str, rows: Sequence[Row], drop: Sequence[str] = ()
) -> Table:
  """Settings, a line each; a column that says nothing is left out."""
  place = {name: show for name, show in _PLACE.items()
           if len({show(row) for row in rows}) > 1}
  columns = {name: [show(row) for row in rows]
             for name, show in {**place, **_COLUMNS}.items()
             if name not in drop}
  columns = {name: cells for name, cells in columns.items() if any(cells)}
  lines = [
      Line(tuple(cell or Cell('') for cell in cells), _kind(row))
      for row, *cells in zip(rows, *columns.values(), strict=True)]
  return Table(title, tuple(columns),
               tuple(name not in _TEXTS for name in columns), tuple(lines))


def by_place(rows: Sequence[Row]) -> dict[tuple, list[Row]]:
  """Rows of one task, target, machine, run and temperature together."""
  groups: dict[tuple, list[Row]] = {}
  for row in rows:
    key = tuple(row[k] for k in (
        'task', 'target', 'machine', 'run', 'temperature'))
    groups.setdefault(key, []).append(row)
  return groups


def counts(job: gather.Job) -> Row:
  """What the figures of a run, one with settings, rest on."""
  first = job.settings[0]
  compiled: list[Any] = [row.get('compile_seconds') for row in job.costs]
  return {
      'run': job.name, 'task': first['task'], 'sentences': first['sentences'],
      'repeats': first['repeats'], 'batch': first['batch_size'],
      'cut outputs': max(row['cut_by_length'] for row in job.settings),
      'cut sources': max(row['cut_sources'] for row in job.settings),
      'plain tokens/s': first['tokens_per_second_plain'],
      'compile, s':
          None if not compiled or None in compiled else sum(compiled)}


def runs(jobs: Sequence[gather.Job]) -> Table:
  """A line a run that has settings."""
  found = [counts(job) for job in jobs if job.settings]
  header = tuple(found[0]) if found else ('run',)
  numeric = tuple(name not in ('run', 'task') for name in header)
  return Table('Runs', header, numeric, tuple(
      Line(tuple(
          figure(value, 0) if is_number else text(value)
          for value, is_number in zip(row.values(), numeric, strict=True)))
      for row in found))


_COMPARISON = ('draft', 'T', 'γ', 'α', 'c', 'Exp', 'with v', 'measured', 'task',
               'what')


def comparison(rows: Sequence[Row]) -> Table:
  """The paper's columns: each draft's best γ, the paper's γ if it was run, and
  the paper's own row once, behind all that it stands beside."""
  several = len({row['run'] for row in rows}) > 1
  drafts: dict[tuple, list[Row]] = {}
  for row in rows:
    key = (row['task'], row['temperature'], row['run'], row['target'],
           draft(row))
    drafts.setdefault(key, []).append(row)
  beside: dict[Any, list[Line]] = {}
  for key, group in drafts.items():
    head = group[0]
    printed = paper.find(head['task'], head['draft'], head['temperature'])
    timed = [row for row in group if row['speedup'] is not None]
    best = max(timed, key=lambda row: row['speedup'], default=None)
    beside.setdefault(printed or key, []).extend(
        _compared(row, row['run'] if several else 'here',
                  'best γ' if row is best else 'the paper\'s γ')
        for row in group
        if row is best or (printed and row['gamma'] == printed.gamma)
        or (best is None and row is head))
  lines: list[Line] = []
  for own, ours in beside.items():
    lines += ours
    if isinstance(own, paper.Printed):
      lines.append(_printed(own))
  return Table('Comparison', _COMPARISON,
               (False, *[True] * 7, False, False), tuple(lines))


def _compared(row: Row, where: str, why: str) -> Line:
  if row['speedup'] is None:
    why = 'not timed'
  return Line((
      text(draft(row)), _temperature(row['temperature']),
      gamma(row), figure(row['alpha']), figure(row['c'], 3),
      figure(row['predicted_thm38']), figure(row['predicted_with_verify']),
      figure(row['speedup'], after='×'), text(row['task']),
      Cell(f'{where}, {why}')), _kind(row))


def _printed(row: paper.Printed) -> Line:
  note = 'paper, T5-XXL on TPU-v4'
  if not row.follows:
    note += f'; Thm 3.8 gives {number(row.recomputed)}'
  return Line((
      text(f'T5 {row.role}'), _temperature(row.temperature),
      figure(row.gamma, 0), figure(row.alpha), figure(row.c, 3),
      figure(row.expected, 1), Cell('–'), figure(row.speed, 1, '×'),
      text(row.study), Cell(note)), 'printed')
