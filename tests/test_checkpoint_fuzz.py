"""Damaged checkpoints of every layout are refused with our own error."""

from absl import logging
import pytest

from experiments import fuzz_checkpoints


@pytest.fixture(autouse=True)
def quiet():
  before = logging.get_verbosity()
  logging.set_verbosity(logging.ERROR)
  yield
  logging.set_verbosity(before)


def test_damaged_checkpoints_are_refused_or_load_right(tmp_path):
  cases = fuzz_checkpoints.run(180, seed=1, root=tmp_path)
  assert not fuzz_checkpoints.failures(cases)
  refused = [case for case in cases if case.outcome == 'refused']
  assert len({case.layout for case in refused}) == 9
  assert len(refused) > 80


def test_report_counts_every_case():
  cases = [fuzz_checkpoints.Case('hf', 'cut', 'a', 'refused'),
           fuzz_checkpoints.Case('hf', 'flip', 'a', 'FAILED: KeyError')]
  text = fuzz_checkpoints.report(cases)
  assert '| hf | 1 | 0 | 0 | 1 |' in text
  assert '2 cases: 1 refused, 0 equal, 0 altered, 1 FAILED' in text
