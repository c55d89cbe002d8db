"""The model card's figures and tables."""

import numpy as np
import pytest

from experiments.ladder import card
from specdec_jax import examples
from specdec_jax import records
from specdec_jax import vocab
from tests import tiny

TASK = 'ende_mini'


@pytest.fixture(autouse=True)
def five_sentences(monkeypatch):
  """A data set of five sentences in batches of two."""
  def load(name, limit=None):
    assert name == TASK
    return [examples.Example(i, text, f'Das ist der Satz {i}.')
            for i, text in enumerate(tiny.TEXTS)][:limit]
  monkeypatch.setattr(examples, 'load', load)
  monkeypatch.setattr(card, 'BATCH', 2)
  monkeypatch.setattr(card, 'BUCKETS', (16, 64))


def source(length: int) -> vocab.Source:
  return vocab.Source((5,) * (length - 1) + (1,), length)


def test_batches_hold_every_sentence_once_shortest_first():
  found = card.batches([source(n) for n in (9, 3, 12, 3, 5)])
  assert found == [[1, 3], [4, 0], [2]]


def test_a_target_accepts_itself_always_and_a_draft_sometimes():
  target = tiny.loaded(tiny.TARGET)
  output = card.decode(target, TASK, 1.0)
  assert len(output['ids']) == len(output['texts']) == len(tiny.TEXTS)
  row = card.alphas(
      target, {'same': target, 'small': tiny.loaded(tiny.DRAFTS['small'])},
      TASK, 1.0, output['ids'])
  assert row['tokens'] == sum(map(len, output['ids']))
  np.testing.assert_allclose(row['alpha']['same'], (1, 0), atol=1e-4)
  mean, error = row['alpha']['small']
  assert 0.05 < mean < 0.95 and error > 0


def test_scores_carry_their_signatures():
  row = card.score(TASK, [f'Das ist der Satz {i}.' for i in range(5)])
  assert row['sentences'] == 5
  np.testing.assert_allclose((row['bleu'], row['chrf']), 100)
  assert 'tok:13a' in row['bleu_signature'] and 'nc:6' in row['chrf_signature']


def test_what_is_measured_once_is_not_measured_again(tmp_path):
  path, calls = tmp_path / 'card.jsonl', []

  def make():
    calls.append(1)
    return {'value': len(calls)}
  first = card.measured(path, {'kind': 'a', 'task': 'x'}, make)
  assert card.measured(path, {'kind': 'a', 'task': 'x'}, make) == first
  assert card.measured(path, {'kind': 'a', 'task': 'y'}, make)['value'] == 2


def fake_rows():
  key = {'model': 'target', 'task': TASK, 'temperature': 0.0}
  sizes = {
      'kind': 'assets', 'bytes': {'target': 2_500_000, 'unigram': 10_000},
      'load_seconds': 1.25, 'models': {'target': dict(
          d_model=8, d_ff=16, num_heads=2, encoder_layers=3, decoder_layers=4,
          parameters=1_234_567)}}
  return [
      sizes, {'kind': 'output', 'cut_outputs': 3, **key},
      {'kind': 'score', 'sentences': 5, 'bleu': 20.04, 'chrf': 41.0,
       'bleu_signature': 'B', 'chrf_signature': 'C', **key},
      {'kind': 'alpha', 'tokens': 10_100, **key,
       'alpha': {'small': [0.61, 0.012], 'unigram': [0.1, 0.003]}}]


def test_the_tables_hold_the_measured_figures():
  machine = dict(platform='cpu', processor='some', versions={'jax': '1'})
  text = card.render(fake_rows(), machine)
  for part in (
      '| target | 8 | 16 | 2 | 3 + 4 | 1,234,567 | 2.50 |',
      '| unigram | – | – | – | – | – | 0.01 |', '2.5 MB, loaded in 1.2 s',
      '| target | `ende_mini` | 5 | 20.0 | 41.0 |', '`B`, `C`',
      '3 (`target`, `ende_mini`, 0)', '| small | 0.610 ± 0.012 |',
      '| tokens | 10,100 |'):
    assert part in text
  assert 'bigram' not in text  # it was not measured


def test_only_what_stands_between_the_marks_is_replaced():
  text = f'before\n{card.MARKS[0]}\nold\n{card.MARKS[1]}\nafter\n'
  new = card.put_between_marks(text, 'new\n')
  assert new == f'before\n{card.MARKS[0]}\nnew\n{card.MARKS[1]}\nafter\n'
  with pytest.raises(records.WorkdirError, match='marks'):
    card.put_between_marks('before\nafter\n', 'new\n')


def test_the_shipped_readme_has_the_marks():
  card.put_between_marks(card.README.read_text('utf-8'), '')
