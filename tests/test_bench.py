"""The benchmarks: arithmetic, and that each walks to its end. Nothing is timed.
"""

import json
import pathlib

import pytest
import tqdm

from experiments import accelerator
from experiments.bench import adaptive
from experiments.bench import common
from experiments.bench import decoder
from experiments.bench import peers
from experiments.bench import scaling
from specdec_jax import architecture
from specdec_jax import cache
from specdec_jax import checkpoint
from specdec_jax import generate
from specdec_jax import vocab
from tests import tiny


def test_random_models_decode_with_all_logits_of_their_table():
  config = tiny.config(tied=True)
  model = common.random_model('x', config)
  shapes = checkpoint.flatten(model.params)
  assert {x.dtype.name for x in shapes.values()} == {'float32'}
  assert model.vocabulary.text_size == config.vocab_size
  decoded = generate.Decoder(
      model, model, gamma=2, max_new_tokens=4, source_buckets=(4,),
      acceptance=0.75)
  [output] = decoded.decode_batch([vocab.Source((3, 1), 2)], 0)
  assert output.ids and output.text == ''


def test_a_step_of_base_reads_weights_and_cross_caches():
  """496 MB of weights, and 64 positions of 12 layers of keys and values."""
  config = architecture.SIZES['t5_1_1_base']
  found = decoder.step_bytes(config, 64)
  assert found == (accelerator.step_bytes(config, 4)
                   + 64 * 12 * 2 * 768 * 4)
  assert round(found / 1e6) == 500


def test_every_size_gets_some_steps_and_no_more_than_128():
  plan = decoder.full()
  steps = [plan.steps(config) for config in plan.targets.values()]
  assert steps == sorted(steps, reverse=True)
  assert min(steps) >= 2 and max(steps) <= 128


def test_loop_efficiency_is_measured_over_predicted():
  plan = decoder.tiny()
  samples = {decoder.BANDWIDTH: [1.0], ('mini', 1): [2.0],
             **{('mini', g + 1): [4.0] for g in decoder.GAMMAS},
             ('mini', 'small'): [0.2]}
  row = decoder.row(plan, 'mini', samples, decoder.Factor(1.0, 2.7, 100, 2.7))
  assert row['c'] == {'small': pytest.approx(0.1)}
  assert row['verify_ratio']['7'] == 2
  # 3.6 tokens of Eq. 1 for 7 * 0.1 + 2 steps; the coins gave 2.7.
  assert row['loop_efficiency'] == pytest.approx(2.7 / 3.5995, rel=1e-3)
  assert row['loop_efficiency_of_rounds'] == pytest.approx(1.0)
  assert row['step_over_floor'] == pytest.approx(
      2.0 * plan.read_bytes / row['step_bytes'])


def test_error_of_the_coins_of_the_docstring_example():
  assert decoder.coins_error(0.5, 1, 100) == pytest.approx(1 / 30)


def test_the_caches_of_the_decoder_benchmark_do_not_grow():
  assert len(cache.sizes(decoder.full().slots)) == 1


def test_unknown_models_are_refused_with_those_there_are():
  with pytest.raises(ValueError, match='--models=xl: allowed are mini,small'):
    decoder.choose(decoder.full(), ['mini', 'xl'])


def test_the_decoder_benchmark_walks_to_its_end(monkeypatch):
  monkeypatch.setattr(decoder, 'GAMMAS', (1, 7))
  [row] = decoder.measure_all(decoder.tiny())
  assert row['model'] == 'mini' and row['peak_bytes'] > 0
  assert row['verify_ratio'].keys() == {'1', '7'}
  json.dumps(row, allow_nan=False)


def test_output_is_cut_behind_its_first_eos():
  assert peers.cut([5, 1, 0, 0]) == (5, 1)
  assert peers.cut([5, 6]) == (5, 6)


def of(seconds, ids, error=None):
  return peers.Run(ids, seconds, [sum(map(len, ids))] * len(seconds), error)


def test_ratios_to_a_peer_are_of_totals_with_the_spread_of_repeats():
  runs = {
      peers.REFERENCE: of([4.0, 4.0], [(3, 1), (4, 1)]),
      peers.ASSISTED: of([], [], 'TypeError: no'),
      peers.BASE: of([1.0, 3.0], [(3, 1), (4, 1)]),
      ('ours', 'plain'): of([1.0, 1.0], [(3, 1), (5, 1)])}
  _, assisted, _, ours = peers.rows(runs)
  assert assisted == {'engine': 'transformers', 'mode': 'assisted',
                      'error': 'TypeError: no'}
  assert ours['ratio_to_ctranslate2_float32'] == 2
  assert ours['ratio_to_ctranslate2_float32_low'] == 1
  assert ours['ratio_to_ctranslate2_float32_high'] == 3
  assert ours['identical'] == 1 and ours['tokens_per_second'] == 4
  assert 'ratio_to_transformers_assisted' not in ours


def test_a_peer_that_fails_is_left_out_by_name(monkeypatch):
  monkeypatch.setattr(peers, 'PAUSE', 0.0)

  def refuse(source):
    raise NotImplementedError('not T5')
  bar = tqdm.tqdm(disable=True)
  found = peers.decode_in_turn(
      {peers.ASSISTED: peers.timed(refuse),
       ('ours', 'plain'): peers.timed(lambda source: source)},
      [(3, 1)], 2, bar)
  assert found[peers.ASSISTED].error == 'NotImplementedError: not T5'
  assert found['ours', 'plain'].tokens == [2, 2]
  with pytest.raises(peers.EngineError, match='not T5'):
    peers.decode_in_turn(
        {('ours', 'plain'): peers.timed(refuse)}, [(3, 1)], 1, bar)


def echo_engines(word):
  """Engines for another process to make."""
  def refuse(source):
    raise TypeError(word)
  return {('echo', 'plain'): lambda source: source, ('echo', 'no'): refuse}


def test_engines_run_and_refuse_in_a_process_of_their_own():
  with peers.own_process(echo_engines, 'not here') as engines:
    outputs, seconds = engines['echo', 'plain']([(3, 1), (4, 1)])
    assert outputs == [(3, 1), (4, 1)] and seconds >= 0
    with pytest.raises(peers.EngineError, match='TypeError: not here'):
      engines['echo', 'no']([(3, 1)])
    assert engines['echo', 'plain']([(5, 1)])[0] == [(5, 1)]


def test_ids_of_every_peer_are_those_of_our_plain_decoding(tmp_path):
  pytest.importorskip('transformers', reason='pip install -e .[bench]')
  pytest.importorskip('ctranslate2', reason='pip install -e .[bench]')
  config = tiny.config(tied=True, vocab_size=152)
  model = tiny.loaded(config)
  folder = pathlib.Path(tiny.save(tmp_path / 'target', config))
  source = model.vocabulary.encode_source(tiny.TEXTS[0], 64).ids
  plain = generate.Decoder(
      model, gamma=0, max_new_tokens=peers.TOKENS, source_buckets=(64,))
  [expected] = plain.decode_batch([vocab.Source(source, 9)], 0)
  written = peers.export(str(folder), tmp_path / 'hf')
  engines = peers.transformers_engines(written, written)
  engines |= peers.ctranslate2_engines(
      peers.convert(written, 152, str(tmp_path / 'ct2')), 'float32')
  for key in (peers.REFERENCE, peers.ASSISTED, peers.BASE):
    assert engines[key](source) == expected.ids, key


def test_a_position_of_the_built_in_target_has_12288_bytes():
  config = checkpoint.read_config('mini/target')
  assert scaling.bytes_per_unit(config, 'source') == 12288
  assert scaling.bytes_per_unit(config, 'batch') == 12288 * (64 + 72)


def test_slopes_are_those_of_a_straight_line():
  assert common.slope([1, 2, 3], [3, 5, 7]) == pytest.approx(2)
  config = checkpoint.read_config('mini/target')
  rows = scaling.step_rows(config, {
      ('slots', 32): [1e-3], ('slots', 64): [1.032e-3, 1.032e-3, 9.0]})
  assert rows[-1]['step_us'] == pytest.approx(1)
  assert rows[-1]['of_smallest'] == pytest.approx(1e-3)


def test_scaling_walks_to_its_end():
  rows = scaling.measure_all(
      tiny.loaded(tiny.TARGET), {'batch': (1, 2)}, (28, 32), 2, 1)
  assert [row['size'] for row in rows] == [1, 2, 'slope a unit', 28, 32]
  json.dumps(rows, allow_nan=False)


def test_auto_is_compared_with_the_fastest_fixed_gamma():
  examples = [
      {'index': 0, 'repeat': 0, 'gamma': gamma, 'decoder_seconds': seconds,
       'ids': [3, 1], 'beta': [0.5]}
      for gamma, seconds in ((0, 2.0), (1, 2.2), (3, 1.0), ('auto', 1.25))]
  row = adaptive.line('d', examples, 0.0)
  assert row['best_gamma'] == 3 and row['auto_over_best'] == 0.8
  assert row['best_fixed'] == 2 and row['auto'] == pytest.approx(1.6)
  assert row['oracle'] == 2 and row['auto_over_best_low'] is None
  assert row['identical'] == row['sentences'] == 1
