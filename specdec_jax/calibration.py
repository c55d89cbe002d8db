"""What `gamma=auto` is, found on a few sentences before the run.

Every fixed gamma is timed; from that come the costs and the first acceptance of
the program that chooses row by row (`adaptive`). Then the fastest program is
taken: plain decoding, one gamma for all, or that one. In doubt it is plain
decoding: the sentences are few, and the best of several has had luck.
"""

from collections.abc import Mapping, Sequence
import dataclasses

import numpy as np

from specdec_jax import adaptive
from specdec_jax import config as config_lib
from specdec_jax import generate
from specdec_jax import hosts
from specdec_jax import theory
from specdec_jax import vocab

SENTENCES, REPEATS = 32, 4
MARGIN = 0.02  # gain over plain decoding that is worth a draft

Batch = tuple[Sequence[vocab.Source], int]  # and the index of its first


@dataclasses.dataclass(frozen=True)
class Times:
  """Seconds a token by decoder; coins that drafts flipped, and those passed."""
  seconds: dict[int | str, float]
  passed: int
  flipped: int

  @property
  def alpha(self) -> float:
    return self.passed / max(self.flipped, 1)

  @property
  def least(self) -> int | str:
    return min(self.seconds, key=self.seconds.__getitem__)

  @property
  def fastest(self) -> int | str:
    """What takes least; 0 unless something gains `MARGIN` over it.

    Example: of 0 in 1.00, 1 in 0.99 and 3 in 1.10 it is 0, of 0 in 1.00 and 1
    in 0.90 it is 1.
    """
    gained = self.seconds[self.least] * (1 + MARGIN) < self.seconds[0]
    return self.least if gained else 0


def measure(
    decoders: Mapping[int | str, generate.Decoder], batches: Sequence[Batch]
) -> Times:
  """Decodes the batches with each decoder in turn, `REPEATS` times.

  Of several hosts, all of which must call it, the first one's times count:
  they may run one program together, so they must choose the same.
  """
  seconds, tokens = dict.fromkeys(decoders, 0.0), dict.fromkeys(decoders, 0)
  rounds: list[generate.Round] = []
  for _ in range(REPEATS):
    for sources, first in batches:
      for name, decoder in decoders.items():
        outputs = decoder.decode_batch(sources, first)
        seconds[name] += sum(output.decoder_seconds for output in outputs)
        tokens[name] += sum(len(output.ids) for output in outputs)
        rounds += [r for output in outputs for r in output.rounds]
  drafted = np.array([r.drafted for r in rounds])
  passed = np.array([r.accepted + r.discarded for r in rounds])
  times, kept, flipped = hosts.gather([
      [seconds[name] / tokens[name] for name in decoders],
      int(passed.sum()), int(adaptive.coins(drafted, passed).sum())])[0]
  return Times(dict(zip(decoders, times, strict=True)), kept, flipped)


def round_costs(times: Times) -> dict[int, float]:
  """By gamma, the plain steps that a round must cost for Eq. 1 to give the time
  that a token took.

  So they hold what the formula leaves out: acceptance that is not independent,
  rounds that an EOS cuts.

  Example: at alpha 0.5 Eq. 1 expects 1.5 tokens of gamma 1; where a token takes
  0.8 of its time in plain decoding, the cost is 1.2.
  """
  return {
      gamma: float(theory.tokens_per_round(times.alpha, gamma))
      * seconds / times.seconds[0]
      for gamma, seconds in times.seconds.items()
      if isinstance(gamma, int) and gamma}


def policy(times: Times) -> adaptive.Policy:
  """What to choose from row by row."""
  return adaptive.timed_policy(round_costs(times), times.alpha)


def fastest(
    times: Times, chooser: generate.Decoder,
    decoders: Mapping[int | str, generate.Decoder], batches: Sequence[Batch]
) -> int | str:
  """The gamma of the fastest decoder, `auto` for the one that chooses.

  Args:
    times: of all that have one gamma; the best of them and plain decoding are
      timed once more, beside the chooser.
    chooser: made with `policy(times)`.
    decoders: by gamma, 0 included.
  """
  finalists = {gamma: decoders[gamma] for gamma in {0, times.least}}
  if chooser.policy is not None:  # else it is plain decoding itself
    finalists[config_lib.AUTO] = chooser
  return measure(finalists, batches).fastest
