"""The walk: data, models, then for each setting decode and record, then report.

A turn is one batch decoded plainly and with every gamma, one after the other in
one process; it is the unit that is timed, written and, after a kill, resumed.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import itertools
import pathlib
from typing import Any

from absl import logging
import jax
import ml_collections
import tqdm

from specdec_jax import config as config_lib
from specdec_jax import environment
from specdec_jax import examples as examples_lib
from specdec_jax import generate
from specdec_jax import hosts
from specdec_jax import job as job_lib
from specdec_jax import records
from specdec_jax import report
from specdec_jax import sampling as sampling_lib
from specdec_jax import sharding
from specdec_jax import trace as trace_lib

TRACED = 8  # sentences of each group that are traced for the report


@dataclasses.dataclass(frozen=True)
class Turn:
  group: job_lib.Group
  repeat: int
  batch: Sequence[examples_lib.Example]


def plan(
    settings: config_lib.RunConfig, examples: Sequence[examples_lib.Example]
) -> list[Turn]:
  """Every turn of a run, in the order in which it is done and written."""
  size = settings.batch_size
  batches = [examples[i:i + size] for i in range(0, len(examples), size)]
  return [
      Turn(job_lib.Group(draft, temperature), repeat, batch)
      for temperature in settings.temperatures
      for draft in settings.drafts
      for repeat in range(settings.repeats)
      for batch in batches]


def turn_keys(turn: Turn, gammas: Sequence[int | str]) -> list[records.Row]:
  """What identifies each line of a turn, in the order of the file."""
  return [
      {'draft': turn.group.draft, 'temperature': turn.group.temperature,
       'gamma': gamma, 'repeat': turn.repeat, 'index': example.index}
      for gamma in (0, *gammas) for example in turn.batch]


def run(config: ml_collections.ConfigDict, workdir: pathlib.Path) -> None:
  """Runs what is missing of a configuration and writes the report.

  Raises:
    ValueError: of the modules' own kinds, before any compute, naming the
      option, its value and what is allowed.
  """
  settings = config_lib.resolve(config, config_lib.RunConfig)

  logging.info('data: %s', settings.task)
  examples = examples_lib.load(settings.task, settings.sentences)
  if not examples:
    raise examples_lib.DataError(f'task={settings.task}: no sentences')

  with jax.default_matmul_precision(settings.matmul_precision):
    turns = plan(settings, examples)
    done = hosts.from_first(lambda: open_workdir(settings, workdir, turns))
    if todo := turns[done:]:
      logging.info('models: %s and %s', settings.target, settings.drafts)
      models = job_lib.load_models(settings)
      logging.info('decode: %d of %d turns', len(todo), len(turns))
      decode_turns(settings, models, examples, todo, workdir)
    else:
      logging.info('decode: all %d turns are there', len(turns))

  if hosts.is_first():
    logging.info('report: %s', workdir / 'report.md')
    report.write(workdir)


def open_workdir(
    settings: config_lib.RunConfig, workdir: pathlib.Path,
    turns: Sequence[Turn]
) -> int:
  """Claims the workdir, drops a torn end, returns how many turns are done."""
  records.claim(
      workdir, dataclasses.asdict(settings), environment.describe(settings))
  path = workdir / 'examples.jsonl'
  rows = records.read(path)
  keys = [turn_keys(turn, settings.gammas) for turn in turns]
  done = records.whole_turns(rows, keys)
  records.replace_rows(path, rows[:sum(map(len, keys[:done]))])
  return done


def shares(settings: config_lib.RunConfig) -> tuple[int, int]:
  """How many batches are decoded side by side, and which one is this host's.

  Hosts that share a mesh decode the same batch together.
  """
  if settings.mesh and sharding.spans_hosts(
      sharding.make_mesh(settings.mesh_sizes)):
    return 1, 0
  return jax.process_count(), jax.process_index()


def waves(todo: Sequence[Turn], size: int) -> Iterator[Sequence[Turn]]:
  """Turns that are decoded side by side: up to `size` of one group.

  Example: three turns of a group and one of the next, two at a time, are waves
  of 2, 1 and 1.
  """
  for _, group in itertools.groupby(todo, lambda turn: turn.group):
    turns = list(group)
    yield from (turns[i:i + size] for i in range(0, len(turns), size))


def decode_turns(
    settings: config_lib.RunConfig, models: job_lib.Models,
    examples: Sequence[examples_lib.Example], todo: Sequence[Turn],
    workdir: pathlib.Path
) -> None:
  """Decodes turn by turn; each group is compiled, costed and traced once.

  Several hosts take as many turns at once; the first writes them in order.
  """
  progress = tqdm.tqdm(
      total=len(todo), unit='turn', disable=not hosts.is_first())
  job = None
  count, mine = shares(settings)
  for wave in waves(todo, count):
    group = wave[0].group
    if job is None or group != job.group:
      progress.set_description(
          f'{group.draft} at temperature {group.temperature:g}')
      job = None
      generate.release_programs()
      job = job_lib.make_job(settings, models, group)
      cost = record_costs(job, models, wave[0].batch, examples, workdir)
      if config_lib.AUTO in settings.gammas:
        job = job_lib.add_auto(job, models, cost)
      record_traces(job, examples[:TRACED], workdir)
    rows = decode_turn(job, wave[mine]) if mine < len(wave) else []
    for found in hosts.gather(rows)[:len(wave)]:
      if hosts.is_first():
        records.append(workdir / 'examples.jsonl', found)
    progress.update(len(wave))
  progress.close()


def record_costs(
    job: job_lib.Job, models: job_lib.Models,
    batch: Sequence[examples_lib.Example],
    examples: Sequence[examples_lib.Example], workdir: pathlib.Path
) -> records.Row:
  """The line with c and the verify ratios of a group, measured only once.

  With `auto` among the gammas also what that is, found on the first sentences.
  """
  path = workdir / 'costs.jsonl'
  key = {'draft': job.group.draft, 'temperature': job.group.temperature}
  known = hosts.from_first(
      lambda: [r for r in records.read(path) if key.items() <= r.items()])
  if known:
    return known[0]
  # Hosts that share a mesh measure together; otherwise one does for all.
  measures = shares(job.settings)[1] == 0
  mine = key | job_lib.measure_costs(job, batch) if measures else {}
  row = hosts.gather(mine)[0]
  if config_lib.AUTO in job.settings.gammas:
    row |= job_lib.calibrate(job, models, examples)
  if hosts.is_first():
    records.append(path, [row])
  return row


def record_traces(
    job: job_lib.Job, examples: Sequence[examples_lib.Example],
    workdir: pathlib.Path
) -> None:
  """Traces a few sentences of a group with one gamma, unless they are there.

  Only on a single host: a trace is one row played again, by itself.
  """
  if jax.process_count() > 1:
    return
  path, group = workdir / 'traces.jsonl', job.group
  key = {'draft': group.draft, 'temperature': group.temperature}
  rows = records.read(path)
  if any(key.items() <= row.items() for row in rows):
    return
  gammas = sorted(g for g in job.decoders if isinstance(g, int) and g)
  if not gammas:
    return  # a trace has one gamma
  decoder = job.decoders[gammas[len(gammas) // 2]]
  for example in examples:
    try:
      found = trace_lib.trace(
          decoder, job.settings.prefix + example.source, example.index)
    except trace_lib.TraceError as error:  # a near-tie in bfloat16
      logging.warning('no trace of %s: %s', key, error)
    else:
      rows.append(found.row(example.index) | key)
  records.replace_rows(path, rows)


def decode_turn(job: job_lib.Job, turn: Turn) -> list[records.Row]:
  """Decodes one batch with each gamma."""
  sources, first = job.encode(turn.batch), turn.batch[0].index
  outputs = {
      gamma: job.decoders[gamma].decode_batch(sources, first)
      for gamma in in_turn([*job.decoders], first // job.settings.batch_size,
                           turn.repeat)}
  rows = [make_row(job.settings, turn, gamma, example, output)
          for gamma in job.decoders
          for example, output in zip(turn.batch, outputs[gamma], strict=True)]
  if turn.repeat == 0:
    for row, values in zip(
        rows, job_lib.measure_betas(job, sources, outputs[0]), strict=False):
      row['beta'] = values  # on the lines of plain decoding, which come first
  return rows


def in_turn(gammas: Sequence[Any], batch: int, repeat: int) -> list[Any]:
  """The order in which a batch is decoded.

  It turns round at each repeat, so that a machine that slows down favours none,
  and begins with each gamma as often: whoever is first finds the processor's
  cache full of what stands between two batches.

  Example: of 0, 1 and 3 batch 1 has the order 1, 3, 0; repeated it begins one
  further, 3, 0, 1, and is turned round: 1, 0, 3.
  """
  start = (batch + repeat) % len(gammas)
  order = [*gammas[start:], *gammas[:start]]
  return order[::-1] if repeat % 2 else order


def make_row(
    settings: config_lib.RunConfig, turn: Turn, gamma: int | str,
    example: examples_lib.Example, output: generate.Output
) -> records.Row:
  """One line of `examples.jsonl`."""
  return {
      'task': settings.task, 'target': settings.target,
      'draft': turn.group.draft, 'temperature': turn.group.temperature,
      'greedy': turn.group.temperature < sampling_lib.ARGMAX_BELOW,
      'gamma': gamma, 'lenience': settings.lenience,
      'synthetic': settings.acceptance,
      'batch_size': settings.batch_size, 'dtype': settings.dtype,
      'matmul_precision': settings.matmul_precision,
      'repeat': turn.repeat, 'index': example.index,
      'source': example.source, 'reference': example.reference,
      'text': output.text, 'ids': list(output.ids),
      'source_length': output.source.full_length,
      'source_truncated': output.source.truncated,
      'output_length': len(output.ids),
      'finish_reason': output.finish_reason,
      'rounds': len(output.rounds),
      'drafted': [r.drafted for r in output.rounds],
      'accepted': [r.accepted for r in output.rounds],
      'discarded': [r.discarded for r in output.rounds],
      'encoder_seconds': output.encoder_seconds,
      'decoder_seconds': output.decoder_seconds,
  }
