"""Measures what the model card says of the built-in ladder.

    python -m experiments.ladder.card --workdir=runs/card

Hardware: any. Expected result: `card.jsonl`, a line a measurement (run again,
it goes on where it stopped), `card.json` with all of them, and `card.md`, the
tables; with `--update` they also replace those between the two marks in the
assets' README. Time: under ten minutes on two quiet cores.

Of each domain the first 448 held-out sentences count. BLEU and chrF: plain
greedy decoding against the references. alpha: mean over the tokens that the
target generated of sum min(p, q), with the standard error of `metrics.alpha`.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import hashlib
import json
import pathlib
import time
from typing import Any

from absl import app
from absl import flags
from absl import logging
import jax
from jax import numpy as jnp
import sacrebleu
import tqdm

from specdec_jax import checkpoint
from specdec_jax import drafters
from specdec_jax import environment
from specdec_jax import examples as examples_lib
from specdec_jax import generate
from specdec_jax import measure
from specdec_jax import metrics
from specdec_jax import records
from specdec_jax import sampling as sampling_lib
from specdec_jax import t5
from specdec_jax import vocab

ASSETS = examples_lib.ASSETS / 'ende_mini'
README = ASSETS / 'README.md'
MARKS = ('<!-- card: begin -->', '<!-- card: end -->')
TARGET = 'target'
MODELS = (TARGET, 'large', 'base', 'small')
DRAFTS = ('small', 'base', 'large', 'bigram', 'unigram')
TASKS = ('ende_mini', 'ende_mini_packages')
TEMPERATURES = (0.0, 1.0)
SENTENCES, BATCH, BUCKETS = 448, 32, (64, 128)


def shipped(names: Sequence[str]) -> list[str]:
  return [name for name in names if (ASSETS / name).is_dir()]


def sources_of(task: str, words: vocab.Vocabulary) -> list[vocab.Source]:
  """Encoder inputs of the task's sentences, in the order of the data."""
  return [words.encode_source(example.source, max(BUCKETS))
          for example in examples_lib.load(task, SENTENCES)]


def batches(sources: Sequence[vocab.Source]) -> list[list[int]]:
  """Indices by batch; sources of like length together, the shortest first."""
  order = sorted(range(len(sources)), key=lambda i: (len(sources[i].ids), i))
  return [order[at:at + BATCH] for at in range(0, len(order), BATCH)]


def decode(model: checkpoint.Loaded, task: str, temperature: float):
  """The row of one plain decoding; texts and ids in the order of the data."""
  decoder = generate.Decoder(
      model, gamma=0, temperature=temperature, max_new_tokens=max(BUCKETS),
      source_buckets=BUCKETS, batch_size=BATCH)
  sources = sources_of(task, model.vocabulary)
  outputs: list[Any] = [None] * len(sources)
  for number, indices in enumerate(batches(sources)):
    found = decoder.decode_batch(
        [sources[i] for i in indices], number * BATCH)
    for i, output in zip(indices, found, strict=True):
      outputs[i] = output
  return {
      'ids': [list(o.ids) for o in outputs], 'texts': [o.text for o in outputs],
      'cut_sources': sum(o.source.truncated for o in outputs),
      'cut_outputs': sum(o.finish_reason == 'length' for o in outputs)}


def score(task: str, texts: Sequence[str]) -> records.Row:
  """BLEU and chrF with the signatures of sacrebleu."""
  references = [e.reference or '' for e in examples_lib.load(task, SENTENCES)]
  row: records.Row = {'sentences': len(references)}
  for name, metric in (('bleu', sacrebleu.BLEU()), ('chrf', sacrebleu.CHRF())):
    row[name] = metric.corpus_score(list(texts), [references]).score
    row[f'{name}_signature'] = str(metric.get_signature())
  return row


@functools.partial(jax.jit, static_argnums=(0, 1))
def _all_betas(target_model, bound, target_params, draft_params, source_bs,
               output_bm, sampling):
  """`measure.betas` of every draft; in one program the target reads once."""
  target = measure.Side(target_model, target_params)
  return [measure.betas(target, measure.DraftSide(drafter, params), source_bs,
                        output_bm, sampling)
          for drafter, params in zip(bound, draft_params, strict=True)]


def alphas(
    target: checkpoint.Loaded, drafts: dict[str, Any], task: str,
    temperature: float, ids: Sequence[Sequence[int]]
) -> records.Row:
  """{draft: [alpha, standard error]} on the target's outputs `ids`."""
  words = target.vocabulary
  model = generate.bind(target, words.text_size)
  bound = tuple(generate.bind_drafter(d, words) for d in drafts.values())
  params = [d.packed for d in drafts.values()]
  sources = sources_of(task, words)
  rows: dict[str, list[records.Row]] = {name: [] for name in drafts}
  for indices in tqdm.tqdm(batches(sources), unit='batch'):
    longest = max(max(len(sources[i].ids), len(ids[i])) for i in indices)
    size = vocab.bucket(longest, BUCKETS)
    found = jax.device_get(_all_betas(
        model, bound, target.packed, params,
        jnp.asarray(vocab.pad([sources[i].ids for i in indices], size)),
        jnp.asarray(vocab.pad([ids[i] for i in indices], size)),
        sampling_lib.make(temperature)))
    for name, beta_bm in zip(drafts, found, strict=True):
      rows[name] += [{'beta': beta_bm[row, :len(ids[i])].tolist()}
                     for row, i in enumerate(indices)]
  return {'tokens': sum(map(len, ids)),
          'alpha': {name: metrics.alpha(r) for name, r in rows.items()}}


def asset_files() -> list[pathlib.Path]:
  """Every file that ships but the README, which holds the card itself."""
  return sorted(p for p in ASSETS.rglob('*') if p.is_file() and p != README)


def digest() -> str:
  """SHA-256 over names and contents of the assets."""
  found = hashlib.sha256()
  for path in asset_files():
    found.update(f'{path.relative_to(ASSETS)}\0'.encode())
    found.update(hashlib.sha256(path.read_bytes()).digest())
  return found.hexdigest()


def assets(models: dict[str, Any], seconds: float) -> records.Row:
  """Bytes of each part, seconds to load them all, the models' sizes."""
  parts: dict[str, int] = {}
  for path in asset_files():
    part = path.relative_to(ASSETS).parts[0]
    parts[part] = parts.get(part, 0) + path.stat().st_size
  configs = {name: model.config for name, model in models.items()
             if isinstance(model, checkpoint.Loaded)}
  return {
      'bytes': parts, 'load_seconds': seconds,
      'models': {name: dataclasses.asdict(config)
                 | {'parameters': t5.count_params(config)}
                 for name, config in configs.items()}}


def measured(
    path: pathlib.Path, key: records.Row, make: Callable[[], records.Row]
) -> records.Row:
  """The row of `key`, made and written if it is not there yet."""
  for row in records.read(path):
    if key.items() <= row.items():
      return row
  logging.info('%s', key)
  row = key | make()
  records.append(path, [row])
  generate.release_programs()
  return row


def measure_all(workdir: pathlib.Path) -> list[records.Row]:
  """Every row of the card.

  Raises:
    records.WorkdirError: where the workdir belongs to other assets.
  """
  began = time.perf_counter()
  names = shipped([*MODELS, *(d for d in DRAFTS if d not in MODELS)])
  models: dict[str, Any] = {
      name: drafters.load(f'mini/{name}') for name in names}
  seconds = time.perf_counter() - began
  sizes = assets(models, seconds)
  records.claim(
      workdir, {'assets': digest(), 'sentences': SENTENCES},
      environment.machine())
  path = workdir / 'card.jsonl'
  records.replace_rows(path, records.read(path))  # drops a torn last line
  rows = [measured(path, {'kind': 'assets'}, lambda: sizes)]
  target = models[TARGET]
  drafts = {name: models[name] for name in shipped(DRAFTS)}
  for task in TASKS:
    for name, temperature in (*((TARGET, t) for t in TEMPERATURES),
                              ('small', 0.0)):
      key = {'model': name, 'task': task, 'temperature': temperature}
      output = measured(path, {'kind': 'output', **key}, functools.partial(
          decode, models[name], task, temperature))
      rows.append(output)
      if temperature == 0:
        rows.append(measured(path, {'kind': 'score', **key}, functools.partial(
            score, task, output['texts'])))
      if name == TARGET:
        rows.append(measured(path, {'kind': 'alpha', **key}, functools.partial(
            alphas, target, drafts, task, temperature, output['ids'])))
  return rows


def table(titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
  lines = [titles, ['---', *['---:'] * (len(titles) - 1)], *rows]
  return ''.join(f'| {" | ".join(map(str, line))} |\n' for line in lines)


def models_table(sizes: records.Row) -> str:
  return table(
      ['model', 'width', 'MLP', 'heads', 'encoder + decoder layers',
       'parameters', 'MB'],
      [[name, m['d_model'], m['d_ff'], m['num_heads'],
        f'{m["encoder_layers"]} + {m["decoder_layers"]}',
        f'{m["parameters"]:,}', f'{sizes["bytes"][name] / 1e6:.2f}']
       for name, m in sizes['models'].items()]
      + [[name, *['–'] * 5, f'{sizes["bytes"][name] / 1e6:.2f}']
         for name in DRAFTS
         if name in sizes['bytes'] and name not in sizes['models']])


def scores_table(rows: Sequence[records.Row]) -> str:
  return table(
      ['model', 'task', 'sentences', 'BLEU', 'chrF'],
      [[r['model'], f'`{r["task"]}`', r['sentences'], f'{r["bleu"]:.1f}',
        f'{r["chrf"]:.1f}'] for r in rows])


def alphas_table(rows: Sequence[records.Row]) -> str:
  def cell(row, name):
    alpha, error = row['alpha'][name]
    return f'{alpha:.3f} ± {error:.3f}'
  titles = [f'`{r["task"]}`, temperature {r["temperature"]:g}' for r in rows]
  names = [name for name in DRAFTS if all(name in r['alpha'] for r in rows)]
  return table(
      ['draft', *titles],
      [[name, *(cell(r, name) for r in rows)] for name in names]
      + [['tokens', *(f'{r["tokens"]:,}' for r in rows)]])


def render(rows: Sequence[records.Row], machine: records.Row) -> str:
  """The card's tables; every figure is of `rows`."""
  [sizes] = of_kind(rows, 'assets')
  scores, outputs = of_kind(rows, 'score'), of_kind(rows, 'output')
  total = sum(sizes['bytes'].values()) / 1e6
  cut = ', '.join(
      f'{r["cut_outputs"]} (`{r["model"]}`, `{r["task"]}`, '
      f'{r["temperature"]:g})' for r in outputs if r['cut_outputs'])
  return '\n'.join([
      models_table(sizes),
      f'All assets: {total:.1f} MB, loaded in {sizes["load_seconds"]:.1f} s.\n',
      'Translation, plain decoding at temperature 0 against the held-out '
      'references:\n',
      scores_table(scores),
      f'Signatures: `{scores[0]["bleu_signature"]}`, '
      f'`{scores[0]["chrf_signature"]}`. Outputs cut at {max(BUCKETS)} tokens: '
      f'{cut or "none"}.\n',
      'α, mean of Σ min(p, q) over the tokens that the target generated, ± '
      'standard error over sentences:\n',
      alphas_table(of_kind(rows, 'alpha')),
      f'By `experiments.ladder.card`, {machine["platform"]} '
      f'({machine["processor"]}), float32, jax {machine["versions"]["jax"]}.\n',
  ])


def of_kind(rows: Sequence[records.Row], kind: str) -> list[records.Row]:
  return [row for row in rows if row['kind'] == kind]


def put_between_marks(text: str, tables: str) -> str:
  """`text` with what stands between the two marks replaced."""
  before, begin, rest = text.partition(MARKS[0])
  _, end, after = rest.partition(MARKS[1])
  if not begin or not end:
    raise records.WorkdirError(f'{README}: the marks {MARKS} are not there')
  return f'{before}{begin}\n{tables}{end}{after}'


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments {argv[1:]}')
  workdir = pathlib.Path(flags.FLAGS.workdir)
  try:
    rows = measure_all(workdir)
  except (ValueError, FloatingPointError) as error:
    raise SystemExit(f'error: {error}') from error
  machine = json.loads((workdir / 'config.json').read_text())['environment']
  tables = render(rows, machine)
  figures = [row for row in rows if row['kind'] != 'output']
  records.replace(workdir / 'card.json', json.dumps(
      {'environment': machine, 'measured': figures}, indent=2) + '\n')
  records.replace(workdir / 'card.md', tables)
  if flags.FLAGS.update:
    records.replace(README, put_between_marks(
        README.read_text('utf-8'), tables))
  print(tables)


if __name__ == '__main__':
  flags.DEFINE_string('workdir', None, 'Folder to write.', required=True)
  flags.DEFINE_bool('update', False, 'Put the tables in the README.')
  app.run(main)
