"""Texts to texts with real (tiny, random) T5 models."""

import dataclasses
import gc
import logging
import pathlib
import re

import jax
from jax import numpy as jnp
import numpy as np
import pytest

from specdec_jax import cache as cache_lib
from specdec_jax import decode
from specdec_jax import generate
from specdec_jax import vocab
from tests import tiny

BUDGET = 20


def decoder(draft='small', gamma=3, **options):
  return generate.Decoder(
      tiny.loaded(tiny.TARGET),
      tiny.loaded(tiny.DRAFTS[draft], 1) if draft else None,
      gamma=gamma if draft else 0,
      **{'max_new_tokens': BUDGET, 'source_buckets': (64,), **options})


def ids(outputs):
  return [output.ids for output in outputs]


@pytest.fixture(scope='module')
def plain():
  """Plain greedy output of each text."""
  return ids(decoder(None)(tiny.TEXTS))


@pytest.mark.parametrize('batch_size', [1, 4])
@pytest.mark.parametrize('draft', tiny.DRAFTS)
@pytest.mark.parametrize('gamma', range(9))
def test_greedy_output_is_plain_output(plain, gamma, draft, batch_size):
  found = decoder(draft, gamma, batch_size=batch_size)(tiny.TEXTS)
  assert ids(found) == plain


def test_the_models_say_something(plain):
  assert len(set(plain)) == len(plain)
  assert all(len(set(row)) > 1 for row in plain)


@pytest.mark.parametrize('temperature', [0.0, 1.0])
def test_five_lines_are_the_same_lines_in_every_batch_size(temperature):
  found = [ids(decoder(batch_size=size, temperature=temperature, seed=42)(
      tiny.TEXTS)) for size in (1, 2, 4, 5)]
  assert found[1:] == found[:-1]


def test_the_key_of_a_sentence_is_its_index_not_its_place():
  sampler = decoder(temperature=1.0, seed=42)
  together = ids(sampler(tiny.TEXTS))
  alone = [ids(sampler([text], first_index=i))[0]
           for i, text in enumerate(tiny.TEXTS)]
  assert alone == together


def test_counts_add_up_to_the_output():
  for output in decoder(temperature=1.0)(tiny.TEXTS):
    kept = sum(r.accepted for r in output.rounds)
    drafted_eos = len(output.ids) - kept - len(output.rounds)
    assert drafted_eos in (0, -1)
    assert all(r.accepted + r.discarded <= r.drafted for r in output.rounds)


def test_a_sentence_cut_by_its_budget_is_marked():
  (output,) = decoder(max_new_tokens=2, gamma=2)(['Open the file.'])
  assert output.finish_reason == 'length' and len(output.ids) == 2


def test_empty_and_blank_lines_are_decoded_like_any_other():
  outputs = decoder()(['', 'Open the file.', '   '])
  assert [o.source.ids for o in outputs][::2] == [(1,), (1,)]
  assert outputs[0].ids == outputs[2].ids


def test_an_over_long_source_is_cut_with_both_lengths_in_the_warning(caplog):
  text = ' '.join(['Open the file.'] * 20)
  with caplog.at_level(logging.WARNING):
    (output,) = decoder(source_buckets=(16, 32))([text])
  assert output.source.truncated and len(output.source.ids) == 32
  assert output.source.ids.count(1) == 1 and output.source.ids[-1] == 1
  assert f'has {output.source.full_length} source tokens' in caplog.text
  assert 'source_buckets=32' in caplog.text


def compilations(caplog, call) -> int:
  """How many programs jax compiles during `call`."""
  caplog.clear()
  with jax.log_compiles(True), caplog.at_level(logging.WARNING):
    call()
  return sum('Finished XLA compilation' in r.message for r in caplog.records)


def test_forty_lengths_compile_one_set_of_programs_a_bucket(caplog):
  texts = [' '.join(['file'] * n) for n in range(1, 41)]
  many = decoder(source_buckets=(16, 32, 64), max_new_tokens=4, gamma=2)
  first = compilations(caplog, lambda: many(texts))
  # Two encoders and the loop a bucket, and a few one-line array programs.
  assert 9 <= first <= 9 + 12
  assert compilations(caplog, lambda: many(texts)) == 0


def test_nothing_is_compiled_inside_the_timed_region(caplog):
  one = decoder(gamma=4, max_new_tokens=BUDGET + 1)  # nobody else's programs
  one.compile(64)
  sources = one.encode(['Open the file.'])
  assert compilations(caplog, lambda: one.decode_batch(sources, 0)) == 0
  assert compilations(caplog, lambda: one.decode_batch(sources, 5)) == 0


def compiled_loop(one):
  """The compiled loop of a decoder and its caches (no draft: None)."""
  ids = jnp.zeros((one.batch_size, 64), jnp.int32)
  nothing = jnp.zeros(one.batch_size, jnp.int32)
  params = one.draft.packed if one.spec.gamma else None
  caches, _ = one._encode_ids(ids)
  return one.programs.generate.lower(
      one.target.packed, params, *caches, one.sampling,
      decode.sentence_keys(jnp.asarray(0), nothing),
      nothing).compile(), caches


def test_caches_are_donated_and_aliased():
  compiled, caches = compiled_loop(decoder())
  size = sum(x.nbytes for x in jax.tree.leaves(caches))
  assert compiled.memory_analysis().alias_size_in_bytes >= size


@pytest.mark.parametrize(('gamma', 'batch_size', 'slots'), [
    (0, 1, BUDGET + 9), (4, 1, BUDGET + 9), (0, 2, BUDGET + 9),
    (4, 2, BUDGET + 9), (4, 1, 200)])
def test_no_step_copies_a_cache_nor_does_a_larger_one_copy_weights(
    gamma, batch_size, slots):
  one = decoder(gamma=gamma, batch_size=batch_size, slots=slots)
  compiled, caches = compiled_loop(one)
  rooms = [[cache_lib.grow(cache, n) for cache in caches if cache]
           for n in cache_lib.sizes(slots)]
  slotted = [[x for cache in room for x in (*cache.k, *cache.v)]
             for room in rooms]
  shapes = {str(list(x.shape)).replace(' ', '')
            for room in slotted for x in room}
  copied = set(re.findall(r'= \w+(\[[\d,]+\])\S* copy\(', compiled.as_text()))
  assert not shapes & copied
  larger = sum(x.nbytes for room in slotted[1:] for x in room)
  weights = sum(x.nbytes for x in jax.tree.leaves(one.target.packed))
  assert compiled.memory_analysis().temp_size_in_bytes < larger + weights


def test_released_programs_give_their_memory_mappings_back():
  maps = pathlib.Path('/proc/self/maps')
  if not maps.exists():
    pytest.skip('counts mappings in /proc, which only Linux has')

  def count():
    gc.collect()
    return len(maps.read_bytes().splitlines())
  generate.release_programs()
  before = count()
  decoder(gamma=2)(['Open the file.'])
  held = count()
  generate.release_programs()
  assert held > before + 100
  assert count() < before + 100


def test_equal_decoders_compile_once(caplog):
  decoder(gamma=2)(['Open the file.'])
  again = decoder(gamma=2, seed=7)
  assert compilations(caplog, lambda: again(['Open the file.'])) == 0


def with_params(model, change):
  return dataclasses.replace(model, params=change(model.params))


@pytest.mark.parametrize('which', ['target', 'draft'])
def test_a_model_that_gives_no_numbers_is_named(which):
  models = {'target': tiny.loaded(tiny.TARGET),
            'draft': tiny.loaded(tiny.DRAFTS['small'], 1)}
  models[which] = with_params(models[which], lambda params: jax.tree.map(
      lambda x: x * jnp.nan, params))
  broken = generate.Decoder(
      models['target'], models['draft'], gamma=2, max_new_tokens=4,
      source_buckets=(32,))
  with pytest.raises(generate.NonFiniteError,
                     match=f'sentence 0, token 0, round 0: the {which} gave'):
    broken(['Open the file.'])


def test_feed_forward_overflow_in_float16_is_refused_by_name():
  half = with_params(tiny.loaded(tiny.TARGET), lambda params: jax.tree.map(
      lambda x: x.astype(jnp.float16), params))
  with pytest.raises(ValueError, match='dtype=float16: allowed are float32'):
    generate.Decoder(half, gamma=0)


def test_bfloat16_weights_decode():
  half = with_params(tiny.loaded(tiny.TARGET), lambda params: jax.tree.map(
      lambda x: x.astype(jnp.bfloat16), params))
  (output,) = generate.Decoder(
      half, gamma=0, max_new_tokens=5, source_buckets=(32,))(['Open.'])
  assert 1 <= len(output.ids) <= 5


def test_ids_without_text_are_never_emitted_whatever_their_logits():
  wide, narrow = tiny.TARGET, tiny.DRAFTS['small']
  size = tiny.vocabulary().text_size
  narrow = dataclasses.replace(narrow, vocab_size=size)
  target = tiny.loaded(wide)
  kernel = target.params['decoder']['logits_dense']['kernel']
  # Every id behind the vocabulary gets the logits of the best ones, doubled.
  kernel = kernel.at[:, size:].set(2 * kernel[:, :kernel.shape[1] - size])
  params = {**target.params, 'decoder': {
      **target.params['decoder'], 'logits_dense': {'kernel': kernel}}}
  target = dataclasses.replace(target, params=params)
  for temperature in (0.0, 1.0):
    options = dict(max_new_tokens=BUDGET, source_buckets=(32,),
                   temperature=temperature)
    plain = generate.Decoder(target, gamma=0, **options)(tiny.TEXTS)
    other = generate.Decoder(
        target, tiny.loaded(narrow, 1), gamma=3, **options)(tiny.TEXTS)
    for outputs in (plain, other):
      assert max(max(o.ids) for o in outputs) < size
    if temperature == 0:
      assert ids(plain) == ids(other)


def test_different_vocabularies_are_refused_with_the_first_difference():
  draft = dataclasses.replace(
      tiny.loaded(tiny.DRAFTS['small'], 1),
      vocabulary=tiny.vocabulary(swapped=True))
  with pytest.raises(vocab.VocabularyError, match='vocabularies differ'):
    generate.Decoder(tiny.loaded(tiny.TARGET), draft)


def test_a_table_smaller_than_the_vocabulary_is_refused():
  small = dataclasses.replace(tiny.DRAFTS['small'], vocab_size=96)
  with pytest.raises(vocab.VocabularyError, match='table of 96 ids'):
    generate.Decoder(tiny.loaded(tiny.TARGET), tiny.loaded(small))


@pytest.mark.parametrize(('option', 'value'), [
    ('gamma', -1), ('gamma', 1.9), ('gamma', '4'), ('gamma', 1000),
    ('max_new_tokens', 0), ('batch_size', 0), ('seed', -1), ('seed', 2**31)])
def test_whole_numbers_are_checked_by_name(option, value):
  with pytest.raises(ValueError, match=f'{option}={value!r}: allowed are'):
    generate.check_whole(
        option, value, {'gamma': 0, 'seed': 0}.get(option, 1),
        {'gamma': 20, 'seed': 2**31 - 1}.get(option, float('inf')))


@pytest.mark.parametrize('lenience', [0, -1, 1.5, '1', float('nan')])
def test_lenience_is_checked_by_name(lenience):
  with pytest.raises(ValueError, match=f'lenience={lenience!r}: allowed are'):
    decoder(lenience=lenience)


def test_lenience_of_one_is_exact_and_below_it_the_output_is_the_drafts(plain):
  assert ids(decoder(lenience=1)(tiny.TEXTS)) == plain
  lossy = decoder(lenience=1e-30, max_new_tokens=7, gamma=6)
  found = lossy(tiny.TEXTS)
  assert all(len(o.rounds) == 1 for o in found if o.finish_reason == 'length')
  assert ids(found) != [row[:7] for row in plain]


def test_drafting_needs_a_draft():
  with pytest.raises(ValueError, match='gamma=4: allowed'):
    generate.Decoder(tiny.loaded(tiny.TARGET), gamma=4)


def test_options_that_do_not_exist_are_refused():
  with pytest.raises(TypeError, match='repetition_penalty'):
    decoder(repetition_penalty=1.3)


def test_block_logits_equal_single_steps_through_the_bound_model():
  model = generate.bind(tiny.loaded(tiny.TARGET), 148)
  params = tiny.loaded(tiny.TARGET).packed
  source = jnp.asarray([[5, 6, 7, 1]])
  tokens = jnp.asarray([[0, 8, 9, 10]])
  block, _ = model.extend(params, tokens, model.start(params, source, 8))
  cache = model.start(params, source, 8)
  for i in range(4):
    single, cache = model.extend(params, tokens[:, i:i + 1], cache)
    np.testing.assert_allclose(single[:, 0], block[:, i], atol=1e-5)
  assert block.shape[-1] == 148


def test_sentence_keys_depend_on_seed_and_index_only():
  def data(seed, index):
    keys = decode.sentence_keys(jnp.asarray(seed), jnp.asarray(index))
    return jax.random.key_data(keys).tolist()
  assert data(0, [0, 1, 2])[1:] == data(0, [1, 2])
  assert data(0, [1]) != data(1, [1])
