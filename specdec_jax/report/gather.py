"""The files of workdirs, read with whatever is missing or damaged in them.

A file that was cut, lines of two versions and values that are no number leave
gaps; each gap is told in `problems`, and no figure is made from it.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import json
import math
import pathlib
from typing import Any

from specdec_jax import config as config_lib
from specdec_jax import metrics
from specdec_jax import records

Row = dict[str, Any]
Checks = Mapping[str, Callable[[Any], bool]]


def _text(x: Any) -> bool:
  return isinstance(x, str)


def _number(x: Any) -> bool:
  return type(x) in (int, float) and math.isfinite(x) and x >= 0


def _whole(x: Any) -> bool:
  return type(x) is int and x >= 0


def _gamma(x: Any) -> bool:
  return _whole(x) or x == 'auto'  # chosen round by round


def _list_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
  return lambda x: isinstance(x, list) and all(map(check, x))


def _reference(x: Any) -> bool:
  return x is None or isinstance(x, str)  # a source may have none


def _ratios(x: Any) -> bool:
  return isinstance(x, dict) and all(map(_number, x.values()))


# A line without these belongs to no setting.
_GROUP: Checks = {'draft': _text, 'temperature': _number}
_LINE: Checks = {**_GROUP, 'task': _text, 'target': _text, 'gamma': _gamma,
                 'repeat': _whole, 'index': _whole}
_MEASURED: Checks = {
    'ids': _list_of(_whole), 'text': _text, 'reference': _reference,
    'batch_size': _whole, 'output_length': _whole,
    'finish_reason': _text, 'rounds': _whole, 'drafted': _list_of(_whole),
    'accepted': _list_of(_whole), 'discarded': _list_of(_whole),
    'encoder_seconds': _number, 'decoder_seconds': _number}
_COST: Checks = {
    'c': _number, 'verify_ratio': _ratios, 'compile_seconds': _number}
_ROUND: Checks = {
    'drafted': _list_of(_whole), 'pieces': _list_of(_text),
    'p': _list_of(lambda x: x is None or _number(x)),
    'q': _list_of(lambda x: x is None or _number(x)),
    'marks': _list_of(_text), 'next_piece': _text, 'next_mark': _text}
_TRACE: Checks = {
    **_GROUP, 'target': _text, 'gamma': _whole, 'index': _whole,
    'source': _text, 'text': _text,
    'rounds': _list_of(lambda x: isinstance(x, dict) and all(
        check(x.get(key)) for key, check in _ROUND.items()) and len(
            {len(x[key]) for key in ('drafted', 'pieces', 'p', 'q', 'marks')}
        ) == 1)}


@dataclasses.dataclass(frozen=True)
class Job:
  """One workdir.

  Attributes:
    name: tells it from the others of a merged report.
    config, environment: what ran, and where; `versions` is always there.
    settings: lines of `settings.jsonl`.
    costs, traces: lines of those files.
    problems: one sentence for each gap.
  """
  name: str
  config: Row
  environment: Row
  settings: Sequence[Row]
  costs: Sequence[Row]
  traces: Sequence[Row]
  problems: Sequence[str]

  @property
  def machine(self) -> str:
    """Device and processor, as far as they are known."""
    where = self.environment
    parts = (where.get('device'), where.get('processor'))
    return ', '.join(str(part) for part in parts if part) or 'unknown machine'

  @property
  def facts(self) -> Row:
    """What must agree for seconds to be comparable, versions one by one."""
    where = dict(self.environment)
    versions = where.pop('versions')
    return {**where, **{f'{name} version': v for name, v in versions.items()}}


def clean(value: Any) -> Any:
  """The value with None for numbers that are none, and text that is UTF-8."""
  if isinstance(value, float):
    return value if math.isfinite(value) else None
  if isinstance(value, str):
    return value.encode('utf-8', 'replace').decode('utf-8')
  if isinstance(value, list):
    return [clean(item) for item in value]
  if isinstance(value, dict):
    return {clean(key): clean(item) for key, item in value.items()}
  return value


def lines(
    path: pathlib.Path, needed: Checks, problems: list[str]
) -> list[Row]:
  """Rows of a JSONL file that say what they belong to."""
  if not path.exists():
    problems.append(f'{path.name} is missing.')
    return []
  rows, lost = [], 0
  for line in path.read_bytes().split(b'\n'):
    if not line.strip():
      continue
    try:
      row = clean(json.loads(line))
    except (ValueError, RecursionError):
      row = None
    if isinstance(row, dict) and all(
        check(row.get(key)) for key, check in needed.items()):
      rows.append(row)
    else:
      lost += 1
  if lost:
    problems.append(
        f'{path.name}: {lost} lines are cut, damaged or of another version '
        f'(needed are {", ".join(needed)}) and were left out.')
  if not rows:
    problems.append(f'{path.name} has no usable line.')
  return rows


def usable(
    rows: Sequence[Row], checks: Checks, name: str, problems: list[str]
) -> list[Row]:
  """Rows with None for each value that is missing or of another kind."""
  for key, check in checks.items():
    lost = sum(not check(row.get(key)) for row in rows)
    if lost:
      problems.append(
          f'{name}: {lost} of {len(rows)} lines have no usable {key}; no '
          'figure is made from them.')
  return [row | {key: row.get(key) if check(row.get(key)) else None
                 for key, check in checks.items()} for row in rows]


def _with_beta(rows: Sequence[Row], problems: list[str]) -> list[Row]:
  """Only lines of plain decoding's first repeat carry it."""
  usable_beta = _list_of(_number)
  first = [row for row in rows if not row['gamma'] and not row['repeat']]
  lost = sum(not usable_beta(row.get('beta')) for row in first)
  if lost:
    problems.append(
        f'examples.jsonl: {lost} of {len(first)} lines of plain decoding have '
        'no usable beta (a draft without q, or not measured); α rests on the '
        'others.')
  return [{key: value for key, value in row.items()
           if key != 'beta' or usable_beta(value)} for row in rows]


def setting_name(row: Row) -> str:
  return f'{row["draft"]}, temperature {row["temperature"]:g}, γ={row["gamma"]}'


def _tell_settings(settings: Sequence[Row], problems: list[str]) -> None:
  for row in settings:
    for key, text in (
        ('acceptance', 'no drafted token was verified'),
        ('c', 'c was not measured, so nothing is predicted'),
        ('alpha', 'α was not measured, so nothing is predicted'),
        ('speedup', 'no complete pair of times, so no factor')):
      if row[key] is None:
        problems.append(f'{setting_name(row)}: {text}.')


def read(workdir: pathlib.Path, name: str | None = None) -> Job:
  """Everything that a workdir holds.

  Raises:
    WorkdirError: without a readable `config.json` there is no run.
  """
  path = workdir / 'config.json'
  try:
    stored = clean(json.loads(path.read_text('utf-8')))
    config = dict(stored['config'])
    environment = dict(stored.get('environment') or {})
    if not isinstance(environment.get('versions'), dict):
      environment['versions'] = {}
  except (OSError, ValueError, KeyError, TypeError) as error:
    raise records.WorkdirError(f'{path}: not readable: {error}') from error
  problems: list[str] = []
  examples = _with_beta(usable(
      lines(workdir / 'examples.jsonl', _LINE, problems), _MEASURED,
      'examples.jsonl', problems), problems)
  costs = usable(lines(workdir / 'costs.jsonl', _GROUP, problems), _COST,
                 'costs.jsonl', problems)
  traces = lines(workdir / 'traces.jsonl', _TRACE, problems)
  asked = config.get('scores')
  scores = [name for name in config_lib.SCORES
            if isinstance(asked, list) and name in asked]
  settings = metrics.settings(examples, costs, scores)
  _tell_settings(settings, problems)
  return Job(name or workdir.resolve().name, config, environment, settings,
             costs, traces, problems)
