"""A teacher's own translations of the training text, for its drafts to learn.

    python -m experiments.ladder.teach --teacher=runs/ladder/target/model \\
        --data=tsv:runs/corpus/help.train.tsv \\
        --output=runs/taught/help.train.tsv

Writes a line a pair: source, teacher's output; at temperature 0 its greedy
output (sequence-level distillation, Kim and Rush 2016), above 0 a sample.
Sources over the largest bucket, and outputs that are empty or reach their
budget of twice the bucket, are left out. Run again, it goes on where it
stopped. Hardware: any. Time: about half an hour for 61,000 pairs on two cores.
"""

import pathlib

from absl import app
from absl import flags
import tqdm

from specdec_jax import checkpoint
from specdec_jax import examples as examples_lib
from specdec_jax import generate
from specdec_jax import records
from specdec_jax import vocab

BUCKETS = (16, 32, 48, 64, 96)


def make_decoder(
    teacher: checkpoint.Loaded, bucket: int, batch_size: int,
    temperature: float, seed: int
) -> generate.Decoder:
  """Plain decoding of one bucket; the budget stops a text that repeats."""
  return generate.Decoder(
      teacher, gamma=0, temperature=temperature, seed=seed,
      max_new_tokens=min(2 * bucket, max(BUCKETS)), source_buckets=(bucket,),
      batch_size=batch_size)


def plan(
    sources: list[vocab.Source], lengths: list[int], batch_size: int
) -> list[tuple[int, list[int]]]:
  """(bucket, indices) batches of texts of like length, the longest first.

  Args:
    sources: encoder inputs; those that were cut are left out.
    lengths: how long each output may become; only the order counts.

  Example: sources of 20, 9, 12 and 9 ids, lengths 25, 10, 9 and 11, batches of
  two: (32, [0]), (16, [2, 3]), (16, [1]).
  """
  buckets: dict[int, list[int]] = {}
  for i, source in enumerate(sources):
    if not source.truncated:
      size = vocab.bucket(len(source.ids), BUCKETS)
      buckets.setdefault(size, []).append(i)
  batches = []
  for size in sorted(buckets, reverse=True):
    indices = sorted(
        buckets[size],
        key=lambda i: (-len(sources[i].ids) - lengths[i], i))
    batches += [(size, indices[at:at + batch_size])
                for at in range(0, len(indices), batch_size)]
  return batches


def open_journal(
    path: pathlib.Path, job: records.Row
) -> list[records.Row]:
  """The rows, a batch each, that a killed run left; the first names the job.

  Raises:
    records.WorkdirError: where another job wrote it.
  """
  rows = records.read(path)
  if not rows:
    records.replace_rows(path, [job])
    return []
  if rows[0] != job:
    raise records.WorkdirError(f'{path} belongs to {rows[0]}, not to {job}')
  records.replace_rows(path, rows)  # drops a torn last line
  return rows[1:]


def teach(
    teacher_name: str, data: str, output: pathlib.Path, batch_size: int = 32,
    temperature: float = 0.0, seed: int = 0
) -> int:
  """Writes `output`; returns how many pairs it holds."""
  examples = examples_lib.load(data)
  teacher = checkpoint.load(teacher_name)
  sources = [teacher.vocabulary.encode_source(e.source, max(BUCKETS))
             for e in examples]
  # Where there is a reference, its length tells best how long the text gets.
  lengths = [len(teacher.vocabulary.encode(e.reference or ''))
             for e in examples]
  batches = plan(sources, lengths, batch_size)
  output.parent.mkdir(parents=True, exist_ok=True)
  journal = output.with_name(output.name + '.journal')
  rows = open_journal(journal, dict(
      teacher=teacher_name, data=data, batch_size=batch_size,
      temperature=temperature, seed=seed))
  progress = tqdm.tqdm(total=len(batches), initial=len(rows), unit='batch')
  decoder = None
  for number in range(len(rows), len(batches)):
    size, indices = batches[number]
    if decoder is None or decoder.source_buckets != (size,):
      generate.release_programs()
      decoder = make_decoder(teacher, size, batch_size, temperature, seed)
    outputs = decoder.decode_batch(
        [sources[i] for i in indices], number * batch_size)
    rows.append({'batch': [
        {'index': i, 'text': o.text, 'finish_reason': o.finish_reason}
        for i, o in zip(indices, outputs, strict=True)]})
    records.append(journal, rows[-1:])
    progress.update()
  progress.close()
  return finish(output, examples, rows)


def finish(
    output: pathlib.Path, examples: list[examples_lib.Example],
    rows: list[records.Row]
) -> int:
  """Writes the pairs in the order of the data."""
  texts = {line['index']: line['text'] for row in rows for line in row['batch']
           if line['finish_reason'] == 'eos' and line['text'].strip()}
  records.replace(output, ''.join(
      f'{e.source}\t{texts[e.index]}\n' for e in examples if e.index in texts))
  return len(texts)


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments {argv[1:]}')
  options = flags.FLAGS
  try:
    pairs = teach(
        options.teacher, options.data, pathlib.Path(options.output),
        options.batch_size, options.temperature, options.seed)
  except (ValueError, FloatingPointError) as error:
    raise SystemExit(f'error: {error}') from error
  print(f'{pairs} pairs in {options.output}')


if __name__ == '__main__':
  flags.DEFINE_string('teacher', None, 'Model folder.', required=True)
  flags.DEFINE_string(
      'data', None, 'Data set (see specdec_jax.examples).', required=True)
  flags.DEFINE_string('output', None, 'TSV to write.', required=True)
  flags.DEFINE_integer('batch_size', 32, 'Sentences at a time.')
  flags.DEFINE_float('temperature', 0.0, '0 is argmax.')
  flags.DEFINE_integer('seed', 0, 'Of samples.')
  app.run(main)
