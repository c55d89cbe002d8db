"""What the launch scripts would do, and what they ask for."""

import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[1] / 'experiments'
CLOUD = {'TPU_NAME': 'my tpu', 'ZONE': 'z', 'PROJECT': 'p'}
NEEDED = {
    'cloud_tpu/create.sh': CLOUD,
    'cloud_tpu/install.sh': CLOUD,
    'cloud_tpu/put.sh': {**CLOUD, 'RESULTS': 'out'},
    'cloud_tpu/run.sh': {**CLOUD, 'CONFIG': 'configs/ende.py:mini'},
    'cloud_tpu/fetch.sh': {**CLOUD, 'RESULTS': 'out'},
    'cloud_tpu/delete.sh': CLOUD,
    'gpu/install.sh': {'HOSTS': 'a b'},
    'gpu/run.sh': {'HOSTS': 'a b', 'CONFIG': 'configs/ende.py:mini'},
    'gpu/fetch.sh': {'HOSTS': 'a b', 'RESULTS': 'out'},
}


def bash(*arguments, stdin=None, **variables):
  return subprocess.run(
      ['bash', *map(str, arguments)], input=stdin, capture_output=True,
      env={'PATH': '/usr/bin:/bin', **variables}, text=True, check=False)


def test_every_script_is_listed_here():
  found = {str(p.relative_to(ROOT)) for p in ROOT.glob('*/*.sh')
           if p.parent.name in ('cloud_tpu', 'gpu') and p.name != 'common.sh'}
  assert found == NEEDED.keys()


@pytest.mark.parametrize('script', NEEDED)
def test_a_dry_run_prints_commands_that_bash_accepts(script):
  done = bash(ROOT / script, '--dry_run', **NEEDED[script])
  assert done.returncode == 0, done.stderr
  assert done.stdout
  checked = bash('-n', stdin=done.stdout)
  assert checked.returncode == 0, checked.stderr
  for line in done.stdout.splitlines():
    assert line.split()[0] in ('#', 'gcloud', 'git', 'ssh', 'scp', 'mkdir')


@pytest.mark.parametrize(
    ('script', 'variable'),
    [(script, name) for script, names in NEEDED.items() for name in names])
def test_a_variable_that_is_not_set_is_named(script, variable):
  given = {k: v for k, v in NEEDED[script].items() if k != variable}
  done = bash(ROOT / script, **given)
  assert done.returncode != 0
  assert f'error: set {variable}: ' in done.stderr


@pytest.mark.parametrize('script', NEEDED)
def test_a_dry_run_names_every_variable_that_must_be_set(script):
  done = bash(ROOT / script, '--dry_run')
  assert done.returncode == 0, done.stderr
  named = {line.split()[1].partition('=')[0]
           for line in done.stdout.splitlines() if 'must be set' in line}
  assert named == NEEDED[script].keys()
  assert bash('-n', stdin=done.stdout).returncode == 0


def test_an_unknown_argument_is_refused():
  done = bash(ROOT / 'gpu/fetch.sh', '--fast', **NEEDED['gpu/fetch.sh'])
  assert done.returncode == 1
  assert '--fast: allowed is --dry_run' in done.stderr


def test_hosts_are_joined_and_one_alone_is_not():
  done = bash(ROOT / 'gpu/run.sh', '--dry_run', **NEEDED['gpu/run.sh'])
  assert done.stdout.count('--coordinator=a:8476') == 2
  assert '--process_index=1' in done.stdout
  alone = bash(ROOT / 'gpu/run.sh', '--dry_run', HOSTS='a', CONFIG='c')
  assert '--coordinator' not in alone.stdout
