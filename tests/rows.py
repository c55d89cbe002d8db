"""Rows of `examples.jsonl` for tests that need no model."""


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
