"""Compiling for a TPU that is not there: what is counted, what is refused."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

from specdec_jax import architecture
from specdec_jax import compile as compile_lib
from tests import tiny

ROOT = pathlib.Path(__file__).parents[1]

# Written after XLA's format: a loop of two computations and an entry.
HLO = '''HloModule jit_f, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %s = f32[] add(%a, %b)
}

%inner (p: bf16[8]) -> bf16[8,128] {
  ROOT %g = bf16[8,128]{1,0:T(8,128)(2,1)} all-gather(%p), dimensions={1}
}

%body (x: (f32[4])) -> (f32[4]) {
  %r = (f32[4]{0}, f32[4]{0}) all-reduce-start(%q), to_apply=%add
  %f = bf16[8,128]{1,0} fusion(%y), kind=kLoop, calls=%inner
}

%cond (x: (f32[4])) -> pred[] {
  ROOT %t = pred[] constant(true)
}

ENTRY %main (x: f32[4]) -> f32[4] {
  %w = (f32[4]{0}) while(%i), condition=%cond, body=%body
  %e = f32[2,3]{1,0} all-gather(%z), dimensions={0}
}
'''


def test_collectives_are_counted_in_and_outside_the_loop():
  found = compile_lib.collectives(HLO)
  assert found == [
      compile_lib.Collective('all-gather', 1024, 2048, True),
      compile_lib.Collective('all-reduce', 4, 16, True),
      compile_lib.Collective('all-gather', 6, 24, False)]


def test_sizes_are_found_by_the_end_of_a_name_or_in_a_folder(tmp_path):
  sizes = architecture.SIZES
  assert compile_lib.architecture_of('x/t5_1_1_xxl') == sizes['t5_1_1_xxl']
  assert compile_lib.architecture_of('flan_t5_base') == sizes['t5_1_1_base']
  folder = tiny.save(tmp_path / 'm', tiny.TARGET)
  assert compile_lib.architecture_of(folder) == tiny.TARGET
  with pytest.raises(compile_lib.CompileError, match='model t6: allowed are a'):
    compile_lib.architecture_of('t6')


def test_an_unknown_topology_is_refused_by_name():
  with pytest.raises(compile_lib.CompileError, match='topology=v9:1: allowed'):
    compile_lib.devices_of('v9:1')


def compile_mini(tmp_path, *flags):
  if importlib.util.find_spec('libtpu') is None:
    pytest.skip("needs the compiler: pip install -e '.[tpu]'")
  # In a process of its own: libtpu stays loaded in the one that uses it.
  return subprocess.run(
      [sys.executable, '-m', 'specdec_jax.compile',
       '--config=configs/ende.py:mini', '--config.gammas=(2,)',
       '--config.max_new_tokens=8', f'--json={tmp_path / "out.json"}', *flags],
      cwd=ROOT, env={**os.environ, 'PYTHONPATH': str(ROOT)},
      capture_output=True, text=True, check=False)


def test_the_whole_program_compiles_for_two_chips_and_gathers_no_weight(
    tmp_path):
  done = compile_mini(tmp_path, '--topology=v5e:2x2', '--chips=2')
  assert done.returncode == 0, done.stderr[-3000:]
  found = json.loads((tmp_path / 'out.json').read_text())
  assert found['hbm_bytes_per_chip'] == sum(found['hbm_parts'].values())
  assert found['hbm_bytes_per_chip'] < found['hbm_limit_bytes'] == 16 * 2**30
  assert found['collectives']['all-reduce']['count_in_loop'] > 0
  assert found['weights_gathered_in_loop'] == []
  assert found['flops_per_round'] > 0 and found['compile_s'] > 0
  assert 'HBM of a chip' in done.stdout


def test_heads_that_do_not_divide_end_with_status_1(tmp_path):
  done = compile_mini(tmp_path, '--topology=v4:2x2x1', '--chips=4')
  assert done.returncode == 1
  assert 'num_heads=6 over mesh model=4: allowed are divisors' in done.stderr
