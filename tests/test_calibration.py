"""What `auto` is: costs from times, and the fastest program."""

import types

import pytest

from specdec_jax import adaptive
from specdec_jax import calibration
from specdec_jax import generate
from specdec_jax import theory
from specdec_jax import vocab

SENTENCE = [vocab.Source((5, 1), 2)]


class Decoder(generate.Decoder):
  """Two tokens a sentence in rounds as told, at a price a token."""

  def __init__(self, seconds, rounds=(), policy=None):
    self.seconds, self.rounds, self.policy = seconds, rounds, policy

  def decode_batch(self, sources, first_index):
    del first_index
    return [types.SimpleNamespace(
        decoder_seconds=2 * self.seconds, ids=(5, 1), rounds=self.rounds)
            for _ in sources]


def times(**options):
  decoders = {0: Decoder(1.0), 1: Decoder(
      0.8, [generate.Round(1, 1, 0), generate.Round(1, 0, 0)])} | options
  return calibration.measure(decoders, [(SENTENCE, 0), (SENTENCE, 1)])


def test_alpha_is_what_passed_of_the_coins():
  # Of two rounds with one draft each one passed; 2 sentences, each repeat.
  found = times()
  assert found.alpha == 0.5
  assert found.flipped == 2 * 2 * calibration.REPEATS


def test_round_costs_of_the_docstring_example():
  assert calibration.round_costs(times()) == {1: pytest.approx(1.2)}


def test_at_the_first_alpha_eq_1_gives_the_measured_factor():
  found = calibration.Times({0: 2.0, 1: 1.6, 4: 1.9}, 70, 100)
  for gamma, cost in calibration.round_costs(found).items():
    factor = theory.tokens_per_round(found.alpha, gamma) / cost
    assert factor == pytest.approx(found.seconds[0] / found.seconds[gamma])


def test_fastest_of_the_docstring_examples():
  assert calibration.Times({0: 1.0, 1: 0.99, 3: 1.1}, 0, 0).fastest == 0
  assert calibration.Times({0: 1.0, 1: 0.9}, 0, 0).fastest == 1


def test_without_a_coin_alpha_is_0():
  assert calibration.Times({0: 1.0, 3: 2.0}, 0, 0).alpha == 0


@pytest.mark.parametrize('price, expected', [(0.5, 'auto'), (0.9, 1)])
def test_the_chooser_is_taken_where_it_is_fastest(price, expected):
  decoders = {0: Decoder(1.0), 1: Decoder(0.8), 3: Decoder(1.2)}
  batches = [(SENTENCE, 0)]
  chooser = Decoder(price, policy=adaptive.timed_policy({1: 1.1}))
  found = calibration.measure(decoders, batches)
  assert calibration.fastest(found, chooser, decoders, batches) == expected


def test_a_chooser_that_is_plain_decoding_is_not_tried():
  decoders = {0: Decoder(1.0), 1: Decoder(1.5)}
  batches = [(SENTENCE, 0)]
  found = calibration.measure(decoders, batches)
  assert calibration.fastest(
      found, Decoder(0.1, policy=None), decoders, batches) == 0
