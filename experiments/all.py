"""Every table, figure and claim of the paper, and one report of all runs.

    python -m experiments.all --workdir=runs/paper

Expected result: NAME.md and NAME.json of each experiment in the workdir,
`figures/`, and the merged report. Stopped and run again, it goes on where it
stopped. An experiment that cannot run is named at the end (exit status 1) and
stops no other. Time: about twenty minutes on two quiet cores.
"""

import time

from absl import logging

from experiments import batch_sweep
from experiments import common
from experiments import domains
from experiments import draft_size
from experiments import figures
from experiments import lenience
from experiments import memory
from experiments import table1
from experiments import table2
from experiments import table3
from experiments import table4
from experiments import temperatures
from experiments import worked_example
from specdec_jax import report

# In the order of the paper where time allows: what costs nothing first.
EXPERIMENTS = (
    table1, worked_example, memory, table2, table4, draft_size, figures,
    table3, lenience, temperatures, batch_sweep, domains)


def name_of(module) -> str:
  return module.__name__.rpartition('.')[2]


def merge(lab: common.Lab) -> None:
  """One report of every run below the workdir."""
  folders = sorted(p.parent for p in lab.folder.rglob('examples.jsonl'))
  if folders:
    report.write_merged(folders, lab.folder)


def make(lab: common.Lab, experiments=EXPERIMENTS) -> None:
  failed = []
  for module in experiments:
    began = time.monotonic()
    try:
      module.make(lab)
    except (ValueError, FloatingPointError) as error:
      failed.append(f'{name_of(module)}: {error}')
      logging.error('%s failed: %s', name_of(module), error)
    logging.warning('%s: %.0f s', name_of(module), time.monotonic() - began)
  merge(lab)
  if failed:
    raise ValueError(
        f'{len(failed)} of {len(experiments)} experiments did not run: '
        + '; '.join(failed))


if __name__ == '__main__':
  common.main(make)
