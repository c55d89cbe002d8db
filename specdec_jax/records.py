"""The files of a workdir: what was decoded, what it cost, under which config.

`examples.jsonl` grows by whole turns: plain decoding and every gamma of one
batch, written together. A line that a kill cut in two, and a turn that misses
lines, are dropped when the run goes on.
"""

from collections.abc import Mapping, Sequence
import json
import os
import pathlib
import tempfile
from typing import Any

Row = dict[str, Any]


class WorkdirError(ValueError):
  """A workdir that belongs to another configuration, or is damaged."""


def read(path: pathlib.Path) -> list[Row]:
  """Rows of a JSONL file; none if it is missing, a torn last line left out."""
  if not path.exists():
    return []
  rows = []
  lines = path.read_bytes().split(b'\n')
  for number, line in enumerate(lines[:-1], 1):
    try:
      row = json.loads(line)
    except ValueError as error:
      raise WorkdirError(f'{path}, line {number}: not JSON') from error
    if not isinstance(row, dict):
      raise WorkdirError(f'{path}, line {number}: not a JSON object')
    rows.append(row)
  return rows


def _line(row: Mapping[str, Any]) -> str:
  # NaN is not JSON: what was not measured is None.
  return json.dumps(row, ensure_ascii=False, allow_nan=False) + '\n'


def append(path: pathlib.Path, rows: Sequence[Mapping[str, Any]]) -> None:
  """Adds rows in one write and waits until they are on the disk."""
  with path.open('ab') as out:
    out.write(''.join(map(_line, rows)).encode('utf-8'))
    out.flush()
    os.fsync(out.fileno())


def replace(path: pathlib.Path, text: str) -> None:
  """Writes a whole file, so that it is either the old one or the new one."""
  handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
  with os.fdopen(handle, 'w', encoding='utf-8') as out:
    out.write(text)
    out.flush()
    os.fsync(out.fileno())
  os.chmod(name, 0o644)
  os.replace(name, path)


def replace_rows(
    path: pathlib.Path, rows: Sequence[Mapping[str, Any]]
) -> None:
  replace(path, ''.join(map(_line, rows)))


def claim(
    workdir: pathlib.Path, config: Mapping[str, Any],
    environment: Mapping[str, Any]
) -> None:
  """Makes the workdir this configuration's own, or checks that it is.

  Raises:
    WorkdirError: naming each option that differs, with both values.
  """
  path = workdir / 'config.json'
  config = json.loads(json.dumps(config))
  if not path.exists():
    workdir.mkdir(parents=True, exist_ok=True)
    content = {'config': config, 'environment': dict(environment)}
    replace(path, json.dumps(content, indent=2) + '\n')
    return
  try:
    stored = json.loads(path.read_text('utf-8'))['config']
  except (ValueError, KeyError, TypeError) as error:
    raise WorkdirError(f'{path}: not a config of this program') from error
  names = sorted(stored.keys() | config.keys())
  different = [
      f'{n} is {stored.get(n)!r} there and {config.get(n)!r} now'
      for n in names if stored.get(n) != config.get(n)]
  if different:
    raise WorkdirError(
        f'workdir {workdir} belongs to another config: '
        f'{"; ".join(different)}. Choose another --workdir')


def whole_turns(
    rows: Sequence[Row], turns: Sequence[Sequence[Row]]
) -> int:
  """How many of the planned turns are in `rows` from the start, complete.

  Args:
    rows: of `examples.jsonl`.
    turns: for each turn the keys of its lines, in order.

  Example: with turns of 2, 2 and 2 lines and 5 rows, 2 turns are whole.
  """
  at = 0
  for done, keys in enumerate(turns):
    for key in keys:
      if at == len(rows):
        return done
      if any(rows[at].get(name) != value for name, value in key.items()):
        raise WorkdirError(
            f'examples.jsonl, line {at + 1}: expected {key}')
      at += 1
  if at < len(rows):
    raise WorkdirError(f'examples.jsonl: {len(rows) - at} lines too many')
  return len(turns)
