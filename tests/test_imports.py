"""Who may import whom, read from the source.

The package reads in one direction: text and numbers know nothing of models,
the round knows nothing of T5, the report knows nothing of jax, and only the
entry points know the whole walk.
"""

import ast
import functools
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = 'specdec_jax'

# Modules that import no other of ours, and those with exactly one leaf.
ALONE = ('architecture', 'cache', 'examples', 'records', 'sampling', 'theory',
         'vocab')
MAY_IMPORT = {**dict.fromkeys(ALONE, frozenset()),
              'accept': {'sampling'}, 'config': {'architecture'}}
# The round: it is handed `start` and `extend`.
ROUND = ('accept', 'copying', 'decode', 'draft', 'ngram', 'rounds', 'sampling',
         'verify')
MODELS = {'t5', 'layers', 'architecture', 'checkpoint'}
# What makes a report can run where no jax is installed.
WITHOUT_JAX = ('architecture', 'config', 'examples', 'figures', 'metrics',
               'records', 'report', 'theory', 'vocab')
JAX = {'jax', 'jaxlib', 'jaxtyping', 'flax', 'optax', 'orbax'}


@functools.cache
def sources() -> dict[str, ast.Module]:
  """The syntax tree of each module of the package, by its dotted name."""
  trees = {}
  for path in sorted((ROOT / PACKAGE).rglob('*.py')):
    parts = path.relative_to(ROOT).with_suffix('').parts
    name = '.'.join(p for p in parts if p != '__init__')
    trees[name] = ast.parse(path.read_text('utf-8'), str(path))
  return trees


def imported(tree: ast.AST) -> set[str]:
  """Dotted names of everything that is imported, at any depth of the code."""
  names = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      names |= {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
      assert not node.level, 'relative import'
      names |= {f'{node.module}.{alias.name}' for alias in node.names}
  return names


def module_of(name: str) -> str | None:
  """The module of the package that holds a dotted name, if any."""
  while name and name not in sources():
    name = name.rpartition('.')[0]
  return name or None


@functools.cache
def ours(module: str) -> frozenset[str]:
  """Modules of the package that a module imports itself."""
  found = {module_of(name) for name in imported(sources()[module])}
  return frozenset(found - {None, PACKAGE, module})


def reached(module: str) -> set[str]:
  """The module and all of ours that it imports, directly or through others."""
  seen, todo = set(), [module]
  while todo:
    name = todo.pop()
    if name not in seen:
      seen.add(name)
      todo += ours(name)
  return seen


def top(module: str) -> str:
  """`checkpoint` for `specdec_jax.checkpoint.orbax`."""
  return module.removeprefix(f'{PACKAGE}.').partition('.')[0]


def test_every_module_named_here_exists():
  named = {*MAY_IMPORT, *ROUND, *MODELS, *WITHOUT_JAX, 'run', 'main'}
  assert named <= set(map(top, sources()))


@pytest.mark.parametrize('module', MAY_IMPORT)
def test_leaves_import_no_more_of_ours_than_they_may(module):
  found = set(map(top, ours(f'{PACKAGE}.{module}')))
  assert found <= MAY_IMPORT[module]


@pytest.mark.parametrize('module', ROUND)
def test_the_round_never_sees_a_model(module):
  assert not set(map(top, reached(f'{PACKAGE}.{module}'))) & MODELS


@pytest.mark.parametrize('module', WITHOUT_JAX)
def test_reports_never_import_jax_not_even_through_others(module):
  for name in reached(f'{PACKAGE}.{module}'):
    packages = {n.partition('.')[0] for n in imported(sources()[name])}
    assert not packages & JAX, name


@pytest.mark.parametrize('module', ['report', 'vocab', 'examples', 'config'])
def test_jax_stays_unloaded(module):
  # The same from the outside: a third package could bring it in.
  code = (f'import sys, {PACKAGE}.{module}\n'
          f'print(sorted({JAX!r} & set(sys.modules)))')
  result = subprocess.run(
      [sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True,
      check=True)
  assert result.stdout.strip() == '[]'


def test_only_the_entry_point_imports_run():
  importers = {name for name in sources() if f'{PACKAGE}.run' in ours(name)}
  assert importers == {f'{PACKAGE}.main'}


def test_no_import_runs_in_a_circle():
  for name in sources():
    for other in ours(name):
      assert name not in reached(other), f'{name} and {other}'


def test_the_package_imports_neither_tests_nor_studies():
  for name, tree in sources().items():
    packages = {n.partition('.')[0] for n in imported(tree)}
    assert not packages & {'tests', 'configs', 'experiments'}, name


def _is_private(name: str) -> bool:
  return name.startswith('_') and not name.endswith('__')


def private_names(tree: ast.AST) -> list[str]:
  """Private names of other modules of the package that a module uses."""
  aliases, found = set(), []
  for node in ast.walk(tree):
    if isinstance(node, ast.ImportFrom) and (
        node.module or '').partition('.')[0] == PACKAGE:
      aliases |= {alias.asname or alias.name for alias in node.names}
      found += [a.name for a in node.names if _is_private(a.name)]
  for node in ast.walk(tree):
    if (isinstance(node, ast.Attribute) and _is_private(node.attr)
        and isinstance(node.value, ast.Name) and node.value.id in aliases):
      found.append(f'{node.value.id}.{node.attr}')
  return found


def test_no_module_uses_a_private_name_of_another():
  paths = [*sorted((ROOT / 'experiments').rglob('*.py')),
           *sorted((ROOT / 'configs').rglob('*.py'))]
  trees = sources() | {str(p): ast.parse(p.read_text('utf-8')) for p in paths}
  for name, tree in trees.items():
    assert not private_names(tree), name


def test_a_private_name_would_be_found():
  assert private_names(ast.parse(
      f'from {PACKAGE} import accept as a\nfrom {PACKAGE}.t5 import _bind\n'
      'a._at(1)\na.__name__\n')) == ['_bind', 'a._at']
