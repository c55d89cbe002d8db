"""The accelerator check, on tiny models and whatever device there is."""

import json

import pytest

from experiments import accelerator
from specdec_jax import architecture


@pytest.fixture(scope='module')
def found():
  return accelerator.measure_all(accelerator.tiny(), 600)


def test_every_part_is_measured_or_left_out_by_name(found):
  assert found['bytes_per_second'] > 0 and found['bfloat16_flops'] > 0
  costs = found['targets']['base']['drafts']['small']
  assert costs['c'] > 0
  assert costs['verify_ratio'].keys() == {'3', '5', '7'}
  assert len(found['factors']) == 4 and not found['left_out']
  assert all(row['factor'] > 0 for row in found['factors'])
  json.dumps(found, allow_nan=False)


def test_float32_ids_are_those_of_plain_decoding(found):
  same = found['equality']['float32']
  assert same['identical'] == same['rows'] == 2
  assert found['equality']['bfloat16']['tokens'] > 0


def test_the_table_has_the_device_and_a_line_a_pair(found):
  text = accelerator.text(found)
  assert found['machine']['device'] in text and '| base with small |' in text


def test_a_step_of_xxl_reads_the_bytes_of_the_paper():
  """11.14 GB: decoder weights in bfloat16, cross-attention's keys cached."""
  found = accelerator.step_bytes(architecture.SIZES['t5_1_1_xxl'], 2)
  assert round(found / 1e9, 2) == 11.14


def test_what_comes_too_late_is_left_out_with_the_limit():
  clock = accelerator.Clock(-1)
  assert clock.run('work', lambda: 1) is None
  assert clock.left_out == ['work: -1 s were over']
