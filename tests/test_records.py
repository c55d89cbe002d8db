"""Files that survive a kill and refuse another configuration."""

import json

import pytest

from specdec_jax import records

TURNS = [[{'g': 0, 'i': 0}, {'g': 1, 'i': 0}], [{'g': 0, 'i': 1}, {'g': 1,
                                                                   'i': 1}]]
ROWS = [key | {'ids': [1]} for turn in TURNS for key in turn]


def test_rows_come_back_as_written(tmp_path):
  rows = [{'text': 'Öl | "a"\u2028', 'x': None}, {'x': 0.1}]
  records.append(tmp_path / 'f', rows[:1])
  records.append(tmp_path / 'f', rows[1:])
  assert records.read(tmp_path / 'f') == rows


def test_a_missing_file_has_no_rows(tmp_path):
  assert records.read(tmp_path / 'none') == []


def test_a_line_cut_by_a_kill_is_left_out(tmp_path):
  path = tmp_path / 'f'
  records.append(path, ROWS)
  path.write_bytes(path.read_bytes()[:-5])
  assert records.read(path) == ROWS[:-1]


def test_a_damaged_line_is_named(tmp_path):
  (tmp_path / 'f').write_text('{"a": 1}\nnonsense\n')
  with pytest.raises(records.WorkdirError, match='line 2: not JSON'):
    records.read(tmp_path / 'f')


def test_nan_is_never_written(tmp_path):
  with pytest.raises(ValueError, match='not JSON compliant'):
    records.append(tmp_path / 'f', [{'x': float('nan')}])


@pytest.mark.parametrize(('lines', 'turns'), [
    (0, 0), (1, 0), (2, 1), (3, 1), (4, 2)])
def test_only_whole_turns_count(lines, turns):
  assert records.whole_turns(ROWS[:lines], TURNS) == turns


def test_a_line_of_another_plan_is_refused():
  with pytest.raises(records.WorkdirError, match='line 2: expected'):
    records.whole_turns([ROWS[0], ROWS[3]], TURNS)


def test_lines_past_the_plan_are_refused():
  with pytest.raises(records.WorkdirError, match='1 lines too many'):
    records.whole_turns([*ROWS, ROWS[0]], TURNS)


def test_the_same_config_may_go_on_and_another_is_named(tmp_path):
  config = {'gammas': (1, 3), 'seed': 0}
  records.claim(tmp_path / 'w', config, {})
  records.claim(tmp_path / 'w', config, {'device': 'other'})
  with pytest.raises(records.WorkdirError, match='seed is 0 there and 1 now'):
    records.claim(tmp_path / 'w', {**config, 'seed': 1}, {})


def test_a_foreign_config_file_is_refused(tmp_path):
  (tmp_path / 'config.json').write_text('[]')
  with pytest.raises(records.WorkdirError, match='not a config'):
    records.claim(tmp_path, {}, {})


def test_a_replaced_file_is_whole(tmp_path):
  records.replace_rows(tmp_path / 'f', ROWS)
  records.replace_rows(tmp_path / 'f', ROWS[:1])
  assert records.read(tmp_path / 'f') == ROWS[:1]
  assert [p.name for p in tmp_path.iterdir()] == ['f']
  assert json.loads((tmp_path / 'f').read_text()) == ROWS[0]
