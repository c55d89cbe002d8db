"""Records to `settings.jsonl`, `report.md` and `report.html`.

    python -m specdec_jax.report --workdir=runs/ende_mini
    python -m specdec_jax.report --workdir=A --workdir=B --output=DIR

`gather` reads workdirs, `tables` and `words` say what is shown, `markdown` and
`page` give it a form, `plots` draws, `paper` has the printed numbers. Nothing
here can run a model.
"""

from collections.abc import Sequence
import os
import pathlib

from specdec_jax import records
from specdec_jax.report import gather
from specdec_jax.report import markdown
from specdec_jax.report import page
from specdec_jax.report.tables import MISSING
from specdec_jax.report.tables import number

__all__ = ['MISSING', 'number', 'write', 'write_merged']


def write(workdir: pathlib.Path) -> None:
  """Makes `settings.jsonl` and both reports from the records of a workdir.

  Raises:
    records.WorkdirError: if the folder is no run.
  """
  _write([gather.read(workdir)], workdir)


def write_merged(
    workdirs: Sequence[pathlib.Path], output: pathlib.Path
) -> None:
  """One report of several workdirs; each keeps its task, target and machine.

  Raises:
    records.WorkdirError: if one of the folders is no run, or `output` is one
      and another than the only workdir.
  """
  if (output / 'config.json').exists() and [p.resolve() for p in workdirs] != [
      output.resolve()]:
    raise records.WorkdirError(
        f'output {output} is the workdir of a run: choose another folder')
  jobs = [gather.read(path, name)
          for path, name in zip(workdirs, _names(workdirs), strict=True)]
  output.mkdir(parents=True, exist_ok=True)
  _write(jobs, output)


def _names(workdirs: Sequence[pathlib.Path]) -> list[str]:
  """Folder names; where two are alike, all paths below what they share.

  Example: `r/a/1`, `r/b/1` and `r/c` are `a/1`, `b/1` and `c`.
  """
  paths = [path.resolve() for path in workdirs]
  names = [path.name for path in paths]
  if len(set(names)) == len(set(paths)):
    return names
  shared = os.path.commonpath(paths)
  return [path.relative_to(shared).as_posix() for path in paths]


def _write(jobs: Sequence[gather.Job], output: pathlib.Path) -> None:
  rows = [row for job in jobs for row in job.settings]
  if len(jobs) > 1:
    rows = [row | {'run': job.name, 'machine': job.machine}
            for job in jobs for row in job.settings]
  records.replace_rows(output / 'settings.jsonl', rows)
  records.replace(output / 'report.md', markdown.render(jobs))
  records.replace(output / 'report.html', page.render(jobs))
