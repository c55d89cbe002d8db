"""Products with turned weights: every form gives the product."""

import jax
from jax import numpy as jnp
import numpy as np
import pytest

from specdec_jax import backend
from specdec_jax import products


def _jitted():
  """Compiled anew for the tiles of the present constants."""
  return jax.jit(lambda *arguments: products.project(*arguments),
                 compiler_options=backend.compiler_options())


_project = _jitted()


def _random(*shape):
  generator = np.random.default_rng(sum(shape))
  return jnp.asarray(generator.normal(size=shape), jnp.float32)


@pytest.mark.parametrize('outputs', [1, 31, 64])
@pytest.mark.parametrize('narrow', [False, True])
@pytest.mark.parametrize('rows', [1, 2, 5, 8, 9, 14, 24, 25, 40])
def test_any_number_of_rows_gives_the_product(
    monkeypatch, rows, narrow, outputs):
  # So that kernels of this size are cut as those of large models are.
  monkeypatch.setattr(products, '_CHUNK', 2**11)
  monkeypatch.setattr(products, '_LARGE', 2**11)
  x, kernel_oi = _random(rows, 48), _random(outputs, 48)
  if narrow:
    kernel_oi = kernel_oi.astype(jnp.bfloat16)
  expected = np.asarray(x, np.float64) @ np.asarray(kernel_oi, np.float64).T
  np.testing.assert_allclose(
      _jitted()(x, kernel_oi), expected, rtol=1e-5, atol=1e-5)


def test_leading_axes_stay():
  x, kernel_oi = _random(2, 3, 8), _random(5, 8)
  np.testing.assert_allclose(
      _project(x, kernel_oi), x @ kernel_oi.T, rtol=1e-5, atol=1e-6)


def test_bfloat16_rows_are_added_up_in_float32():
  ones = jnp.ones((2, 4096), jnp.bfloat16)
  assert (_project(ones, jnp.ones((3, 4096), jnp.bfloat16)) == 4096).all()


def test_what_is_no_number_shows():
  # The compiler may reorder sums; it may not suppose that all is finite.
  kernel_oi = _random(4, 8).at[1, 2].set(jnp.nan).at[2, 3].set(jnp.inf)
  y = _project(jnp.ones((2, 8)), kernel_oi)
  assert jnp.isnan(y[:, 1]).all() and jnp.isinf(y[:, 2]).all()
  assert jnp.isfinite(y[:, [0, 3]]).all()


def test_tiles_of_the_docstring_example():
  wide = products._tiles(5, 768, 768, narrow=False)
  assert wide == products._Tiles(3, 2, 2, 12, 32)
  assert products._tiles(5, 768, 768, narrow=True) == products._Tiles(
      1, 5, 1, 1, 768)


@pytest.mark.parametrize('narrow', [False, True])
def test_tiles_cover_all_rows_and_outputs_once(narrow):
  for count in range(1, 30):
    for outputs, inputs in ((1, 8), (31, 48), (2304, 768), (32_128, 512),
                            (5, 2**20), (997, 2048)):
      cut = products._tiles(count, outputs, inputs, narrow)
      assert cut.parts * cut.chunks * cut.width == outputs
      assert count <= cut.groups * cut.rows < count + cut.groups
      chunk = cut.parts * cut.width * inputs * (2 if narrow else 4)
      assert (cut.chunks == 1 or cut.width == 1 or chunk <= 2**18)


def test_weights_are_kept_narrow_only_where_that_is_exact():
  large = jnp.ones((1024, 1024))
  assert products.lay(large).dtype == jnp.bfloat16
  assert products.lay(large.at[3, 4].set(1 + 2**-9)).dtype == jnp.float32
  assert products.lay(jnp.ones((8, 8))).dtype == jnp.float32


def test_whole_weights_are_not_converted_in_front_of_a_loop():
  def loop(kernel_oi, x):
    return jax.lax.fori_loop(
        0, 9, lambda _, x: products.project(x, kernel_oi), x)
  text = jax.jit(loop, compiler_options=backend.compiler_options()).lower(
      jnp.ones((512, 512), jnp.bfloat16), jnp.ones((2, 512))
  ).compile().as_text() or ''
  entry = text[text.index('ENTRY'):]
  assert 'f32[512,512]' not in entry and 'bf16[512,512]' in entry
