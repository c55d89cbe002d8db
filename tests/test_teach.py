"""Sequence-level distillation text: what is written, and after a kill."""

import pytest

from experiments.ladder import teach
from specdec_jax import checkpoint
from specdec_jax import generate
from specdec_jax import records
from specdec_jax import vocab
from tests import tiny

TEXTS = [*tiny.TEXTS, '', 'word ' * 100, 'Open the row.']


def source(length: int) -> vocab.Source:
  return vocab.Source((5,) * (length - 1) + (1,), length)


@pytest.fixture(scope='module')
def job(tmp_path_factory):
  """Teacher's folder and data of a job of four batches."""
  folder = tmp_path_factory.mktemp('teach')
  data = folder / 'data.tsv'
  data.write_text(''.join(f'{text}\tx\n' for text in TEXTS))
  one = tiny.loaded(tiny.TARGET)
  # EOS is far above or far below the other tokens: some outputs end, some not.
  kernel = one.params['decoder']['logits_dense']['kernel']
  kernel = kernel.at[:, vocab.EOS_ID].multiply(2.5)
  params = {**one.params, 'decoder': {
      **one.params['decoder'], 'logits_dense': {'kernel': kernel}}}
  checkpoint.save(folder / 'teacher', params, one.config, one.vocabulary)
  return str(folder / 'teacher'), f'tsv:{data}'


def run(job, output, temperature: float = 1.0) -> int:
  teacher, data = job
  return teach.teach(teacher, data, output, 3, temperature)


@pytest.fixture(scope='module')
def undisturbed(job, tmp_path_factory):
  output = tmp_path_factory.mktemp('undisturbed') / 'out.tsv'
  run(job, output)
  return output


def test_worked_example_of_the_plan():
  batches = teach.plan([source(n) for n in (20, 9, 12, 9)], [25, 10, 9, 11], 2)
  assert batches == [(32, [0]), (16, [2, 3]), (16, [1])]


def test_sources_over_the_largest_bucket_are_left_out():
  cut = vocab.Source((5,) * 95 + (1,), 97)
  assert teach.plan([cut, source(3)], [1, 1], 4) == [(16, [1])]


def test_pairs_are_the_teacher_s_output_in_the_order_of_the_data(
    job, undisturbed):
  rows = [line.split('\t') for line in undisturbed.read_text().splitlines()]
  texts = [source for source, _ in rows]
  assert rows and texts == [text for text in TEXTS if text in texts]
  assert 'word ' * 100 not in texts
  assert all(text.strip() for _, text in rows)


def test_a_run_killed_between_batches_ends_with_the_same_file(
    job, undisturbed, tmp_path, monkeypatch):
  class Killed(BaseException):
    pass
  decode_batch, calls = generate.Decoder.decode_batch, []

  def killed_at_the_third(self, sources, first_index):
    calls.append(first_index)
    if len(calls) == 3:
      raise Killed
    return decode_batch(self, sources, first_index)
  output = tmp_path / 'out.tsv'
  with monkeypatch.context() as patch:
    patch.setattr(generate.Decoder, 'decode_batch', killed_at_the_third)
    with pytest.raises(Killed):
      run(job, output)
  assert not output.exists()
  with (tmp_path / 'out.tsv.journal').open('a') as out:
    out.write('{"batch": [{"ind')  # a line that the kill cut in two
  run(job, output)
  assert output.read_text() == undisturbed.read_text()


def test_another_job_s_journal_is_refused(job, undisturbed):
  with pytest.raises(records.WorkdirError, match='belongs to'):
    run(job, undisturbed, temperature=0.0)


def test_outputs_that_are_cut_or_empty_are_left_out(tmp_path):
  output, text = tmp_path / 'out.tsv', 'Zeile'
  examples = [
      teach.examples_lib.Example(i, f'source {i}', None) for i in range(3)]
  batch = [dict(index=0, text=text, finish_reason='length'),
           dict(index=2, text=text, finish_reason='eos'),
           dict(index=1, text='', finish_reason='eos')]
  assert teach.finish(output, examples, [{'batch': batch}]) == 1
  assert output.read_text() == 'source 2\tZeile\n'
