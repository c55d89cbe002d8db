"""Every option of a job: its type, what is allowed, what it means."""

from collections.abc import Callable
import dataclasses
import functools
import math
import re
from typing import Any, TypeVar

import ml_collections

from specdec_jax.architecture import T5Config

DTYPES = ('float32', 'bfloat16')
PRECISIONS = ('default', 'high', 'highest')
SCORES = ('bleu', 'rouge')
DISTILL_LOSSES = (
    'forward_kl', 'reverse_kl', 'total_variation', 'jensen_shannon')

Config = TypeVar('Config', 'RunConfig', 'TrainConfig')


class ConfigError(ValueError):
  """An option that is unknown, missing or outside what is allowed."""


@dataclasses.dataclass(frozen=True)
class Rule:
  """What an option allows, and how that reads in a message."""
  allows: Callable[[Any], bool]
  text: str


def whole(low: int, high: float = math.inf) -> Rule:
  def allows(x):
    return type(x) is int and low <= x <= high
  end = 'and above' if high == math.inf else f'to {high}'
  return Rule(allows, f'whole numbers of {low} {end}')


def number(low: float, high: float = math.inf) -> Rule:
  def allows(x):
    return type(x) in (int, float) and math.isfinite(x) and low <= x <= high
  end = 'and above' if high == math.inf else f'to {high}'
  return Rule(allows, f'finite numbers of {low:g} {end}')


def one_of(*values: str) -> Rule:
  return Rule(lambda x: x in values, ' or '.join(values))


_MESH = re.compile(
    r'|data=[1-9]\d*|model=[1-9]\d*|data=[1-9]\d*,model=[1-9]\d*')
MESH = Rule(lambda x: isinstance(x, str) and _MESH.fullmatch(x) is not None,
            "'' (one device) or 'data=N,model=M' or one of the two")
AUTO = 'auto'  # found on the first sentences, see `calibration`
AUTO_GAMMAS = (1, 3, 5, 7)  # from these, where no other is named


def or_else(other: Any, rule: Rule, text: str) -> Rule:
  """`rule`, or one value besides."""
  return Rule(lambda x: x == other or rule.allows(x), f'{rule.text}, or {text}')


NAME = Rule(lambda x: isinstance(x, str) and x != '', 'a name or a path')
TEXT = Rule(lambda x: isinstance(x, str), 'text')


def option(
    rule: Rule, many: bool = False, default: Any = dataclasses.MISSING
) -> Any:
  """A dataclass field that holds to `rule` (`many`: a tuple of such values)."""
  return dataclasses.field(
      metadata={'rule': rule, 'many': many}, default=default)


@dataclasses.dataclass(frozen=True)
class RunConfig:
  """The main job, resolved and checked.

  Attributes:
    task: data set (see `examples`).
    prefix: put before every source, as T5 was trained.
    sentences: how many of the data set's first sentences to decode.
    target: model folder, or `mini/target`.
    drafts: model or table folders, or rules (see `drafters`); each runs
      against the target.
    temperatures: of both models' laws; 0 is argmax.
    top_k, top_p: further adjustment of both; 0 and 1 are off.
    gammas: drafts a round, or `auto`: chosen among the others round by round.
      Plain decoding always runs beside them.
    batch_size: sentences decoded together.
    max_new_tokens: budget of a sentence.
    source_buckets: encoder lengths to pad to.
    repeats: times that every sentence is decoded and timed.
    seed: of sampling.
    dtype: of weights, activations and caches.
    matmul_precision: of products in float32, on accelerators.
    scores: of the text against the references.
    lenience: 1 is exact; below, the output is not the target's (see `accept`).
    acceptance: None, or a synthetic one, for timing; the output means nothing.
    mesh: devices that rows (`data`) and weights (`model`) are split over, as in
      'data=2,model=4'; '' is one device.
    draft_layout: of the drafts on that mesh: whole on every device, or split as
      the target is.
  """
  task: str = option(NAME)
  prefix: str = option(TEXT)
  sentences: int = option(whole(1))
  target: str = option(NAME)
  drafts: tuple[str, ...] = option(NAME, many=True)
  temperatures: tuple[float, ...] = option(number(0), many=True)
  top_k: int = option(whole(0))
  top_p: float = option(number(1e-6, 1))
  gammas: tuple[int | str, ...] = option(
      or_else(AUTO, whole(1), repr(AUTO)), many=True)
  batch_size: int = option(whole(1))
  max_new_tokens: int = option(whole(1))
  source_buckets: tuple[int, ...] = option(whole(1), many=True)
  repeats: int = option(whole(1))
  seed: int = option(whole(0, 2**31 - 1))
  dtype: str = option(one_of(*DTYPES))
  matmul_precision: str = option(one_of(*PRECISIONS))
  scores: tuple[str, ...] = option(one_of(*SCORES), many=True)
  lenience: float = option(number(1e-6, 1), default=1.0)
  acceptance: float | None = option(
      or_else(None, number(0, 1), 'None'), default=None)
  mesh: str = option(MESH, default='')
  draft_layout: str = option(
      one_of('replicated', 'split'), default='replicated')

  def __post_init__(self):
    data = self.mesh_sizes.get('data', 1)
    if self.batch_size % data:
      raise ConfigError(
          f'batch_size={self.batch_size}: allowed are multiples of mesh '
          f'data={data}')
    if max(self.fixed_gammas) > self.max_new_tokens:
      raise ConfigError(
          f'gammas={self.gammas}: allowed are whole numbers of 1 to '
          f'max_new_tokens={self.max_new_tokens}')

  @property
  def mesh_sizes(self) -> dict[str, int]:
    """Example: 'data=2,model=4' is {'data': 2, 'model': 4}."""
    pairs = [part.split('=') for part in self.mesh.split(',') if part]
    return {axis: int(size) for axis, size in pairs}

  @property
  def fixed_gammas(self) -> tuple[int, ...]:
    """The numbers among `gammas`; `auto` chooses among them."""
    fixed = tuple(g for g in self.gammas if isinstance(g, int))
    return fixed or AUTO_GAMMAS

  @property
  def slots(self) -> int:
    """The same room of the caches for every gamma of the sweep."""
    return self.max_new_tokens + max(self.fixed_gammas) + 1


@dataclasses.dataclass(frozen=True)
class TrainConfig:
  """The training of one model, resolved and checked.

  Attributes:
    model: fields of `T5Config`, checked when the config is made.
    vocabulary: SentencePiece model.
    train_data, validation_data: data sets with references (see `examples`).
    init: model folder to start from; '' starts from random weights.
    seed: of initialisation, order and dropout.
    buckets: lengths to pad to; pairs with a longer side are left out.
    batch_tokens: padded target positions of a batch.
    steps: in all; may be raised to go on.
    learning_rate: relative to each parameter's root mean square.
    warmup_steps, decay_steps: linear, at the start and at the end.
    adam_b2, clip_norm: of the optimizer.
    min_param_rms: parameters smaller than this still move.
    dropout_rate, label_smoothing: regularisation.
    ema_decay: of the average of the weights over the steps, which is evaluated
      and saved instead of the last ones; 0 is off.
    teacher: model folder to distil from; '' is none.
    distill_loss: from the student's law to the teacher's (see `distill`).
    distill_weight: of that loss; the rest is cross-entropy on the text.
    distill_temperature: of both laws in that loss.
    patience: stop where the lowest validation loss is so many evaluations old,
      and save the weights that had it; 0 is off and saves the last ones.
    log_every, eval_every, checkpoint_every: in steps.
    keep_every: checkpoints of these steps are kept for good; 0 keeps the last
      two (and with `patience` the best) only.
  """
  model: Any = option(Rule(lambda x: hasattr(x, 'keys'), 'T5Config fields'))
  vocabulary: str = option(NAME)
  train_data: tuple[str, ...] = option(NAME, many=True)
  validation_data: tuple[str, ...] = option(NAME, many=True)
  init: str = option(TEXT)
  seed: int = option(whole(0, 2**31 - 1))
  buckets: tuple[int, ...] = option(whole(2), many=True)
  batch_tokens: int = option(whole(1))
  steps: int = option(whole(1))
  learning_rate: float = option(number(0))
  warmup_steps: int = option(whole(0))
  decay_steps: int = option(whole(0))
  adam_b2: float = option(number(0, 1))
  clip_norm: float = option(number(0))
  min_param_rms: float = option(number(0))
  dropout_rate: float = option(number(0, 0.9))
  label_smoothing: float = option(number(0, 0.9))
  ema_decay: float = option(number(0, 0.999999))
  teacher: str = option(TEXT)
  distill_loss: str = option(one_of(*DISTILL_LOSSES))
  distill_weight: float = option(number(0, 1))
  distill_temperature: float = option(number(0.01, 100))
  patience: int = option(whole(0))
  log_every: int = option(whole(1))
  eval_every: int = option(whole(1))
  checkpoint_every: int = option(whole(1))
  keep_every: int = option(whole(0))

  @functools.cached_property
  def architecture(self) -> T5Config:
    _check_names('model', set(self.model), T5Config)
    try:
      return T5Config(**self.model)
    except ValueError as error:
      raise ConfigError(f'model.{error}') from error

  def __post_init__(self):
    _ = self.architecture
    if self.steps < self.warmup_steps + self.decay_steps:
      raise ConfigError(
          f'steps={self.steps}: allowed are warmup_steps + decay_steps = '
          f'{self.warmup_steps + self.decay_steps} and above')
    if self.teacher and not self.distill_weight:
      raise ConfigError(
          'distill_weight=0: allowed with a teacher are numbers above 0')


def resolve(config: ml_collections.ConfigDict, kind: type[Config]) -> Config:
  """Checks every option of a job.

  Args:
    config: values by name.
    kind: the dataclass of the job; its fields say what is allowed.

  Raises:
    ConfigError: naming the option, its value and what is allowed.
  """
  values = dict(config)
  _check_names('config', set(values), kind)
  return kind(**{
      field.name: _checked(field.name, values[field.name], **field.metadata)
      for field in dataclasses.fields(kind) if field.name in values})


def _check_names(where: str, given: set[str], kind: Any) -> None:
  fields = dataclasses.fields(kind)
  names = {field.name for field in fields}
  needed = {f.name for f in fields if f.default is dataclasses.MISSING}
  unknown, missing = given - names, needed - given
  if unknown or missing:
    raise ConfigError(
        f'{where} has unknown options {sorted(unknown)} and lacks '
        f'{sorted(missing)}; allowed are {sorted(names)}')


def _checked(name: str, value: Any, rule: Rule, many: bool) -> Any:
  if not many:
    if not rule.allows(value):
      raise ConfigError(f'{name}={value!r}: allowed are {rule.text}')
    return value
  if not (isinstance(value, tuple | list) and value):
    raise ConfigError(
        f'{name}={value!r}: allowed is a tuple of at least one; each '
        f'{rule.text}')
  for x in value:
    _checked(name, x, rule, False)
  if len(set(value)) != len(value):
    raise ConfigError(f'{name}={tuple(value)}: the same value twice')
  return tuple(value)
