"""The sentences of the report: plain text, which each form escapes."""

from collections.abc import Sequence
from typing import Any

from specdec_jax.report import gather
from specdec_jax.report import tables

Row = dict[str, Any]

LEGEND = (
    'α: mean of Σ min(p, q) over the tokens that the target generated (paper, '
    'section 3.1), with its standard error over sentences.',
    'c: time of a draft step over that of a target step. v: time of a target '
    'call on γ + 1 positions over one on a single position; Theorem 3.8 takes '
    'v = 1.',
    'Measured: total plain decoder seconds over total speculative decoder '
    'seconds, plain and speculative in turn in one process, the device waited '
    'for; "repeats" is the smallest and largest ratio of a single repeat; '
    '"with encoder" adds the encoders\' seconds (the draft\'s too).',
    'accepted / drafted falls with γ by itself and ranks nothing.',
    'Left out of every figure: compilation and a first call of each program, '
    'text to ids and back, filler rows of a batch, drafts kept behind an EOS.')


def name(row: Row) -> str:
  return f'{tables.draft(row)} γ={row["gamma"]}'


def factor(row: Row) -> str:
  return f'{name(row)} ({tables.number(row["speedup"])}×)'


def honest(rows: Sequence[Row]) -> list[Row]:
  """Settings that were timed, decode exactly and use trained models."""
  return [row for row in rows
          if row['speedup'] is not None and not tables.marks(row)]


def headline(rows: Sequence[Row]) -> str:
  """The best factor at temperature 0, and how many settings lost."""
  temperatures = sorted({row['temperature'] for row in rows})
  if not temperatures:
    return 'No setting has been decoded yet.'
  greedy = [r for r in rows if r['temperature'] == temperatures[0]]
  timed, everything = honest(greedy), honest(rows)
  if not timed:
    return (f'Nothing comparable was timed at temperature '
            f'{temperatures[0]:g}.')
  best = max(timed, key=lambda row: row['speedup'])
  verb = ('times as fast as plain decoding' if best['speedup'] >= 1
          else 'times the speed of plain decoding: no setting is faster')
  several = len({row['run'] for row in rows}) > 1

  def where(row):
    if not several:
      return ''
    return f', {row["task"]}, {row["machine"]}, run {row["run"]}'
  text = (f'{tables.number(best["speedup"])} {verb} at temperature '
          f'{temperatures[0]:g}, at best ({name(best)}{where(best)}).')
  slower = [row for row in everything if row['speedup'] < 1]
  if not slower:
    return text + f' None of {len(everything)} settings is slower than plain.'
  worst = min(slower, key=lambda row: row['speedup'])
  return text + (
      f' {len(slower)} of {len(everything)} settings are slower than plain, '
      f'the slowest {factor(worst)} at temperature '
      f'{worst["temperature"]:g}{where(worst)}.')


def verdict(rows: Sequence[Row]) -> tuple[str, str]:
  """Settings of one place and temperature: who was faster, who slower."""
  timed = honest(rows)
  if not timed:
    return 'Nothing comparable was timed.', ''
  best = max(timed, key=lambda row: row['speedup'])
  faster = [factor(row) for row in timed if row['speedup'] >= 1]
  slower = [factor(row) for row in timed if row['speedup'] < 1]
  return (f'Best {factor(best)}. Faster than plain: '
          f'{", ".join(faster) or "none"}.',
          f'Slower than plain: {", ".join(slower) or "none"}.')


def conditions(job: gather.Job) -> str:
  """What the figures rest on: counts, cuts, units."""
  if not job.settings:
    return 'No setting has been decoded yet.'
  found, number = tables.counts(job), tables.number
  times = 'once' if found['repeats'] == 1 else f'{found["repeats"]} times'
  return (
      f'{found["sentences"]} sentences of {found["task"]}, each decoded '
      f'{times} with every setting, batch {number(found["batch"], 0)}. Up to '
      f'{found["cut outputs"]} outputs of a setting were cut by the budget, '
      f'{found["cut sources"]} sources were cut to the largest bucket. Plain '
      f'decoding: {number(found["plain tokens/s"], 0)} output tokens a second '
      'in the decoder. Compilation and warm-up, outside every figure: '
      f'{number(found["compile, s"], 0)} s.')


def places(jobs: Sequence[gather.Job]) -> list[str]:
  """Each place once, with the runs it belongs to."""
  runs: dict[str, list[str]] = {}
  for job in jobs:
    runs.setdefault(place(job), []).append(job.name)
  if len(runs) == 1:
    return list(runs)
  return [f'{", ".join(names)}: {where}' for where, names in runs.items()]


def place(job: gather.Job) -> str:
  """Target and machine, as far as they are known."""
  where = job.environment
  versions = where['versions']
  return (
      f'Target {job.config.get("target", tables.MISSING)} on '
      f'{where.get("device", tables.MISSING)} '
      f'({where.get("processor", tables.MISSING)}, '
      f'{where.get("cores", tables.MISSING)} cores), '
      f'{where.get("dtype", tables.MISSING)}, '
      f'jax {versions.get("jax", tables.MISSING)}, commit '
      f'{str(where.get("commit", tables.MISSING))[:12]}.')


def warnings(jobs: Sequence[gather.Job]) -> list[str]:
  """Why numbers here are not comparable with the paper's, or with each other.
  """
  rows = tables.with_place(jobs)
  targets = sorted({str(job.config.get('target')) for job in jobs})
  devices = sorted({str(job.environment.get('device')) for job in jobs})
  found = [
      'The paper measured T5-XXL (11B) on one TPU-v4 against the T5X codebase. '
      f'Here the target is {", ".join(targets)} on {", ".join(devices)}, '
      'against this program\'s own plain decoding. α, c and the formulas carry '
      'over; seconds and factors do not.']
  if any(job.environment.get('platform') == 'cpu' or
         job.environment.get('device') == 'cpu' for job in jobs):
    found.append('On a CPU γ + 1 positions cost more than one, which Theorem '
                 '3.8 leaves out: read "with v" beside it.')
  found += doubts(rows)
  for mark in dict.fromkeys(m for row in rows for m in tables.marks(row)):
    found.append(f'Rows marked [{mark}] {_MARKS[mark.split(",")[0].split()[0]]}'
                 ' They are no result of the paper\'s method and stand in no '
                 'headline.')
  return found + differences(jobs)


def doubts(rows: Sequence[Row]) -> list[str]:
  """What the numbers themselves say against a setting's times."""
  once = [row for row in rows
          if row['speedup'] is not None and row['repeats'] < 2]
  busy = [gather.setting_name(row) for row in rows
          if (row['verify_ratio'] or 1) < 0.9]
  found = []
  if once:
    found.append(f'{len(once)} of {len(rows)} settings were timed in one '
                 'repeat: their factors have no spread.')
  if busy:
    found.append(
        'More positions cannot cost less than one (v below 1), so the machine '
        'did something else while costs were measured; do not trust what is '
        f'predicted "with v" for {len(busy)} settings: '
        f'{"; ".join(busy[:3])}{"; …" if busy[3:] else ""}.')
  return found


_MARKS = {
    'lossy': 'do not keep the target\'s distribution.',
    'synthetic': 'had their acceptance drawn, not earned.',
    'random': 'use models that were not trained.'}


def differences(jobs: Sequence[gather.Job]) -> list[str]:
  """What the workdirs of a merged report do not share."""
  facts = {job.name: job.facts for job in jobs}
  found = []
  for key in dict.fromkeys(key for own in facts.values() for key in own):
    values = {run: str(own.get(key)) for run, own in facts.items()}
    if len(set(values.values())) > 1:
      listed = ', '.join(f'{value} in {run}' for run, value in values.items())
      found.append(f'The runs differ in {key}: {listed}. Their seconds and '
                   'factors may not be comparable with each other.')
  return found
