"""The loop: ends, budgets, caches, rows and counts, on scripted models.

Scripted models (tests/scripted.py) give exact expected values. `plain` is the
same loop with gamma 0.
"""

import jax
from jax import numpy as jnp
import numpy as np
import pytest

from specdec_jax import cache as cache_lib
from specdec_jax import decode
from specdec_jax import rounds as rounds_lib
from specdec_jax import sampling
from tests import scripted

TARGET = scripted.noisy(0, 12)
# Drafts that agree with the target always, often, seldom and never.
DRAFTS = {
    'same': TARGET,
    'other': scripted.noisy(2, 12),
    'fixed': scripted.fixed_law([0, 0.1, 0.3, 0.2, 0.1, 0.1, 0.05, 0.05, 0.03,
                                 0.03, 0.02, 0.02]),
    'wrong': scripted.path([11], 12),
}


def plain(target, budget, **options):
  return scripted.run(target, None, 0, budget, **options)


# Ends.


@pytest.mark.parametrize('eos_at', range(1, 7))
def test_nothing_is_returned_behind_an_eos(eos_at):
  script = scripted.path([7, 9, 8, 4, 4, 4, 4][:eos_at - 1] + [1, 4, 4, 4, 4])
  decoded = scripted.run(script, script, 5, 10)
  assert scripted.outputs(decoded) == scripted.outputs(plain(script, 10))
  assert len(scripted.outputs(decoded)[0]) == eos_at
  assert decoded.ended[0] == rounds_lib.EOS


def test_an_eos_in_the_first_place_leaves_the_neighbour_alone():
  def script(history, count, row):
    return jnp.where(row == 1, jax.nn.one_hot(1, 16) * 50,
                     scripted.path([7, 8, 9, 6, 5, 1])(history, count, row))
  decoded = scripted.run(script, script, 7, 10, rows=(1, 0))
  assert scripted.outputs(decoded) == [[1], [7, 8, 9, 6, 5, 1]]


@pytest.mark.parametrize('temperature', [0.0, 1.0])
def test_each_row_has_one_eos_then_only_pads(temperature):
  def script(history, count, row):
    ends = count - 1 == 2 * row + 1
    return jnp.where(ends, jax.nn.one_hot(1, 16) * 80,
                     jax.nn.one_hot(5 + row, 16) * 80)
  decoded = scripted.run(
      script, script, 3, 12, rows=(0, 1, 2), temperature=temperature)
  for row, length in enumerate((2, 4, 6)):
    ids = decoded.tokens[row].tolist()
    assert decoded.length[row] == length and ids.count(1) == 1
    assert ids.index(1) == length - 1 and set(ids[length:]) == {0}


@pytest.mark.parametrize('gamma', range(1, 9))
def test_every_budget_cuts_where_plain_decoding_would(gamma):
  budgets = list(range(1, 17))
  whole = scripted.outputs(plain(TARGET, 16, rows=[3] * 16))[0]
  decoded = scripted.run(
      TARGET, DRAFTS['other'], gamma, budgets, rows=[3] * 16, max_tokens=16)
  assert scripted.outputs(decoded) == [whole[:n] for n in budgets]
  assert set(decoded.ended.tolist()) <= {rounds_lib.LENGTH, rounds_lib.EOS}


def test_a_row_with_budget_zero_is_filler():
  decoded = scripted.run(TARGET, TARGET, 3, [0, 9], rows=(4, 3), max_tokens=9)
  assert decoded.length[0] == 0 and decoded.rounds[0] == 0
  assert scripted.outputs(decoded)[1:] == scripted.outputs(
      plain(TARGET, 9, rows=(3,)))


# Same ids as plain decoding at temperature 0.


@pytest.mark.parametrize('gamma', range(1, 9))
def test_greedy_output_is_plain_output(gamma):
  rows = (3, 4, 5, 6)
  expected = scripted.outputs(plain(TARGET, 24, rows=rows))
  for draft in DRAFTS.values():
    decoded = scripted.run(TARGET, draft, gamma, 24, rows=rows)
    assert scripted.outputs(decoded) == expected


@pytest.mark.parametrize('position', range(6))
def test_ties_go_to_the_lowest_id_at_every_place_of_the_block(position):
  def script(history, count, row):
    tie = jnp.zeros(16).at[jnp.array([5, 9])].set(3.0)
    ids = jnp.where(count - 1 == position, tie, jax.nn.one_hot(7, 16) * 3)
    return ids.astype(jnp.bfloat16).astype(jnp.float32)
  decoded = scripted.run(script, script, 5, 6)
  assert scripted.outputs(decoded)[0][position] == 5
  assert scripted.outputs(decoded) == scripted.outputs(plain(script, 6))


def test_greedy_rejects_a_draft_that_sampling_would_keep():
  target = scripted.fixed_law([0.30, 0.50, 0.10, 0.10])
  # p(2) > q(2), so that the sampling rule would keep token 2.
  draft = scripted.fixed_law([0.01, 0.01, 0.97, 0.01])
  decoded = scripted.run(target, draft, 1, 1)
  assert scripted.outputs(decoded) == [[1]]


# Caches and positions.


def count_up(lag: int = 0):
  """Gives token t at position t, whatever was read."""
  return lambda history, count, row: (
      jax.nn.one_hot(1 + count - lag, 64) * 80)


def test_each_drafts_law_is_compared_at_its_own_position():
  decoded = scripted.run(count_up(), count_up(), 4, 20, temperature=1.0)
  assert scripted.outputs(decoded)[0] == list(range(2, 22))
  assert scripted.counts(decoded, 'accepted') == [4] * 4


def test_a_draft_that_lags_by_one_changes_nothing_and_is_never_kept():
  decoded = scripted.run(count_up(), count_up(1), 4, 20, temperature=1.0)
  assert scripted.outputs(decoded)[0] == list(range(2, 22))
  assert sum(scripted.counts(decoded, 'accepted')) == 0


def test_a_draft_that_is_always_wrong_adds_one_token_a_round():
  decoded = scripted.run(TARGET, DRAFTS['wrong'], 5, 20, rows=(3,))
  n = decoded.length[0]
  assert decoded.rounds[0] == n and sum(
      scripted.counts(decoded, 'accepted')) == 0
  assert scripted.outputs(decoded) == scripted.outputs(
      plain(TARGET, 20, rows=(3,)))


def test_cache_lengths_follow_the_tokens_after_every_round():
  target, draft = scripted.model(count_up()), scripted.model(count_up())
  drafter = scripted.draft_lib.model_drafter(draft.start, draft.extend)
  spec = rounds_lib.Spec(target.extend, drafter, 3, 12, 16)
  source = jnp.zeros((1, 1), jnp.int32)
  budget = jnp.full(1, 12, jnp.int32)
  state = rounds_lib.init(
      spec, target.start(None, source, 16), draft.start(None, source, 16),
      budget)
  keys = decode.sentence_keys(jnp.asarray(0), jnp.arange(1))
  round_of = jax.jit(lambda state: rounds_lib.decode_round(
      spec, None, None, sampling.make(0.0), keys, budget,
      rounds_lib.room(state, budget), state))
  for _ in range(3):
    state = round_of(state)
    emitted = int(state.length[0]) - 1
    assert int(state.target_cache.length[0]) == emitted
  assert emitted == 12


def partly_right(kept: int):
  """Counts up, but is wrong at the place behind `kept` in every block."""
  def script(history, count, row):
    wrong = (count - 1) % (kept + 1) == kept
    return jax.nn.one_hot(jnp.where(wrong, 60, 1 + count), 64) * 80
  return script


def test_positions_are_right_after_every_rejection():
  decoded = scripted.run(count_up(), partly_right(2), 5, 60)
  assert scripted.outputs(decoded)[0] == list(range(2, 62))
  assert scripted.counts(decoded, 'accepted')[:-1] == [2] * 19


def test_a_draft_equal_to_the_target_is_kept_in_every_round():
  script = scripted.noisy(4, 12)
  never_ends = lambda h, c, r: script(h, c, r).at[1].set(-1e9)
  for temperature in (0.0, 1.0):
    decoded = scripted.run(
        never_ends, never_ends, 4, 50, temperature=temperature)
    assert scripted.counts(decoded, 'accepted') == [4] * 10


def test_work_of_a_round_is_gamma_plus_one_positions_and_gamma_draft_calls():
  calls: dict[str, list[int]] = {'target': [], 'draft': [], 'start': []}

  def counted(name):
    start, extend = scripted.model(count_up()).start, scripted.model(
        count_up()).extend

    def counting_extend(params, tokens, cache, at=None):
      jax.debug.callback(lambda: calls[name].append(tokens.shape[1]))
      return extend(params, tokens, cache, at)

    def counting_start(params, source_ids, slots):
      jax.debug.callback(lambda: calls['start'].append(1))
      return start(params, source_ids, slots)
    return scripted.t5.Model(counting_start, counting_extend)
  target, draft = counted('target'), counted('draft')
  drafter = scripted.draft_lib.model_drafter(draft.start, draft.extend)
  spec = rounds_lib.Spec(target.extend, drafter, 4, 50, 55)
  source = jnp.zeros((1, 1), jnp.int32)

  @jax.jit
  def run():
    return decode.generate(
        spec, None, None, target.start(None, source, 55),
        draft.start(None, source, 55), sampling.make(0.0),
        decode.sentence_keys(jnp.asarray(0), jnp.arange(1)),
        jnp.full(1, 50, jnp.int32))
  decoded = jax.block_until_ready(run())
  jax.effects_barrier()
  rounds = int(decoded.rounds[0])
  assert rounds == 10
  assert calls['target'] == [5] * rounds
  assert sorted(calls['draft']) == [1] * 3 * rounds + [2] * rounds
  assert len(calls['start']) == 2


def test_drafts_that_no_budget_can_use_are_not_made():
  decoded = scripted.run(count_up(), count_up(), 4, 7)
  assert scripted.counts(decoded, 'drafted') == [4, 1]
  assert decoded.length[0] == 7


def test_too_few_slots_are_refused():
  with pytest.raises(ValueError, match='slots=12: allowed are .* 14 and above'):
    rounds_lib.Spec(lambda: None, scripted.draft_lib.NO_DRAFTER, 5, 8, 12)


# Caches that grow.


GROWING = dict(budget=[300, 60, 140], rows=(3, 4, 5), max_tokens=300)


def never_ending(script):
  return lambda *prefix: script(*prefix).at[1].set(-1e9)


def test_the_caches_of_the_growing_runs_take_three_sizes():
  assert rounds_lib.Spec(lambda: None, scripted.draft_lib.NO_DRAFTER, 5, 300,
                         306).sizes == (77, 153, 306)


@pytest.mark.parametrize('temperature', [0.0, 1.0])
def test_caches_that_grow_change_no_id_and_no_count(monkeypatch, temperature):
  target, draft = map(never_ending, (TARGET, DRAFTS['other']))
  def run():
    return scripted.run(target, draft, 5, temperature=temperature, **GROWING)
  grown = run()
  scripted.program.cache_clear()
  monkeypatch.setattr(cache_lib, 'sizes', lambda slots, _: (slots,))
  jax.tree.map(np.testing.assert_array_equal, grown, run())
  assert grown.length.tolist() == [300, 60, 140]


@pytest.mark.parametrize('gamma', [1, 7, 90])
def test_greedy_output_in_caches_that_grow_is_plain_output(gamma):
  target, draft = map(never_ending, (TARGET, DRAFTS['other']))
  assert scripted.outputs(
      scripted.run(target, draft, gamma, **GROWING)) == scripted.outputs(
          scripted.run(target, None, 0, **GROWING))


# Rows of a batch.


def test_rows_that_accept_different_counts_equal_themselves_alone():
  def draft(history, count, row):
    wrong = (count - 1) % (row + 1) == row
    return jax.nn.one_hot(jnp.where(wrong, 60, 1 + count), 64) * 80
  rows = (0, 1, 3, 5)
  together = scripted.run(count_up(), draft, 5, 40, rows=rows)
  for i, row in enumerate(rows):
    alone = scripted.run(count_up(), draft, 5, 40, rows=(row,))
    assert scripted.outputs(together)[i] == scripted.outputs(alone)[0]
    for name in ('drafted', 'accepted', 'discarded'):
      assert scripted.counts(together, name, i) == scripted.counts(alone, name)
    assert scripted.counts(together, 'accepted', i)[0] == row


def test_no_token_crosses_rows():
  def script(history, count, row):
    return jax.nn.one_hot(10 * row + (count * 7) % 10, 64) * 80
  def draft(history, count, row):
    wrong = (count % 3 == 0) & (row != 4)
    return script(history, jnp.where(wrong, count + 1, count), row)
  decoded = scripted.run(script, draft, 5, 30, rows=(1, 2, 3, 4, 5))
  for row, ids in zip((1, 2, 3, 4, 5), scripted.outputs(decoded), strict=True):
    assert {token // 10 for token in ids} == {row}


def test_the_loop_ends_with_its_last_row_and_others_stay_frozen():
  def script(history, count, row):
    return jax.nn.one_hot(jnp.where(count > row, 1, 9), 16) * 80
  wrong = scripted.path([8])
  rows = (0, 2, 8)
  together = scripted.run(script, wrong, 2, 20, rows=rows)
  assert together.rounds.tolist() == [1, 3, 9]
  assert together.length.tolist() == [1, 3, 9]


@pytest.mark.parametrize('temperature', [0.0, 1.0])
def test_a_sentence_does_not_depend_on_its_batch_or_place(temperature):
  options = dict(temperature=temperature, seed=42)
  draft = DRAFTS['other']
  rows = [3, 4, 5, 6]
  together = scripted.outputs(
      scripted.run(TARGET, draft, 3, 20, rows=rows, **options))
  order = [2, 0, 3, 1]
  shuffled = scripted.outputs(scripted.run(
      TARGET, draft, 3, 20, rows=[rows[i] for i in order], index=order,
      **options))
  assert shuffled == [together[i] for i in order]
  for i, row in enumerate(rows):
    alone = scripted.run(
        TARGET, draft, 3, 20, rows=[row], index=[i], **options)
    assert scripted.outputs(alone)[0] == together[i]


def test_the_seed_matters_when_sampling_and_only_then():
  def of(seed, temperature):
    return tuple(scripted.outputs(scripted.run(
        TARGET, DRAFTS['other'], 3, 20, temperature=temperature,
        seed=seed))[0])
  assert len({of(seed, 1.0) for seed in range(10)}) > 1
  assert len({of(seed, 0.0) for seed in range(10)}) == 1


# Counts.


def test_tokens_kept_behind_an_eos_are_discarded_not_returned():
  script = scripted.path([7, 9, 1, 4, 4, 4])
  decoded = scripted.run(script, script, 5, 10)
  assert scripted.counts(decoded, 'drafted') == [5]
  assert scripted.counts(decoded, 'accepted') == [3]
  assert scripted.counts(decoded, 'discarded') == [2]
  assert decoded.length[0] == 3


def test_always_wrong_and_always_right_drafts_have_rates_zero_and_one():
  wrong = scripted.run(count_up(), scripted.path([60], 64), 4, 10)
  right = scripted.run(count_up(), count_up(), 4, 50)
  assert wrong.rounds[0] == 10 and right.rounds[0] == 10
  assert sum(scripted.counts(wrong, 'accepted')) == 0
  assert scripted.counts(right, 'accepted') == scripted.counts(
      right, 'drafted') == [4] * 10
  assert right.length[0] / right.rounds[0] == 5.0
  assert wrong.length[0] / wrong.rounds[0] == 1.0


def test_with_budget_one_no_draft_counts():
  decoded = scripted.run(count_up(), count_up(), 7, 1)
  assert scripted.counts(decoded, 'drafted') == [0]
  assert scripted.outputs(decoded) == [[2]]


def test_each_round_adds_its_kept_drafts_and_one():
  decoded = scripted.run(
      TARGET, DRAFTS['other'], 4, 40, rows=(3, 4, 5), temperature=1.0)
  for row in range(3):
    kept = sum(scripted.counts(decoded, 'accepted', row))
    drafted_eos = decoded.length[row] - kept - decoded.rounds[row]
    assert drafted_eos in (0, -1)


# Numbers that are none.


@pytest.mark.parametrize(('bad', 'ended'), [
    ('target', rounds_lib.BAD_TARGET), ('draft', rounds_lib.BAD_DRAFT)])
def test_a_logit_that_is_no_number_stops_its_row_and_names_its_model(
    bad, ended):
  def breaks(history, count, row):
    return jnp.where((count == 6) & (row == 1), jnp.nan,
                     count_up()(history, count, row))
  scripts = {'target': count_up(), 'draft': count_up(), bad: breaks}
  decoded = scripted.run(
      scripts['target'], scripts['draft'], 3, 20, rows=(0, 1))
  assert decoded.ended.tolist() == [rounds_lib.LENGTH, ended]
  assert decoded.length.tolist() == [20, 4]
