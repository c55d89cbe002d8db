"""T5: names and shapes, the numbers of an oracle, and blocks against steps.

The oracle is tests/oracle_t5.py. Everything about the cache is held by one
equality: however the tokens were read, the logits are those of one fresh pass.
"""

import dataclasses
import functools
import json
import pathlib

import jax
from jax import numpy as jnp
import numpy as np
import pytest

from specdec_jax import cache as cache_lib
from specdec_jax import t5
from tests import oracle_t5
from tests import tiny_t5

GOLDENS = pathlib.Path(__file__).parent / 'goldens'

# Largest allowed difference of two float32 ways to the same logits, and of
# float32 from float64.
SAME = dict(rtol=1e-5, atol=1e-5)
ORACLE = dict(rtol=1e-5, atol=1e-4)

SIZES = {
    't5_small': 60_506_624,
    't5_base': 222_903_552,
    't5_large': 737_668_096,
    't5_3B': 2_851_598_336,
    't5_11B': 11_307_321_344,
    't5_1_1_small': 76_961_152,
    't5_1_1_base': 247_577_856,
    't5_1_1_large': 783_150_080,
    't5_1_1_xl': 2_849_757_184,
    't5_1_1_xxl': 11_135_332_352,
}

both_flavours = pytest.mark.parametrize('flavour', tiny_t5.CONFIGS)


@dataclasses.dataclass(frozen=True)
class Tiny:
  """A tiny model with its weights and jitted functions."""
  config: t5.T5Config
  params: t5.Params

  def start(self, sources, slots=160):
    return _start(self.config)(
        self.params, jnp.asarray(sources, jnp.int32), slots)

  def extend(self, tokens, cache):
    return _extend(self.config)(
        self.params, jnp.asarray(tokens, jnp.int32), cache)

  def fresh(self, sources, tokens):
    """Logits of one pass over everything.

    Tokens are filled up to few widths, so that little is compiled; what comes
    later is not seen (a test of its own holds that).
    """
    t = np.shape(tokens)[1]
    filled = np.pad(tokens, ((0, 0), (0, -t % 16)))
    return self.extend(filled, self.start(sources))[0][:, :t]

  def oracle(self, source, tokens):
    params = jax.tree.map(lambda x: np.asarray(x, np.float64), self.params)
    return oracle_t5.logits(params, source, tokens, self.config)


# Compiled fast rather than well: a shape is run a few times.
_jit = functools.partial(
    jax.jit, compiler_options={'xla_backend_optimization_level': 0})


@functools.cache
def _start(config):
  return _jit(t5.bind(config).start, static_argnums=2)


@functools.cache
def _extend(config):
  return _jit(t5.bind(config).extend)


@functools.cache
def tiny(flavour):
  config = tiny_t5.CONFIGS[flavour]
  return Tiny(config, tiny_t5.random_params(config))


def ids(*shape, seed=0) -> np.ndarray:
  """Random tokens; 0 and 1 are left out, so that none is a pad or the end."""
  return np.random.default_rng(seed).integers(2, 64, shape, np.int32)


# -- names and shapes


@both_flavours
def test_names_and_shapes_are_those_of_t5x(flavour):
  shapes = t5.param_shapes(tiny_t5.CONFIGS[flavour])
  leaves, _ = jax.tree_util.tree_flatten_with_path(shapes)
  found = {'/'.join(k.key for k in path): list(leaf.shape)
           for path, leaf in leaves}
  golden = GOLDENS / f't5_{flavour.replace(".", "_")}.json'
  assert found == json.loads(golden.read_text())


def test_every_public_size_has_its_exact_number_of_parameters():
  assert {n: t5.count_params(c) for n, c in t5.SIZES.items()} == SIZES


def test_parameters_are_float32_even_for_a_bfloat16_model():
  leaves = jax.tree.leaves(t5.param_shapes(tiny_t5.CONFIGS['1.1']))
  assert {leaf.dtype for leaf in leaves} == {jnp.dtype('float32')}


def test_bind_gives_the_same_functions_so_that_nothing_compiles_again():
  config = tiny_t5.CONFIGS['1.0']
  assert t5.bind(config) is t5.bind(dataclasses.replace(config))


# -- numbers


@both_flavours
def test_logits_equal_the_numpy_oracle(flavour):
  model = tiny(flavour)
  source, tokens = ids(150, seed=1), ids(144, seed=2)
  np.testing.assert_allclose(
      model.fresh(source[None], tokens[None])[0],
      model.oracle(source, tokens), **ORACLE)


def test_tied_logits_are_scaled_by_the_root_of_the_width():
  config = tiny_t5.CONFIGS['1.0']
  table = jax.random.normal(jax.random.key(0), (64, 24))
  x = jax.random.normal(jax.random.key(1), (1, 2, 24))
  logits = t5.Embedder(config).apply(
      {'params': {'embedding': table}}, x, method='attend')
  np.testing.assert_allclose(logits, x @ table.T / np.sqrt(24), **SAME)


def test_self_bias_of_the_docstring_example():
  config = tiny_t5.CONFIGS['1.0']
  table = jnp.asarray(tiny(
      '1.0').params['decoder']['relpos_bias']['rel_embedding'])
  bias = t5.Decoder(config, 0.0).apply(
      {'params': {'relpos_bias': {'rel_embedding': table}}},
      jnp.array([3]), 2, 6, method='_self_bias')[0]
  np.testing.assert_array_equal(bias[:, 0, :4], table[:, [3, 2, 1, 0]])
  np.testing.assert_array_equal(bias[:, 1, :5], table[:, [4, 3, 2, 1, 0]])
  assert bias[:, 0, 4:].max() < -1e8 and bias[:, 1, 5:].max() < -1e8


@both_flavours
def test_logits_are_float32_in_a_bfloat16_model(flavour):
  config = tiny_t5.CONFIGS[flavour]
  params = jax.tree.map(
      lambda x: jnp.asarray(x, jnp.bfloat16), tiny(flavour).params)
  model = t5.bind(config, dtype=jnp.bfloat16)
  cache = _jit(model.start, static_argnums=2)(
      params, jnp.asarray(ids(1, 4)), 4)
  logits, cache = _jit(model.extend)(params, jnp.asarray(ids(1, 3)), cache)
  assert logits.dtype == jnp.float32
  assert cache.k[0].dtype == cache.cross.v[0].dtype == jnp.bfloat16


def test_ids_without_text_have_no_logits():
  # case-33: the table is 64 wide, the text ends at 50.
  model = tiny('1.1')
  bound = t5.bind(model.config, text_size=50)
  cache = model.start(ids(1, 7))
  tokens = jnp.asarray(ids(1, 6))
  logits, _ = _jit(bound.extend)(model.params, tokens, cache)
  assert logits.shape == (1, 6, 50)
  np.testing.assert_allclose(
      logits, model.extend(tokens, cache)[0][..., :50], **SAME)


# -- blocks, steps and rewinding


@both_flavours
def test_a_block_equals_single_steps(flavour):
  # case-23: six tokens, as gamma = 5 verifies them.
  model, tokens = tiny(flavour), ids(1, 12)
  block = model.fresh(ids(1, 7), tokens)
  cache = model.start(ids(1, 7))
  for i in range(12):
    step, cache = model.extend(tokens[:, i:i + 1], cache)
    np.testing.assert_allclose(step[:, 0], block[:, i], **SAME)


@pytest.mark.parametrize('j', range(1, 6))
def test_a_token_of_a_block_is_not_seen_before_its_place(j):
  # case-23
  model, tokens = tiny('1.0'), ids(1, 6)
  _, cache = model.extend(ids(1, 9, seed=3), model.start(ids(1, 7)))
  before, _ = model.extend(tokens, cache)
  # A copy: jax may still be reading the array of the first call in place.
  changed = tokens.copy()
  changed[0, j] = 2 if tokens[0, j] != 2 else 3
  after, _ = model.extend(changed, cache)
  np.testing.assert_array_equal(after[:, :j], before[:, :j])
  assert np.abs(after - before)[:, j:].max(axis=-1).min() > 1e-3


@pytest.mark.parametrize('position', [1, 15, 37, 127, 130])
@both_flavours
def test_a_block_at_any_position_equals_a_fresh_pass(flavour, position):
  # case-22; past 128 positions the furthest bucket is in use.
  model, tokens = tiny(flavour), ids(1, 144)
  source = ids(1, 7)
  # Everything is read, then all but `position` tokens are taken back.
  fresh, cache = model.extend(tokens, model.start(source))
  cache = cache_lib.rewind(cache, jnp.array([position]))
  block, _ = model.extend(tokens[:, position:position + 5], cache)
  np.testing.assert_allclose(
      block, fresh[:, position:position + 5], **SAME)


def test_a_cached_token_matters_to_later_scores():
  # case-26: token 7 of twelve is changed.
  model, tokens, source = tiny('1.1'), ids(1, 13), ids(1, 7)
  changed = tokens.copy()
  changed[0, 7] = 2 if tokens[0, 7] != 2 else 3
  last = []
  for row in (tokens, changed):
    _, cache = model.extend(row[:, :12], model.start(source))
    logits, _ = model.extend(row[:, 12:], cache)
    np.testing.assert_allclose(
        logits[:, 0], model.fresh(source, row)[:, 12], **SAME)
    last.append(logits)
  assert np.abs(last[0] - last[1]).max() > 1e-3


@both_flavours
def test_rewind_and_extend_equal_a_fresh_pass(flavour):
  model, source = tiny(flavour), ids(1, 7)
  kept, wrong, right = ids(1, 5), ids(1, 6, seed=4), ids(1, 6, seed=5)
  _, cache = model.extend(kept, model.start(source))
  _, spoilt = model.extend(wrong, cache)
  logits, cache = model.extend(
      right, cache_lib.rewind(spoilt, jnp.array([5])))
  fresh = model.fresh(source, np.concatenate([kept, right], axis=1))
  np.testing.assert_allclose(logits, fresh[:, 5:], **SAME)
  assert cache.length.tolist() == [11]


@both_flavours
def test_rows_at_different_lengths_are_each_as_if_alone(flavour):
  model = tiny(flavour)
  sources, tokens, block = ids(3, 7), ids(3, 9, seed=1), ids(3, 4, seed=2)
  lengths = [3, 9, 0]
  _, cache = model.extend(tokens, model.start(sources))
  logits, cache = model.extend(
      block, cache_lib.rewind(cache, jnp.array(lengths)))
  assert cache.length.tolist() == [7, 13, 4]
  for row, length in enumerate(lengths):
    alone = np.concatenate([tokens[row, :length], block[row]])
    fresh = model.fresh(sources[row:row + 1], alone[None])
    np.testing.assert_allclose(logits[row], fresh[0, length:], **SAME)


def test_slots_past_the_end_of_a_row_do_not_matter():
  model, source, tokens = tiny('1.1'), ids(1, 7), ids(1, 6)
  few, _ = model.extend(tokens, model.start(source, slots=6))
  many, _ = model.extend(tokens, model.start(source, slots=160))
  np.testing.assert_allclose(few, many, **SAME)


def test_a_cache_that_has_grown_is_like_one_that_was_large():
  model, source, tokens = tiny('1.1'), ids(1, 7), ids(1, 6)
  _, small = model.extend(tokens[:, :4], model.start(source, slots=4))
  grown, _ = model.extend(tokens[:, 4:], cache_lib.grow(small, 9))
  np.testing.assert_allclose(
      grown, model.fresh(source, tokens)[:, 4:], **SAME)


# -- padding


@pytest.mark.parametrize('width', [16, 64])
@both_flavours
def test_source_padding_changes_nothing(flavour, width):
  # case-29
  model, source, tokens = tiny(flavour), ids(1, 11), ids(1, 6)
  padded = np.pad(source, ((0, 0), (0, width - 11)))
  alone, wide = model.start(source), model.start(padded)
  for a, w in zip(alone.cross.k, wide.cross.k, strict=True):
    np.testing.assert_allclose(w[:, :, :11], a, **SAME)
  np.testing.assert_allclose(
      model.extend(tokens, wide)[0], model.extend(tokens, alone)[0], **SAME)


@both_flavours
def test_a_longer_neighbour_changes_nothing(flavour):
  # case-29
  model, tokens = tiny(flavour), ids(2, 6)
  sources = ids(2, 16, seed=6)
  sources[0, 11:] = 0
  both = model.fresh(sources, tokens)
  np.testing.assert_allclose(
      both[:1], model.fresh(sources[:1, :11], tokens[:1]), **SAME)


def test_a_row_of_pads_is_finite_and_leaves_its_neighbour_alone():
  # case-32
  config = tiny_t5.CONFIGS['1.1']
  params = jax.tree.map(
      lambda x: jnp.asarray(x, jnp.bfloat16), tiny('1.1').params)
  model = t5.bind(config, dtype=jnp.bfloat16)
  start, extend = _jit(model.start, static_argnums=2), _jit(model.extend)
  sources, tokens = ids(2, 9), jnp.asarray(ids(2, 5))
  with_row, _ = extend(params, tokens, start(params, jnp.asarray(sources), 8))
  sources[1] = 0
  with_pads, _ = extend(params, tokens, start(params, jnp.asarray(sources), 8))
  assert np.isfinite(with_pads).all()
  np.testing.assert_array_equal(with_pads[0], with_row[0])


# -- dropout


def _with_dropout(rate):
  module = t5.T5(tiny_t5.CONFIGS['1.1'], dropout_rate=rate)

  def logits_of(module):
    cache = module.start(jnp.asarray(ids(1, 7)), 5)
    return module.extend(jnp.asarray(ids(1, 5)), cache)[0]

  @_jit
  def apply(params, key):
    return module.apply(
        {'params': params}, method=logits_of, rngs={'dropout': key})
  return lambda seed: apply(tiny('1.1').params, jax.random.key(seed))


def test_dropout_of_rate_0_is_no_dropout():
  np.testing.assert_allclose(
      _with_dropout(0.0)(0), tiny('1.1').fresh(ids(1, 7), ids(1, 5)), **SAME)


def test_dropout_depends_on_its_key_alone():
  logits = _with_dropout(0.3)
  np.testing.assert_array_equal(logits(0), logits(0))
  assert np.abs(logits(0) - logits(1)).max() > 1e-2


# -- packing and single positions


@both_flavours
def test_a_packed_model_gives_the_logits_of_the_plain_one(flavour):
  model, tokens, source = tiny(flavour), ids(2, 5), ids(2, 7)
  packed = t5.bind(model.config, packed=True)
  params = t5.pack(model.config, model.params)
  logits, _ = _jit(packed.extend)(
      params, jnp.asarray(tokens),
      _jit(packed.start, static_argnums=2)(params, jnp.asarray(source), 8))
  np.testing.assert_allclose(
      logits, model.extend(tokens, model.start(source, 8))[0], **SAME)


def test_packing_leaves_the_given_weights_as_they_are():
  model = tiny('1.0')
  before = jax.tree.structure(model.params)
  t5.pack(model.config, model.params)
  assert jax.tree.structure(model.params) == before


def test_logits_at_one_position_are_those_of_all_at_that_position():
  model, source = tiny('1.1'), ids(2, 7)
  tokens = jnp.asarray(ids(2, 3))
  every, _ = model.extend(tokens, model.start(source))
  one, cache = _extend(model.config)(
      model.params, tokens, model.start(source), jnp.array([2, 0]))
  assert one.shape == (2, 1, every.shape[2])
  np.testing.assert_allclose(one[0, 0], every[0, 2], **SAME)
  np.testing.assert_allclose(one[1, 0], every[1, 0], **SAME)
  assert cache.length.tolist() == [3, 3]
