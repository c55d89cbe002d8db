"""Load thousands of damaged checkpoints of every layout.

    python -m experiments.fuzz_checkpoints --cases=6000

Each case takes a small whole checkpoint, damages one file (bytes flipped, file
cut, extended, deleted, exchanged, made a link, or a value of its JSON or
msgpack edited) and loads it. It must be refused with `CheckpointError`, or load
with names, shapes and dtypes as before. Some damage no reader can notice: a
flipped bit in the numbers of a layout without checksums, two arrays of one
shape exchanged, another epsilon in a `config.json`, a tree without its last
layer where no config is stored. Those cases are counted as `altered`. Anything
else is a failure: another exception, a file opened outside the folder, more
than ten seconds, or 500 MB of memory.

Expected: no failures; about two minutes on two cores.
"""

import collections
from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import json
import os
import pathlib
import resource
import sys
import tempfile
import time
from typing import Any

from absl import app
from absl import flags
from absl import logging
import msgpack
import numpy as np

from specdec_jax import checkpoint
from tests import checkpoint_oracle as oracle

_SECONDS = 10.0
_MEMORY_MB = 500
_HOSTILE = (
    None, True, -1, 0, 1, 2, 9, 1 << 31, 1 << 62, 1 << 63, 1e308, '', '0',
    '../secret', '/etc/passwd', 'file:///etc/passwd', 'http://localhost/x',
    'a/../../secret', '\0', 'x' * 5000, [], [[]], {}, {'driver': 'http'},
    [1 << 40, 1 << 40], [-1, 8], 'bfloat16', '<f2', '<f8', 'I64', 'gzip',
    'zstd')


@dataclasses.dataclass(frozen=True)
class Case:
  """One damaged checkpoint and what became of it."""
  layout: str
  damage: str
  file: str
  outcome: str  # 'refused', 'equal', 'altered' or 'FAILED: ...'


def build(root: pathlib.Path) -> dict[str, pathlib.Path]:
  """Writes one whole checkpoint of each layout; returns their folders."""
  weights = oracle.arrays(oracle.TINY)
  leaves = checkpoint.from_arrays(weights)
  forms: dict[str, Callable[[pathlib.Path], None]] = {
      't5x_zarr': lambda f: oracle.write_t5x(f, weights, split=3),
      't5x_inline': lambda f: oracle.write_t5x(f, weights, inline=True),
      't5x_bare': lambda f: oracle.write_t5x(
          f, weights, inline=True, version=None),
      't5x_placeholder': lambda f: oracle.write_t5x(
          f, weights, placeholders=True),
      't5x_scanned': lambda f: oracle.write_t5x(
          f, oracle.scan(weights, oracle.TINY)),
      'orbax_ocdbt': lambda f: oracle.write_orbax(f, weights, ocdbt=True),
      'orbax_plain': lambda f: oracle.write_orbax(f, weights, ocdbt=False),
      'own': lambda f: checkpoint.write(
          f, leaves, oracle.TINY, None, 'orbax', np.float32),
      'hf': lambda f: checkpoint.write(
          f, leaves, oracle.TINY, None, 'hf', np.float32),
  }
  for name, write in forms.items():
    write(root / name)
  return {name: root / name for name in forms}


def _flip(data: bytes, generator: np.random.Generator) -> bytes:
  out = bytearray(data)
  for at in generator.integers(0, len(data), generator.integers(1, 5)):
    out[at] ^= int(generator.integers(1, 256))
  return bytes(out)


def _nodes(value: Any) -> Iterator[tuple[Any, Any]]:
  """(container, key) of everything in a tree of dicts and lists."""
  items = (value.items() if isinstance(value, dict) else
           enumerate(value) if isinstance(value, list) else ())
  for key, child in list(items):
    yield value, key
    yield from _nodes(child)


def _edit(value: Any, generator: np.random.Generator) -> Any:
  """Replaces, removes or renames one node."""
  nodes = list(_nodes(value))
  container, key = nodes[generator.integers(len(nodes))]
  action = generator.integers(4)
  if action == 0 or isinstance(container, list):
    container[key] = _HOSTILE[generator.integers(len(_HOSTILE))]
  elif action == 1:
    del container[key]
  elif action == 2:
    container[str(_HOSTILE[generator.integers(len(_HOSTILE))])] = (
        container.pop(key))
  else:
    container[key] = [container[key]] * 3
  return value


def _edit_file(name: str, data: bytes, generator: np.random.Generator) -> Any:
  """An edit that keeps the file's syntax, where it has one we know."""
  if name.endswith('.safetensors'):
    length = int.from_bytes(data[:8], 'little')
    header = json.dumps(_edit(json.loads(data[8:8 + length]), generator))
    return (len(header).to_bytes(8, 'little') + header.encode()
            + data[8 + length:])
  if pathlib.Path(name).name == 'checkpoint':
    content = msgpack.unpackb(data, strict_map_key=False)
    if generator.integers(10) == 0:
      return b'\x91' * 100_000
    try:
      return msgpack.packb(_edit(content, generator))
    except OverflowError:
      return data[:-1]
  return json.dumps(_edit(json.loads(data), generator)).encode()


def _has_syntax(name: str, data: bytes) -> bool:
  try:
    return pathlib.Path(name).name == 'checkpoint' or (
        name.endswith('.safetensors') or bool(json.loads(data)))
  except ValueError:
    return False


_DAMAGES: dict[str, Callable[..., bytes | None]] = {
    'flip': lambda name, data, other, g: _flip(data, g),
    'cut': lambda name, data, other, g: data[:g.integers(len(data))],
    'extend': lambda name, data, other, g: data + g.bytes(g.integers(1, 40)),
    'delete': lambda name, data, other, g: None,
    'exchange': lambda name, data, other, g: other,
    'edit': lambda name, data, other, g: _edit_file(name, data, g),
    'link': lambda name, data, other, g: None,
}
# How often each is drawn; flips and edits have the most different effects.
_WEIGHTS = (.3, .15, .05, .05, .1, .3, .05)


class _Opened:
  """The files that Python opens while `watch` is active."""

  def __init__(self):
    self._names: list[str] | None = None
    sys.addaudithook(self._hook)

  def _hook(self, event, args):
    if event == 'open' and self._names is not None and isinstance(
        args[0], str | bytes | os.PathLike):
      self._names.append(os.path.abspath(os.fsdecode(args[0])))

  @contextlib.contextmanager
  def watch(self) -> Iterator[list[str]]:
    self._names = names = []
    try:
      yield names
    finally:
      self._names = None


@dataclasses.dataclass(frozen=True)
class Result:
  """What a load gave; compared between whole and damaged."""
  config: Any
  leaves: dict[str, np.ndarray]

  def form(self):
    return {name: (x.shape, x.dtype) for name, x in self.leaves.items()}

  def equals(self, other: 'Result') -> bool:
    return self.config == other.config and all(
        np.array_equal(x, other.leaves[name], equal_nan=True)
        for name, x in self.leaves.items())


def load(folder: pathlib.Path) -> Result:
  """The walk of `checkpoint.load` as far as the device."""
  stored = checkpoint.open_checkpoint(folder)
  config = checkpoint.settle(stored)
  return Result(
      config, {name: leaf.read() for name, leaf in stored.leaves.items()})


def _is_shorter(found: Result, whole: Result) -> bool:
  """The same model without its last layers, which is a model as well."""
  layers = dict(encoder_layers=found.config.encoder_layers,
                decoder_layers=found.config.decoder_layers)
  return found.config == dataclasses.replace(whole.config, **layers) and (
      found.form().items() <= whole.form().items())


def _judge(folder: pathlib.Path, whole: Result, opened: _Opened) -> str:
  began = time.monotonic()
  try:
    with opened.watch() as names:
      found = load(folder)
    if found.form() != whole.form():
      return ('altered' if _is_shorter(found, whole) else
              'FAILED: loaded with other names, shapes or dtypes')
    outcome = 'equal' if found.equals(whole) else 'altered'
  except checkpoint.CheckpointError:
    outcome = 'refused'
  except Exception as error:  # a crash is what this program looks for
    return f'FAILED: {type(error).__name__}: {str(error)[:300]}'
  outside = [name for name in names
             if not name.startswith(f'{folder}{os.sep}')
             and not name.endswith(('.py', '.pyc'))]
  if outside:
    return f'FAILED: opened {outside[0]}'
  if time.monotonic() - began > _SECONDS:
    return f'FAILED: took {time.monotonic() - began:.0f} s'
  return outcome


def run(cases: int, seed: int, root: pathlib.Path) -> list[Case]:
  """Damages and loads `cases` checkpoints below `root`."""
  generator = np.random.default_rng(seed)
  opened = _Opened()
  secret = root / 'secret'
  secret.write_bytes(b'{}')
  folders = build(root)
  whole = {name: load(folder) for name, folder in folders.items()}
  files = {name: sorted(f for f in folder.rglob('*') if f.is_file())
           for name, folder in folders.items()}
  out = []
  for i in range(cases):
    layout = list(folders)[i % len(folders)]
    file, other = (files[layout][k] for k in generator.integers(
        len(files[layout]), size=2))
    if file.stat().st_size == 0:
      continue
    damage = str(generator.choice(list(_DAMAGES), p=_WEIGHTS))
    data = file.read_bytes()
    if damage == 'edit' and not _has_syntax(str(file), data):
      damage = 'flip'
    damaged = _DAMAGES[damage](
        str(file), data, other.read_bytes(), generator)
    file.unlink()
    if damage == 'link':
      file.symlink_to(secret)
    elif damaged is not None:
      file.write_bytes(damaged)
    outcome = _judge(folders[layout], whole[layout], opened)
    if outcome == 'altered' and damage not in ('flip', 'exchange') and (
        file.name not in ('config.json', 'checkpoint') or damage != 'edit'):
      outcome = 'FAILED: loaded with other values'
    file.unlink(missing_ok=True)
    file.write_bytes(data)
    out.append(Case(layout, damage, str(file.relative_to(root)), outcome))
  return out


def peak_mb() -> float:
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def failures(cases: list[Case]) -> list[Case]:
  return [case for case in cases if case.outcome.startswith('FAILED')]


def report(cases: list[Case]) -> str:
  """A table of outcomes by layout and by damage."""
  outcomes = ('refused', 'equal', 'altered', 'FAILED')
  lines = [f'| | {" | ".join(outcomes)} |', '|---' * 5 + '|']
  for of in ('layout', 'damage'):
    for name in sorted({getattr(case, of) for case in cases}):
      counts = collections.Counter(
          case.outcome.split(':')[0] for case in cases
          if getattr(case, of) == name)
      lines.append(f'| {name} | ' + ' | '.join(
          str(counts[outcome]) for outcome in outcomes) + ' |')
  total = collections.Counter(case.outcome.split(':')[0] for case in cases)
  lines.append(f'{len(cases)} cases: ' + ', '.join(
      f'{total[outcome]} {outcome}' for outcome in outcomes))
  return '\n'.join(lines)


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments {argv[1:]}')
  logging.set_verbosity(logging.ERROR)
  with tempfile.TemporaryDirectory() as root:
    before, began = peak_mb(), time.monotonic()
    cases = run(flags.FLAGS.cases, flags.FLAGS.seed, pathlib.Path(root))
    seconds, grown = time.monotonic() - began, peak_mb() - before
  for case in failures(cases):
    print(case)
  print(report(cases))
  print(f'{seconds:.0f} s, peak memory grew by {grown:.0f} MB')
  if failures(cases) or grown > _MEMORY_MB:
    sys.exit(1)


if __name__ == '__main__':
  flags.DEFINE_integer('cases', 6000, 'Number of damaged checkpoints.')
  flags.DEFINE_integer('seed', 0, 'Of the damages.')
  app.run(main)
