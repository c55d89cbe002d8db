"""Strictness for every test: shapes, dtypes and ranks are checked."""

import jax
from jaxtyping import install_import_hook
import pytest

import tests.typecheck  # noqa: F401  (found by its name below)

# Shape annotations of the package are checked at every call.
install_import_hook('specdec_jax', 'tests.typecheck.checker')

jax.config.update('jax_numpy_dtype_promotion', 'strict')
jax.config.update('jax_numpy_rank_promotion', 'raise')

pytest_plugins = ['tests.fixtures_text']


@pytest.fixture(scope='module', autouse=True)
def _release_programs():
  """Programs of a test file go with it; see `generate.release_programs`."""
  yield
  from specdec_jax import generate  # after the hook above
  from tests import scripted
  scripted.program.cache_clear()
  generate.release_programs()
