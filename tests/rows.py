"""Records for tests that need no model."""

import json

from specdec_jax import records


def row(index=0, gamma=0, repeat=0, **values):
  """One line; plain decoding of three tokens unless told otherwise."""
  rounds = values.get('rounds', 3)
  return {
      'task': 'test', 'target': 'T', 'draft': 'D', 'temperature': 0.0,
      'greedy': True, 'gamma': gamma, 'batch_size': 1, 'repeat': repeat,
      'index': index, 'source': 's', 'reference': 'ein Satz aus Worten',
      'text': 'ein Satz aus Worten', 'ids': [5, 6, 1], 'source_length': 4,
      'source_truncated': False, 'output_length': 3, 'finish_reason': 'eos',
      'rounds': rounds, 'drafted': [gamma] * rounds, 'accepted': [0] * rounds,
      'discarded': [0] * rounds, 'encoder_seconds': 0.0,
      'decoder_seconds': 1.0, **values}


COST = {'draft': 'D', 'temperature': 0.0, 'c': 0.1,
        'verify_ratio': {'2': 1.2, '4': 1.5}, 'compile_seconds': 1.0}

CONFIG = {
    'config': {'target': 'T', 'scores': ['bleu']},
    'environment': {'device': 'cpu', 'processor': 'P', 'cores': 2,
                    'dtype': 'float32', 'versions': {'jax': '0'},
                    'commit': 'c' * 40}}


def trace(index=0, **values):
  """A line of `traces.jsonl`: three rounds of the same pieces."""
  one = {'drafted': [5, 6, 7], 'pieces': ['▁ein', '▁zwei', '<b>drei'],
         'p': [0.9, 0.1, 0.2], 'q': [0.8, 0.7, None],
         'marks': ['accepted', 'rejected', 'not judged'], 'accepted': 1,
         'discarded': 0, 'next_id': 8, 'next_piece': '▁vier', 'next_p': 0.4,
         'next_mark': 'correction'}
  return {'target': 'T', 'draft': 'D', 'temperature': 0.0, 'gamma': 3,
          'index': index, 'source': 's', 'text': 'ein vier', 'ids': [5, 8],
          'rounds': [one] * 3, **values}


def write(folder, rows, costs=(COST,), traces=(), config=CONFIG):
  """The files of a workdir."""
  folder.mkdir(exist_ok=True)
  for name, lines in (('examples', rows), ('costs', costs),
                      ('traces', traces)):
    records.append(folder / f'{name}.jsonl', lines)
  (folder / 'config.json').write_text(json.dumps(config))
