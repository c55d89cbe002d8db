"""One sentence played again, round by round, so that it can be looked at.

    found = trace.trace(decoder, 'Open the file.')
    for seen in found.rounds:
      seen.pieces, seen.p, seen.q, seen.accepted, seen.next_piece

The rounds are those of decoding itself (`rounds.play_round`, `rounds.commit`)
with the sentence's own key; the replay must end in the ids that the decoder
gave.
"""

from collections.abc import Iterator
import dataclasses
import functools

import jax
from jax import numpy as jnp
from jaxtyping import Array, Float, Int

from specdec_jax import backend
from specdec_jax import generate
from specdec_jax import records
from specdec_jax import rounds as rounds_lib
from specdec_jax import vocab


class TraceError(ValueError):
  """A replay that did not give the decoder's own ids."""


@dataclasses.dataclass(frozen=True)
class TraceRound:
  """What happened in one round of one sentence.

  Attributes:
    drafted: ids that were put before the target, `pieces` their text.
    p, q: what target and draft gave each of them, both laws adjusted.
    accepted: how many leading drafts were kept and returned.
    next_id, next_piece, next_p: the token that the target's side drew behind
      the kept drafts (a correction, or the bonus after a full block), and the
      target's probability for it. It is not part of the output where a kept
      draft is the EOS.
    discarded: drafts that Algorithm 1 kept behind an EOS.
  """
  drafted: tuple[int, ...]
  pieces: tuple[str, ...]
  p: tuple[float, ...]
  q: tuple[float, ...]
  accepted: int
  next_id: int
  next_piece: str
  next_p: float
  discarded: int

  @property
  def ended(self) -> bool:
    """Whether a kept draft is the EOS, so that nothing follows it."""
    return vocab.EOS_ID in self.drafted[:self.accepted]

  @property
  def ids(self) -> tuple[int, ...]:
    """What the output grew by.

    Example: drafts (5, 8), one kept, next 9: (5, 9); with 1 (EOS) for the 5 it
    is (1,).
    """
    kept = self.drafted[:self.accepted]
    return kept if self.ended else (*kept, self.next_id)

  @property
  def marks(self) -> tuple[str, ...]:
    """What became of each draft: `accepted`, `rejected`, `not judged` behind
    a rejection, `past the end` behind an EOS.

    Example: drafts a b c, one kept: accepted, rejected, not judged.
    """
    behind = len(self.drafted) - self.accepted
    if self.ended:
      return ('accepted',) * self.accepted + ('past the end',) * behind
    return (('accepted',) * self.accepted
            + ('rejected', *('not judged',) * (behind - 1))[:behind])

  @property
  def next_mark(self) -> str:
    """`correction` of a rejected draft, `bonus` behind a full block, or `past
    the end`."""
    if self.ended:
      return 'past the end'
    return 'correction' if self.accepted < len(self.drafted) else 'bonus'


@dataclasses.dataclass(frozen=True)
class Trace:
  """One sentence, round by round."""
  source: str
  text: str
  ids: tuple[int, ...]
  rounds: tuple[TraceRound, ...]
  target: str
  draft: str | None
  gamma: int
  temperature: float

  def row(self, index: int) -> records.Row:
    """A line of `traces.jsonl`: what a report shows."""
    def rounded(values):
      return [round(x, 6) for x in values]
    return {
        'target': self.target, 'draft': self.draft, 'gamma': self.gamma,
        'temperature': self.temperature, 'index': index,
        'source': self.source, 'text': self.text, 'ids': list(self.ids),
        'rounds': [{
            'drafted': list(r.drafted), 'pieces': list(r.pieces),
            'p': rounded(r.p), 'q': rounded(r.q), 'marks': list(r.marks),
            'accepted': r.accepted, 'discarded': r.discarded,
            'next_id': r.next_id, 'next_piece': r.next_piece,
            'next_p': round(r.next_p, 6), 'next_mark': r.next_mark,
        } for r in self.rounds]}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Seen:
  """The numbers of one round that a trace shows, of every row."""
  tokens: Int[rounds_lib.AnyArray, 'b g']
  proposed: Int[rounds_lib.AnyArray, ' b']
  p: Float[rounds_lib.AnyArray, 'b g']
  q: Float[rounds_lib.AnyArray, 'b g']
  next: Int[rounds_lib.AnyArray, ' b']
  next_p: Float[rounds_lib.AnyArray, ' b']


def _at(law: Float[Array, '... v'], token: Int[Array, '...']):
  return jnp.take_along_axis(law, token[..., None], axis=-1)[..., 0]


@functools.cache
def _program(spec: rounds_lib.Spec):
  return jax.jit(functools.partial(_round, spec),
                 compiler_options=backend.compiler_options())


def _round(
    spec: rounds_lib.Spec, target_params, draft_params, sampling, keys_b,
    budget_b, state: rounds_lib.DecodeState
) -> tuple[rounds_lib.DecodeState, Seen]:
  """A round as in `rounds.decode_round`, with what it went by."""
  played = rounds_lib.play_round(
      spec, target_params, draft_params, sampling, keys_b,
      rounds_lib.room(state, budget_b), state)
  tokens_bg, p_bpv = played.tokens, played.verified.p
  accepted = played.accepted
  p_bv = jnp.take_along_axis(
      p_bpv, accepted.count[:, None, None], axis=1)[:, 0]
  seen = Seen(
      tokens=tokens_bg, proposed=played.proposed,
      p=_at(p_bpv[:, :spec.gamma], tokens_bg),
      q=(jnp.zeros(tokens_bg.shape) if played.drafted is None
         else _at(played.drafted.q, tokens_bg)),
      next=accepted.next, next_p=_at(p_bv, accepted.next))
  return rounds_lib.commit(state, played, budget_b), seen


def _rounds(
    decoder: generate.Decoder, output: generate.Output, index: int
) -> Iterator[TraceRound]:
  """Plays one sentence again, the first row of a batch of filler."""
  start = decoder.begin([output.source], index)
  state, play = start.state, _program(decoder.spec)
  for counts in output.rounds:
    state, seen = play(
        start.target_params, start.draft_params,
        decoder.sampling, start.keys, start.budget, state)
    host = jax.device_get(seen)
    n = host.proposed[0]
    drafted, p, q = (tuple(x[0, :n].tolist())
                     for x in (host.tokens, host.p, host.q))
    token = int(host.next[0])
    yield TraceRound(
        drafted=drafted, pieces=tuple(map(decoder.vocabulary.piece, drafted)),
        p=p, q=q, accepted=counts.accepted,
        next_id=token, next_piece=decoder.vocabulary.piece(token),
        next_p=float(host.next_p[0]), discarded=counts.discarded)


def trace(decoder: generate.Decoder, text: str, index: int = 0) -> Trace:
  """Decodes a text and plays its rounds again.

  Args:
    text: the source, any prefix included.
    index: its place in the data set, which gives its key.

  Raises:
    TraceError: if the replay gives other ids than decoding did. In float32 it
      never should; in bfloat16 the two programs may round a near-tie apart.
  """
  (output,) = decoder([text], index)
  rounds = tuple(_rounds(decoder, output, index))
  ids = tuple(token for seen in rounds for token in seen.ids)
  if ids != output.ids:
    raise TraceError(
        f'sentence {index}: the replay gives {ids}, decoding gave '
        f'{output.ids}')
  draft = decoder.draft.name if decoder.draft and decoder.spec.gamma else None
  return Trace(
      source=text, text=output.text, ids=ids, rounds=rounds,
      target=decoder.target.name, draft=draft, gamma=decoder.spec.gamma,
      temperature=float(decoder.sampling.temperature))
