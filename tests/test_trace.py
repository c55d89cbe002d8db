"""The replay of a sentence is its decoding, and shows what it went by."""

import dataclasses

import pytest

from specdec_jax import generate
from specdec_jax import trace
from tests import tiny

TEXT = tiny.TEXTS[1]


def decoder(draft: str | None = 'small', gamma=3, **options):
  return generate.Decoder(
      tiny.loaded(tiny.TARGET),
      tiny.loaded(tiny.DRAFTS[draft], 1) if draft else None, gamma=gamma,
      **{'max_new_tokens': 12, 'source_buckets': (64,), **options})


@pytest.mark.parametrize(('temperature', 'batch_size'), [(0.0, 3), (1.0, 1)])
def test_the_replay_gives_the_ids_and_counts_of_decoding(
    temperature, batch_size):
  one = decoder(temperature=temperature, batch_size=batch_size, seed=3)
  for index, text in enumerate(tiny.TEXTS[:3]):
    found = trace.trace(one, text, index)
    (output,) = one([text], index)
    assert found.ids == output.ids and found.text == output.text
    assert [(len(r.drafted), r.accepted, r.discarded) for r in found.rounds
            ] == [(r.drafted, r.accepted, r.discarded) for r in output.rounds]


def test_the_replay_has_room_for_a_sentence_of_any_length():
  one = decoder(None, 0, max_new_tokens=140, temperature=1.0, seed=1)
  found = trace.trace(one, TEXT)
  assert found.ids == one([TEXT])[0].ids
  assert len(found.ids) > one.spec.sizes[0]


def test_each_draft_has_its_piece_and_both_probabilities():
  found = trace.trace(decoder(temperature=1.0), TEXT)
  vocabulary = tiny.vocabulary()
  assert (found.gamma, found.temperature, found.draft) == (3, 1.0, 'tiny')
  for seen in found.rounds:
    assert len(seen.p) == len(seen.q) == len(seen.drafted)
    assert seen.pieces == tuple(map(vocabulary.piece, seen.drafted))
    assert seen.next_piece == vocabulary.piece(seen.next_id)
    assert all(0 <= x <= 1 for x in (*seen.p, seen.next_p))
    assert all(0 < x <= 1 for x in seen.q)  # each was drawn from its q


def test_at_temperature_zero_laws_are_one_hot():
  for seen in trace.trace(decoder(), TEXT).rounds:
    judged = list(zip(seen.p, seen.marks, strict=True))
    assert all(p == 1 for p, mark in judged if mark == 'accepted')
    assert all(p == 0 for p, mark in judged if mark == 'rejected')
    assert set(seen.q) <= {1.0} and seen.next_p == 1


def test_a_draft_equal_to_the_target_is_kept_whole():
  target = tiny.loaded(tiny.TARGET)
  same = generate.Decoder(target, target, gamma=2, max_new_tokens=12,
                          source_buckets=(64,))
  *rounds, _ = trace.trace(same, TEXT).rounds
  assert {r.next_mark for r in rounds} == {'bonus'}
  assert {r.marks for r in rounds} == {('accepted', 'accepted')}


def test_plain_decoding_has_rounds_of_one_token():
  found = trace.trace(decoder(None, 0), TEXT)
  assert found.draft is None
  assert [r.ids for r in found.rounds] == [(i,) for i in found.ids]


def a_round(drafted, accepted, next_id=9, discarded=0):
  return trace.TraceRound(
      drafted, ('x',) * len(drafted), (0.5,) * len(drafted),
      (0.5,) * len(drafted), accepted, next_id, 'y', 0.5, discarded)


@pytest.mark.parametrize(('drafted', 'accepted', 'ids', 'marks'), [
    ((5, 8), 1, (5, 9), ('accepted', 'rejected')),
    ((1, 8), 1, (1,), ('accepted', 'past the end')),
    ((5, 8), 2, (5, 8, 9), ('accepted', 'accepted')),
    ((5, 6, 7), 1, (5, 9), ('accepted', 'rejected', 'not judged')),
    ((), 0, (9,), ()),
])
def test_marks_tell_what_became_of_each_draft(drafted, accepted, ids, marks):
  seen = a_round(drafted, accepted)
  assert (seen.ids, seen.marks) == (ids, marks)
  assert seen.next_mark == (
      'past the end' if ids == (1,) else
      'bonus' if accepted == len(drafted) else 'correction')


def test_a_replay_that_differs_is_refused(monkeypatch):
  one = decoder()
  decode_batch = one.decode_batch

  def altered(sources, first_index):
    (output,) = decode_batch(sources, first_index)
    return [dataclasses.replace(output, ids=(7, 7))]
  monkeypatch.setattr(one, 'decode_batch', altered)
  with pytest.raises(trace.TraceError, match='sentence 4: the replay gives'):
    trace.trace(one, TEXT, 4)
