"""Any layout to any other and back, bit by bit; errors in one line."""

import dataclasses
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from specdec_jax import checkpoint
from specdec_jax import convert
from tests import checkpoint_oracle as oracle


def _read(folder):
  stored = checkpoint.open_checkpoint(str(folder))
  checkpoint.settle(stored)
  return {name: leaf.read() for name, leaf in stored.leaves.items()}


@pytest.mark.parametrize('form', checkpoint.FORMATS)
def test_fixture_to_each_format_and_back_is_bit_equal(tmp_path, form):
  if not oracle.FIXTURE.is_file():
    pytest.skip('the T5X example file is not beside this repository')
  convert.convert(str(oracle.FIXTURE), str(tmp_path / form), form)
  convert.convert(str(tmp_path / form), str(tmp_path / 'back'), 't5x')
  expected = _read(oracle.FIXTURE)
  oracle.assert_same(_read(tmp_path / form), expected)
  oracle.assert_same(oracle.read_t5x(tmp_path / 'back'), expected)
  assert sum(x.size for x in expected.values()) == 518_240


@pytest.mark.parametrize('source', checkpoint.FORMATS)
@pytest.mark.parametrize('form', checkpoint.FORMATS)
@pytest.mark.parametrize('config', [
    oracle.TINY, oracle.TINY_1_0,
    dataclasses.replace(oracle.TINY, tied=True, relpos_max_distance=64)])
def test_every_pair_of_formats_keeps_the_bits(tmp_path, source, form, config):
  weights = oracle.arrays(config, dtype=oracle.BFLOAT16)
  checkpoint.write(tmp_path / 'a', checkpoint.from_arrays(weights), config,
                   None, source, oracle.BFLOAT16)
  convert.convert(str(tmp_path / 'a'), str(tmp_path / 'b'), form)
  oracle.assert_same(_read(tmp_path / 'b'), weights)
  assert checkpoint.settle(
      checkpoint.open_checkpoint(str(tmp_path / 'b'))) == config


def test_vocabulary_travels_under_each_format_s_name(tmp_path):
  words = oracle.train_vocabulary(tmp_path / 'v.model')
  oracle.write_t5x(tmp_path / 'a', oracle.arrays(oracle.TINY), inline=True)
  convert.convert(str(tmp_path / 'a'), str(tmp_path / 'b'), 'hf',
                  vocabulary=str(words.path))
  convert.convert(str(tmp_path / 'b'), str(tmp_path / 'c'), 'orbax')
  for file in ('b/spiece.model', 'c/sentencepiece.model'):
    assert (tmp_path / file).read_bytes() == words.path.read_bytes()
  assert checkpoint.load(str(tmp_path / 'c')).vocabulary.text_size == 136


def test_dtype_is_cast(tmp_path):
  oracle.write_t5x(tmp_path / 'a', oracle.arrays(oracle.TINY), inline=True)
  convert.convert(str(tmp_path / 'a'), str(tmp_path / 'b'), 'hf', 'bfloat16')
  assert {x.dtype for x in _read(tmp_path / 'b').values()} == {oracle.BFLOAT16}


def test_output_that_exists_or_is_remote_is_refused(tmp_path):
  for output, message in ((str(tmp_path), 'exists'),
                          ('gs://bucket/x', 'allowed is a local folder')):
    with pytest.raises(convert.OutputError, match=message):
      convert.convert('nothing', output, 'hf')


def _main(*args):
  return subprocess.run(
      [sys.executable, '-m', 'specdec_jax.convert', *args], text=True,
      capture_output=True, cwd=pathlib.Path(__file__).parents[1], check=False)


def test_command_line_converts(tmp_path):
  oracle.write_t5x(tmp_path / 'a', oracle.arrays(oracle.TINY), inline=True)
  done = _main(f'--source={tmp_path}/a', f'--output={tmp_path}/b',
               '--format=hf', '--dtype=bfloat16')
  assert done.returncode == 0, done.stderr
  count = sum(x.size for x in oracle.arrays(oracle.TINY).values())
  assert f'{count:,} parameters, bfloat16' in done.stdout
  assert 'gated=True' in done.stdout


def test_user_error_is_one_line_and_status_1(tmp_path):
  (tmp_path / 'a').mkdir()
  np.save(tmp_path / 'a' / 'x.npy', np.zeros(3))
  done = _main(f'--source={tmp_path}/a', f'--output={tmp_path}/b',
               '--format=hf')
  assert done.returncode == 1
  assert done.stderr.strip().splitlines()[-1].startswith('error: checkpoint ')
  assert 'Traceback' not in done.stderr and 'x.npy' in done.stderr
  assert os.listdir(tmp_path) == ['a']
  done = _main(f'--source={tmp_path}/a', f'--output={tmp_path}/b',
               '--format=pickle')
  assert done.returncode == 1 and 't5x' in done.stderr
