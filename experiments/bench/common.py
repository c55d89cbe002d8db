"""What the benchmarks share: two cores, random models, one table, JSON lines.

Every script measures in turn, in one process, and takes ratios of what stood
beside each other; nothing here belongs in a test.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import os
import pathlib
from typing import Any

from absl import app
from absl import flags
from absl import logging
import jax
from jax import numpy as jnp
import numpy as np

from experiments import common
from specdec_jax import architecture
from specdec_jax import checkpoint
from specdec_jax import drafters
from specdec_jax import generate
from specdec_jax import measure
from specdec_jax import records
from specdec_jax import t5
from specdec_jax import vocab

Row = dict[str, Any]

CORES = 2


@dataclasses.dataclass(frozen=True)
class Ids(vocab.Vocabulary):
  """Ids without text, as many as a table has, so that all logits are made."""
  size: int = 0

  @property
  def text_size(self) -> int:
    return self.size

  def piece(self, token: int) -> str:
    return str(token)

  def decode(self, ids: Sequence[int]) -> str:
    return ''


def random_model(
    name: str, config: architecture.T5Config, seed: int = 0
) -> checkpoint.Loaded:
  """A model of random float32 weights; values are of no matter for its time.

  One block of noise, whose odd length divides no shape, is laid out again and
  again: 783 million fresh draws would take longer than the measurement.
  """
  noise = np.random.default_rng(seed).standard_normal(99_991, np.float32)

  def fill(path, leaf):
    kind = path[-1].key
    if kind == 'scale':
      return jnp.ones(leaf.shape, jnp.float32)
    scale = leaf.shape[0]**-0.5 if kind == 'kernel' else 1.0
    if 'query' in str(path):  # see `t5`: no 1/sqrt(k) in attention
      scale *= config.head_dim**-0.5
    return jnp.asarray(np.resize(noise * np.float32(scale), leaf.shape))
  params = jax.tree_util.tree_map_with_path(fill, t5.param_shapes(config))
  words = Ids(pathlib.Path('ids'), size=config.vocab_size)
  return checkpoint.Loaded(name, config, params, words)


def target_side(loaded: checkpoint.Loaded) -> measure.Side:
  """The model as the decoder runs it."""
  return measure.Side(
      generate.bind(loaded, loaded.vocabulary.text_size), loaded.packed)


def draft_side(
    draft: checkpoint.Loaded | drafters.Modelless,
    target: checkpoint.Loaded
) -> measure.DraftSide:
  return measure.DraftSide(
      generate.bind_drafter(draft, target.vocabulary), draft.packed)


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
  """Of the straight line closest to the points (least squares).

  Example: (1, 3), (2, 5), (3, 7) rise by 2 a unit.
  """
  return float(np.polyfit(xs, ys, 1)[0])


def publish(
    title: str, columns: Mapping[str, common.Column], rows: Sequence[Row],
    json: str | None
) -> None:
  """Prints one table; with `json`, one JSON object a row goes to that file."""
  common.publish(
      common.Lab(None), 'rows', title, [common.Table('rows', columns, rows)])
  if json:
    records.replace_rows(pathlib.Path(json), rows)


def main(measure_and_publish: Callable[[], None]) -> None:
  """The command line of a script: `CORES` cores, products in full float32."""
  flags.DEFINE_string('json', None, 'File for one JSON object a row.')

  def start(argv):
    if len(argv) > 1:
      raise app.UsageError(f'unexpected arguments {argv[1:]}')
    logging.set_verbosity(logging.WARNING)
    if hasattr(os, 'sched_setaffinity'):  # before XLA counts its threads
      os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    with jax.default_matmul_precision('highest'):
      measure_and_publish()
  app.run(start)
