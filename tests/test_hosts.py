"""Two processes on one machine, joined by JAX's runtime."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

from specdec_jax import hosts
from tests import tiny

ROOT = pathlib.Path(__file__).parents[1]
# A lost process must be noticed well within JAX's own time limit.
NOTICED = hosts.LOST_AFTER + 60


@pytest.fixture(scope='module')
def options(tmp_path_factory):
  # So many turns that a process can be killed between two of them.
  return tiny.job(
      tmp_path_factory.mktemp('job'), sentences=5, gammas=(2,),
      max_new_tokens=6, repeats=40, temperatures=(1.0,))


def command(options, workdir, *flags):
  return [sys.executable, '-m', 'specdec_jax.main',
          f'--config={ROOT / "configs/ende.py"}:mini', f'--workdir={workdir}',
          *flags,
          *(f'--config.{name}={value}' for name, value in options.items())]


def start(options, workdir, index, port, *flags):
  """One of two processes; each has a workdir of its own, as hosts have."""
  return subprocess.Popen(
      command(options, workdir, f'--coordinator=localhost:{port}',
              '--processes=2', f'--process_index={index}', *flags),
      env={**os.environ, 'PYTHONPATH': str(ROOT), 'JAX_PLATFORMS': 'cpu'},
      stderr=subprocess.PIPE, text=True)


def free_port() -> int:
  with socket.socket() as s:
    s.bind(('localhost', 0))
    return s.getsockname()[1]


def run_one(options, workdir, *flags):
  subprocess.run(
      command(options, workdir, *flags), check=True, capture_output=True,
      env={**os.environ, 'PYTHONPATH': str(ROOT), 'JAX_PLATFORMS': 'cpu'})


@pytest.fixture(scope='module')
def alone(options, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('alone')
  run_one(options, workdir)
  return tiny.untimed(workdir)


def test_a_profile_reads_draft_verify_and_accept(options, tmp_path):
  run_one({**options, 'repeats': 1, 'sentences': 1}, tmp_path / 'w',
          f'--jax_profile={tmp_path / "profile"}')
  [trace] = (tmp_path / 'profile').rglob('*.xplane.pb')
  for scope in (b'/draft/', b'/verify/', b'/accept/'):
    assert scope in trace.read_bytes()


def run_both(options, folder, *flags):
  port = free_port()
  both = [start(options, folder / str(i), i, port, *flags) for i in (0, 1)]
  for process in both:
    _, errors = process.communicate()
    assert process.returncode == 0, errors[-3000:]


def test_two_processes_write_the_records_of_one_in_its_order(
    options, alone, tmp_path):
  run_both(options, tmp_path)
  assert tiny.untimed(tmp_path / '0') == alone
  assert (tmp_path / '0' / 'report.md').exists()
  assert not (tmp_path / '1').exists()


def without_beta(rows):
  return [{k: v for k, v in row.items() if k != 'beta'} for row in rows]


def test_a_mesh_over_both_processes_gives_the_ids_and_rounds_of_one(
    options, alone, tmp_path):
  # What `auto` is depends on the clock; both must take the same for it.
  run_both(options | {'gammas': (2, 'auto')}, tmp_path,
           '--config.mesh=data=1,model=2')
  rows = tiny.untimed(tmp_path / '0')
  found = [row for row in rows if row['gamma'] != 'auto']
  assert len(rows) == len(found) * 3 // 2
  assert without_beta(found) == without_beta(alone)
  for row, other in zip(found, alone, strict=True):
    # Split sums are added in another order: equal up to rounding.
    assert row.get('beta') == pytest.approx(other.get('beta'), abs=1e-4)


def test_a_killed_process_ends_the_other_and_a_second_run_completes(
    options, alone, tmp_path):
  port = free_port()
  first, second = [start(options, tmp_path / str(i), i, port) for i in (0, 1)]
  path = tmp_path / '0' / 'examples.jsonl'
  while first.poll() is None and not (path.exists() and path.read_bytes()):
    time.sleep(0.05)
  second.send_signal(signal.SIGKILL)
  _, errors = first.communicate(timeout=NOTICED)
  assert first.returncode != 0
  assert 'another process of this job has ended' in errors
  assert 'it goes on where it stopped' in errors
  second.communicate()
  assert len(tiny.untimed(tmp_path / '0')) < len(alone)
  run_both(options, tmp_path)
  assert tiny.untimed(tmp_path / '0') == alone


def test_what_the_first_refuses_ends_all_with_its_message(
    options, tmp_path):
  (tmp_path / '0').mkdir()
  (tmp_path / '0' / 'config.json').write_text('{}')
  port = free_port()
  both = [start(options, tmp_path / str(i), i, port) for i in (0, 1)]
  for process in both:
    _, errors = process.communicate(timeout=NOTICED)
    assert process.returncode == 1
    assert 'not a config of this program' in errors


@pytest.mark.parametrize(('given', 'message'), [
    ((True, 'localhost:1', None, None), 'allowed are all three'),
    ((False, None, 2, 0), 'allowed are all three'),
    ((False, 'localhost:1', 2, 2), '--process_index=2: allowed are')])
def test_flags_that_do_not_fit_together_are_refused_by_name(given, message):
  with pytest.raises(hosts.HostError, match=message):
    hosts.join(*given)


def test_one_process_gathers_its_own_value():
  assert hosts.gather({'a': 1}) == [{'a': 1}]
  assert hosts.from_first(lambda: 3) == 3
