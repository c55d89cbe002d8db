"""Tiny random T5 models with a real vocabulary, in memory or in a folder."""

import functools
import pathlib
import tempfile

import jax

from specdec_jax import checkpoint
from specdec_jax import records
from specdec_jax import t5
from specdec_jax import vocab

TEXTS = (
    'Open the file.', 'Close the window and save the document.',
    'The quick brown fox jumps over the lazy dog.', 'Choose Insert.',
    'Select a cell and press Enter to apply the format to the whole row.')


@functools.cache
def vocabulary(swapped: bool = False) -> vocab.Vocabulary:
  """A unigram vocabulary trained on a few sentences (48 pieces)."""
  folder = pathlib.Path(tempfile.mkdtemp())
  texts = [text.upper() if swapped else text for text in TEXTS]
  return vocab.train(texts * 20, folder / 'sentencepiece.model', 48)


def config(**values) -> t5.T5Config:
  """Width 16, one layer on each side, unless told otherwise."""
  return t5.T5Config(**{
      'd_model': 16, 'd_ff': 32, 'num_heads': 2, 'head_dim': 8,
      'encoder_layers': 1, 'decoder_layers': 1, 'vocab_size': 192, **values})


TARGET = config(d_model=24, decoder_layers=2)
# Three drafts of rising size, of both flavours.
DRAFTS = {
    'small': config(),
    'base': config(gated=False, tied=True),
    'large': config(d_model=24, encoder_layers=2, decoder_layers=2),
}


@functools.cache
def loaded(model: t5.T5Config, seed: int = 0) -> checkpoint.Loaded:
  """Random weights, scaled so that the next token depends on the text."""
  params = t5.init_params(model, jax.random.key(seed))
  params = jax.tree.map(lambda x: x * 1.5, params)
  return checkpoint.Loaded('tiny', model, params, vocabulary())


def save(folder: pathlib.Path, model: t5.T5Config, seed: int = 0) -> str:
  """Writes a model folder and returns its path."""
  one = loaded(model, seed)
  checkpoint.save(folder, one.params, one.config, one.vocabulary)
  return str(folder)


def job(folder: pathlib.Path, **options) -> dict:
  """Options of a job on models and data in a folder."""
  (folder / 'data.tsv').write_text(
      ''.join(f'{text}\t{text}\n' for text in TEXTS))
  return {
      'task': f'tsv:{folder / "data.tsv"}',
      'target': save(folder / 'target', TARGET),
      'drafts': (save(folder / 'small', DRAFTS['small'], 1),),
      'source_buckets': (32,), 'batch_size': 2, **options}


def untimed(workdir: pathlib.Path) -> list[records.Row]:
  """Records without seconds, which no two runs share."""
  return [{k: v for k, v in row.items() if not k.endswith('_seconds')}
          for row in records.read(workdir / 'examples.jsonl')]
