"""This decoder beside transformers and CTranslate2: same weights, same ids.

    pip install -e .[bench]
    python -m experiments.bench.peers --json=peers.jsonl
    python -m experiments.bench.peers --sentences=3 --repeats=1    # to try it

Target and drafts are the built-in ladder, float32 (the stored values are
bfloat16, so exact), written in Hugging Face's layout to a temporary folder and
read from there by the peers. All get the same source ids, one sentence at a
time, greedy, at most 64 tokens, two threads. Each library has a process of its
own, CTranslate2 one for each type of numbers: with a second model beside it, it
takes four times as long. All engines decode all sentences in turn, repeat by
repeat; a first pass over the sentences is not counted. Seconds are those of the
whole call, encoder included, for all alike. `identical` counts sentences with
the ids of transformers' plain greedy search. Two cores: about three minutes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import functools
import importlib
import multiprocessing
import pathlib
import tempfile
import time
from typing import Any

from absl import flags
import jax
import numpy as np
import tqdm

from experiments import common as tables
from experiments.bench import common
from specdec_jax import calibration
from specdec_jax import checkpoint
from specdec_jax import config as config_lib
from specdec_jax import examples as examples_lib
from specdec_jax import generate
from specdec_jax import vocab

TOKENS, BUCKETS = 64, (16, 32, 64)
GAMMAS = (3, 5)
BASE = ('ctranslate2', 'float32')
REFERENCE = ('transformers', 'plain')
ASSISTED = ('transformers', 'assisted')
PAUSE = 0.5  # seconds; threads of the engine before spin that long for work

Ids = tuple[int, ...]
Engine = Callable[[Ids], Ids]  # source ids, EOS last -> output ids with EOS
Pass = Callable[[Sequence[Ids]], tuple[list[Ids], float]]  # outputs, seconds
Key = tuple[str, str]          # engine, mode


class EngineError(Exception):
  """What an engine that cannot run said."""


def cut(ids: Sequence[int]) -> Ids:
  """Output up to its first EOS, that included.

  Example: (5, 1, 0, 0) is (5, 1); (5, 6) stays.
  """
  ids = tuple(map(int, ids))
  return ids[:ids.index(vocab.EOS_ID) + 1] if vocab.EOS_ID in ids else ids


def export(name: str, folder: pathlib.Path) -> str:
  """Writes a model in Hugging Face's layout, float32."""
  stored = checkpoint.open_checkpoint(name)
  checkpoint.write(folder, stored.leaves, checkpoint.settle(stored),
                   stored.vocabulary, 'hf', np.float32)
  return str(folder)


def transformers_engines(target: str, draft: str) -> dict[Key, Engine]:
  """Greedy search, plain and with the draft as assistant."""
  # Of the extra `bench`.
  torch: Any = importlib.import_module('torch')
  transformers: Any = importlib.import_module('transformers')
  torch.set_num_threads(common.CORES)
  load = transformers.T5ForConditionalGeneration.from_pretrained
  model, assistant = (load(x).eval() for x in (target, draft))
  for one in (model, assistant):
    # `generate` makes a cache of as many layers as the encoder has; where the
    # decoder has more it fails. The models are built, so this alone changes.
    one.config.num_layers = one.config.num_decoder_layers

  def decode(source: Ids, **options: Any) -> Ids:
    ids = torch.tensor([source])
    with torch.no_grad():
      found = model.generate(
          input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False,
          num_beams=1, max_new_tokens=TOKENS, **options)
    return cut(found[0, 1:].tolist())
  return {REFERENCE: decode,
          ASSISTED: lambda source: decode(source, assistant_model=assistant)}


@dataclasses.dataclass(frozen=True)
class NumberTokenizer:
  """Tokens that are their ids in digits: all that CTranslate2 asks for."""
  size: int
  pad_token: str = str(vocab.PAD_ID)
  eos_token: str = str(vocab.EOS_ID)
  unk_token: str = '2'

  def get_vocab(self) -> dict[str, int]:
    return {str(i): i for i in range(self.size)}

  def convert_ids_to_tokens(self, token: int) -> str:
    return str(token)


def convert(target: str, size: int, folder: str) -> str:
  """Writes a model of Hugging Face's layout in CTranslate2's."""
  ctranslate2: Any = importlib.import_module('ctranslate2')

  class Converter(ctranslate2.converters.TransformersConverter):

    def load_tokenizer(self, tokenizer_class, model_name_or_path, **options):
      return NumberTokenizer(size)
  return Converter(target).convert(folder)


def ctranslate2_engines(folder: str, kind: str) -> dict[Key, Engine]:
  """Greedy search in one type of numbers."""
  ctranslate2: Any = importlib.import_module('ctranslate2')
  translator = ctranslate2.Translator(
      folder, device='cpu', compute_type=kind, inter_threads=1,
      intra_threads=common.CORES)

  def decode(source: Ids) -> Ids:
    [found] = translator.translate_batch(
        [[str(i) for i in source]], beam_size=1, max_decoding_length=TOKENS,
        return_end_token=True)
    return cut([int(token) for token in found.hypotheses[0]])
  return {('ctranslate2', kind): decode}


def our_engines(names: Mapping[str, str]) -> dict[Key, Engine]:
  """Plain, and with every draft each gamma and `auto`; models by role."""
  target, *drafts = map(checkpoint.load, names.values())
  progress = tqdm.tqdm(total=1 + len(drafts) * (len(GAMMAS) + 1),
                       desc='compile', unit='program')

  def decoder(**options: Any) -> generate.Decoder:
    made = generate.Decoder(
        target, max_new_tokens=TOKENS, source_buckets=BUCKETS, **options)
    for length in BUCKETS:
      made.compile(length)
    progress.update()
    return made

  def engine(made: generate.Decoder) -> Engine:
    return lambda source: made.decode_batch(
        [vocab.Source(source, len(source))], 0)[0].ids

  plain = decoder(gamma=0)
  few = [(plain.encode([example.source], i), i) for i, example in enumerate(
      examples_lib.load('ende_mini', calibration.SENTENCES))]
  found = {('ours', 'plain'): engine(plain)}
  for name, draft in zip(list(names)[1:], drafts, strict=True):
    decoders: dict[int | str, generate.Decoder] = {0: plain}
    for gamma in GAMMAS:
      decoders[gamma] = decoder(draft=draft, gamma=gamma)
    times = calibration.measure(decoders, few)
    chooser = decoder(
        draft=draft, gamma=max(GAMMAS), policy=calibration.policy(times))
    decoders[config_lib.AUTO] = (decoders | {config_lib.AUTO: chooser})[
        calibration.fastest(times, chooser, decoders, few)]
    for gamma in (*GAMMAS, config_lib.AUTO):
      found['ours', f'{name} γ={gamma}'] = engine(decoders[gamma])
  progress.close()
  return found


def timed(engine: Engine) -> Pass:
  """All sentences, one by one, and the seconds they took.

  Raises (the function returned):
    EngineError: for what a peer raises; each refuses in its own way.
  """
  def decode(sources: Sequence[Ids]) -> tuple[list[Ids], float]:
    began = time.perf_counter()
    try:
      outputs = [engine(source) for source in sources]
    except (AttributeError, IndexError, NotImplementedError, RuntimeError,
            TypeError, ValueError) as error:
      raise EngineError(f'{type(error).__name__}: {error}') from error
    return outputs, time.perf_counter() - began
  return decode


def serve(connection: Any, make: Callable[..., dict[Key, Engine]],
          args: Sequence[Any]) -> None:
  """The process of one library: makes its engines, then decodes as asked."""
  with jax.default_matmul_precision('highest'):
    engines = make(*args)
    connection.send(list(engines))
    while asked := connection.recv():
      key, sources = asked
      try:
        connection.send(timed(engines[key])(sources))
      except EngineError as error:
        connection.send(error)


def ask(
    connection: Any, key: Key, sources: Sequence[Ids]
) -> tuple[list[Ids], float]:
  """One pass in the process at the other end."""
  connection.send((key, sources))
  answer = connection.recv()
  if isinstance(answer, EngineError):
    raise answer
  return answer


@contextlib.contextmanager
def own_process(
    make: Callable[..., dict[Key, Engine]], *args: Any
) -> Iterator[dict[Key, Pass]]:
  """The engines of `make(*args)` in a process of their own, until the end."""
  spawn = multiprocessing.get_context('spawn')
  here, there = spawn.Pipe()
  process = spawn.Process(target=serve, args=(there, make, args), daemon=True)
  process.start()
  there.close()  # so that the end of the process ends `recv`
  yield {key: functools.partial(ask, here, key) for key in here.recv()}
  here.send(None)
  process.join()


@dataclasses.dataclass
class Run:
  """What one engine gave: ids of the last repeat, seconds and tokens of each;
  `error` where it cannot run at all."""
  ids: list[Ids] = dataclasses.field(default_factory=list)
  seconds: list[float] = dataclasses.field(default_factory=list)
  tokens: list[int] = dataclasses.field(default_factory=list)
  error: str | None = None


def decode_in_turn(
    engines: Mapping[Key, Pass], sources: Sequence[Ids], repeats: int,
    progress: tqdm.tqdm
) -> dict[Key, Run]:
  """Every engine over all sentences, repeat by repeat; the first is not
  counted, and a peer that fails in it is left out by name."""
  runs = {key: Run() for key in engines}
  for repeat in range(repeats + 1):
    # Turned round each time, so that a machine that slows down favours none.
    for key in list(engines)[::-1 if repeat % 2 else 1]:
      run = runs[key]
      progress.set_description(f'repeat {repeat}: {" ".join(key)}')
      progress.update()
      if run.error:
        continue
      time.sleep(PAUSE)
      try:
        run.ids, seconds = engines[key](sources)
      except EngineError as error:
        if key[0] == 'ours' or repeat:
          raise
        run.error = str(error)
        continue
      if repeat:
        run.seconds.append(seconds)
        run.tokens.append(sum(map(len, run.ids)))
  return runs


def rate(run: Run, repeat: int | None = None) -> float:
  """Tokens a second, of one repeat or of all."""
  at = slice(None) if repeat is None else slice(repeat, repeat + 1)
  return sum(run.tokens[at]) / sum(run.seconds[at])


def rows(runs: Mapping[Key, Run]) -> list[common.Row]:
  """A line an engine and mode: ratios of the totals, and the smallest and
  largest of one repeat."""
  def line(key: Key, run: Run) -> common.Row:
    found: common.Row = {'engine': key[0], 'mode': key[1]}
    if run.error:
      return found | {'error': run.error}
    found |= {'tokens_per_second': rate(run), 'sentences': len(run.ids),
              'tokens': run.tokens[-1]}
    if not runs[REFERENCE].error:
      found['identical'] = sum(
          a == b for a, b in zip(run.ids, runs[REFERENCE].ids, strict=True))
    for name, other in (('ctranslate2_float32', runs[BASE]),
                        ('transformers_assisted', runs[ASSISTED])):
      if not other.error:
        single = [rate(run, i) / rate(other, i)
                  for i in range(len(run.seconds))]
        found |= {f'ratio_to_{name}': rate(run) / rate(other),
                  f'ratio_to_{name}_low': min(single),
                  f'ratio_to_{name}_high': max(single)}
    return found
  return [line(*item) for item in runs.items()]


def compare(
    names: Mapping[str, str], sources: Sequence[Ids], repeats: int
) -> list[common.Row]:
  """The rows of a ladder: `names` are models by role, `target` first and then
  drafts, the first of them the assistant of transformers."""
  target, draft, *_ = names
  size = checkpoint.read_config(names[target]).vocab_size
  with (tempfile.TemporaryDirectory() as place,
        contextlib.ExitStack() as processes):
    folder = pathlib.Path(place)
    written = [export(names[role], folder / role) for role in (target, draft)]
    converted = convert(written[0], size, str(folder / 'ctranslate2'))
    families = ((transformers_engines, *written),
                (ctranslate2_engines, converted, 'float32'),
                (ctranslate2_engines, converted, 'int8'),
                (our_engines, names))
    engines: dict[Key, Pass] = {}
    for make, *args in families:
      engines |= processes.enter_context(own_process(make, *args))
    with tqdm.tqdm(total=(repeats + 1) * len(engines), unit='pass') as progress:
      return rows(decode_in_turn(engines, sources, repeats, progress))


def spread(name: str) -> tables.Column:
  """A ratio and, in brackets, its smallest and largest of one repeat."""
  parts = [tables.column(f'ratio_to_{name}{x}') for x in ('', '_low', '_high')]
  return lambda row: '{} ({} to {})'.format(*(part(row) for part in parts))


COLUMNS = {
    'engine': tables.text('engine'), 'mode': tables.text('mode'),
    'tokens/s': tables.column('tokens_per_second', 1),
    'over CTranslate2 float32': spread('ctranslate2_float32'),
    'over assisted': spread('transformers_assisted'),
    'identical': lambda row: (
        f'{row.get("identical", tables.MISSING)} of '
        f'{row.get("sentences", tables.MISSING)}'),
    'why not': lambda row: tables.cell(row.get('error', ''))}


def main() -> None:
  options = flags.FLAGS
  words = checkpoint.load('mini/target').vocabulary
  sources = [
      words.encode_source(example.source, BUCKETS[-1]).ids
      for example in examples_lib.load('ende_mini', options.sentences)]
  names = {role: f'mini/{role}' for role in (
      'target', 'small', 'base', 'large')}
  common.publish(
      f'{len(sources)} sentences, {options.repeats} repeats, batch 1, '
      f'{common.CORES} threads', COLUMNS,
      compare(names, sources, options.repeats), options.json)


if __name__ == '__main__':
  flags.DEFINE_integer('sentences', 32, 'Of the held-out help pages.', 1)
  flags.DEFINE_integer('repeats', 3, 'Counted passes of each engine.', 1)
  common.main(main)
