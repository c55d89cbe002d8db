"""The README's map is the package as it stands."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / 'specdec_jax'
ROW = re.compile(r'^\|[^|]*\| `(\w+/?)` \| (\d+) \|', re.M)


@pytest.fixture(scope='module')
def walk() -> dict[str, int]:
  text = (ROOT / 'README.md').read_text('utf-8')
  return {name: int(lines) for name, lines in ROW.findall(text)}


def lines(path: pathlib.Path) -> int:
  files = path.glob('*.py') if path.is_dir() else [path.with_suffix('.py')]
  return sum(len(file.read_text('utf-8').splitlines()) for file in files)


def test_the_walk_names_every_module_and_no_other(walk):
  modules = {p.stem for p in PACKAGE.glob('*.py') if p.stem != '__init__'}
  folders = {f'{p.parent.name}/' for p in PACKAGE.glob('*/__init__.py')}
  assert walk.keys() == modules | folders


def test_line_counts_of_the_walk_are_about_right(walk):
  for name, printed in walk.items():
    assert abs(lines(PACKAGE / name) - printed) <= 15 + printed // 10, name


def test_no_module_is_longer_than_400_lines():
  for path in [*PACKAGE.rglob('*.py'), *(ROOT / 'experiments').rglob('*.py'),
               *(ROOT / 'configs').glob('*.py')]:
    assert lines(path.with_suffix('')) <= 400, path
