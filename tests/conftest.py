"""Strictness for every test: shapes, dtypes and ranks are checked."""

import jax
from jaxtyping import install_import_hook

# Shape annotations are checked at every call of the package's functions.
_HOOK = install_import_hook('specdec_jax', 'beartype.beartype')

jax.config.update('jax_numpy_dtype_promotion', 'strict')
jax.config.update('jax_numpy_rank_promotion', 'raise')
