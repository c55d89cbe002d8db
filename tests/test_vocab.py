"""Text and ids: T5's special ids, cutting, and vocabularies that differ."""

import shutil

import numpy as np
import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from specdec_jax import vocab
from tests import fixtures_text


def _train(path, sentences=None, **options):
  """A SentencePiece model with other special ids than T5's."""
  texts = sentences or [en for en, _ in fixtures_text.sentence_pairs()]
  defaults = dict(vocab_size=40, bos_id=-1, minloglevel=2, num_threads=1)
  with path.open('wb') as out:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=out, **defaults | options)
  return vocab.Vocabulary(path)


@pytest.fixture(scope='session')
def without_pad(tmp_path_factory):
  """A model whose id 0 is no pad piece but the unknown one (case-38)."""
  return _train(tmp_path_factory.mktemp('no_pad') / 'sentencepiece.model',
                pad_id=-1, unk_id=0, eos_id=1)


# -- ids


def test_special_ids_are_those_of_t5(vocabulary):
  assert (vocab.PAD_ID, vocab.EOS_ID, vocab.START_ID) == (0, 1, 0)
  assert [vocabulary.piece(i) for i in range(3)] == ['<pad>', '</s>', '<unk>']


def test_extra_ids_stand_at_the_end_in_reverse_order(vocabulary):
  # As in T5's own vocabulary: 32000 pieces, <extra_id_0> is id 32099.
  assert vocabulary.text_size == 170
  assert vocabulary.piece(169) == '<extra_id_0>'
  assert vocabulary.piece(168) == '<extra_id_1>'
  assert vocabulary.piece(70) == '<extra_id_99>'
  assert not vocabulary.piece(69).startswith('<')


def test_ids_of_the_padded_table_have_no_text(vocabulary):
  # case-33: the table may be wider than the vocabulary.
  assert vocabulary.piece(170) == '<unused_170>'
  assert vocabulary.decode([170, 31, 27, 100]) == vocabulary.decode([31, 27])


def test_extra_ids_in_the_file_are_the_same_ids(vocabulary, tmp_path):
  # As in T5X's own copy, which has `▁<extra_id_99>` down to 0 at its end.
  proto = sentencepiece_model_pb2.ModelProto()
  proto.ParseFromString(vocabulary.path.read_bytes())
  for k in reversed(range(100)):
    proto.pieces.add(
        piece=f'▁<extra_id_{k}>', score=0.0,
        type=sentencepiece_model_pb2.ModelProto.SentencePiece.USER_DEFINED)
  path = tmp_path / 'with_extra.model'
  path.write_bytes(proto.SerializeToString())
  other = vocab.Vocabulary(path)
  assert other.text_size == vocabulary.text_size
  vocab.check_same(vocabulary, other)
  ids = [*vocabulary.encode('the file'), 169]
  assert other.decode(ids) == vocabulary.decode(ids)


def test_number_of_extra_ids_is_part_of_the_vocabulary(vocabulary):
  bare = vocab.Vocabulary(vocabulary.path, extra_ids=0)
  assert bare.text_size == 70


@pytest.mark.parametrize('negative', [-1, -200])
def test_negative_ids_are_refused(vocabulary, negative):
  # case-38: an array index would read them from the end.
  message = f'token {negative}: allowed are ids of 0 and above'
  with pytest.raises(vocab.VocabularyError, match=message):
    vocabulary.decode([31, negative])
  with pytest.raises(vocab.VocabularyError, match=message):
    vocabulary.piece(negative)


def test_pad_is_0_where_the_model_has_no_pad_piece(without_pad):
  # case-38
  pieces = sentencepiece.SentencePieceProcessor(
      model_file=str(without_pad.path))
  assert pieces.pad_id() == -1
  ids = [*without_pad.encode('Open the file.'), vocab.EOS_ID]
  padded = vocab.pad([ids], 40)
  assert padded.min() == 0
  assert without_pad.decode(padded[0].tolist()) == 'Open the file.'


# -- text to ids


@pytest.mark.parametrize('pieces', [14, 15, 16])
def test_source_ends_with_exactly_one_eos(vocabulary, pieces):
  # case-36: with EOS 15, 16 and 17 ids, for a limit of 16.
  long = ' '.join(en for en, _ in fixtures_text.sentence_pairs()[:4])
  text = next(long[i:j] for i in range(40) for j in range(i, len(long))
              if len(vocabulary.encode(long[i:j])) == pieces)
  ids = vocabulary.encode(text)
  source = vocabulary.encode_source(text, 16)
  assert source.ids == (*ids[:15], vocab.EOS_ID)
  assert source.full_length == pieces + 1
  assert source.truncated == (pieces == 16)


@pytest.mark.parametrize('text', ['', ' ', '\t \r'])
def test_empty_text_is_eos_alone(vocabulary, text):
  # case-61
  assert vocabulary.encode_source(text, 4) == vocab.Source((1,), 1)


def test_source_limit_leaves_room_for_eos(vocabulary):
  ids = vocabulary.encode('Open the second formula.')
  assert vocabulary.encode_source('Open the second formula.', 4) == (
      vocab.Source((*ids[:3], 1), len(ids) + 1))
  assert vocabulary.encode_source('Open', 1).ids == (1,)
  with pytest.raises(vocab.VocabularyError, match='source limit 0'):
    vocabulary.encode_source('Open', 0)


def test_white_space_is_folded(vocabulary):
  # case-35
  plain = vocabulary.encode('Open the file.')
  assert vocabulary.encode(' Open\tthe  file.\r') == plain


# -- ids to text


@pytest.mark.parametrize('side', [0, 1])
def test_decode_gives_the_text_back(vocabulary, side):
  for pair in fixtures_text.sentence_pairs()[:20]:
    assert vocabulary.decode(vocabulary.encode(pair[side])) == pair[side]


def test_decode_stops_at_the_first_eos_and_skips_pads(vocabulary):
  ids = vocabulary.encode('Open the file.')
  assert vocabulary.decode([0, *ids, 0, 1, *ids]) == 'Open the file.'
  assert vocabulary.decode([1]) == vocabulary.decode([]) == ''


# -- vocabularies that cannot be used together


def test_the_same_pieces_in_another_file_are_the_same(vocabulary, tmp_path):
  copy = tmp_path / 'copy.model'
  shutil.copy(vocabulary.path, copy)
  vocab.check_same(vocabulary, vocab.Vocabulary(copy))


def test_sizes_that_differ_are_refused_with_both_numbers(vocabulary):
  # case-33
  other = vocab.Vocabulary(vocabulary.path, extra_ids=96)
  with pytest.raises(vocab.VocabularyError, match='has 170 ids.*has 166'):
    vocab.check_same(vocabulary, other)


def test_swapped_pieces_are_refused_with_the_first_id(tmp_path):
  # case-34: two user pieces in another order, all else equal.
  kinds = [['<x>', '<y>'], ['<y>', '<x>']]
  one, two = (
      _train(tmp_path / f'{i}.model', pad_id=0, eos_id=1, unk_id=2,
             user_defined_symbols=symbols)
      for i, symbols in enumerate(kinds))
  with pytest.raises(vocab.VocabularyError, match='at id 3') as error:
    vocab.check_same(one, two)
  assert "target has '<x>'" in str(error.value)
  assert "draft has '<y>'" in str(error.value)


def test_a_model_with_another_eos_is_refused(tmp_path):
  other = _train(tmp_path / 'other.model', unk_id=0, eos_id=2, bos_id=1)
  with pytest.raises(vocab.VocabularyError, match='EOS has id 2, T5 needs 1'):
    other.encode('Open')


def test_a_missing_or_foreign_file_is_refused_by_path(tmp_path):
  with pytest.raises(vocab.VocabularyError, match='none.model: no such file'):
    vocab.Vocabulary(tmp_path / 'none.model').encode('a')
  (tmp_path / 'text.model').write_text('not a model')
  with pytest.raises(vocab.VocabularyError, match='not a SentencePiece model'):
    vocab.Vocabulary(tmp_path / 'text.model').encode('a')


# -- arrays


def test_pad_of_the_docstring_example():
  padded = vocab.pad([[5, 1], [7]], 3)
  assert padded.tolist() == [[5, 1, 0], [7, 0, 0]]
  assert padded.dtype == np.int32


def test_a_row_longer_than_the_array_is_refused():
  with pytest.raises(ValueError):
    vocab.pad([[5, 6, 1]], 2)


def test_bucket_is_the_smallest_that_holds_the_length():
  assert [vocab.bucket(n, (32, 16)) for n in (1, 16, 17, 32)] == [
      16, 16, 32, 32]
  with pytest.raises(ValueError, match='length 33: the largest bucket is 32'):
    vocab.bucket(33, (32, 16))


def test_fingerprints_are_equal_for_equal_pieces_only(vocabulary, tmp_path):
  copied = tmp_path / 'copied.model'
  copied.write_bytes(vocabulary.path.read_bytes())
  assert vocab.Vocabulary(copied).fingerprint == vocabulary.fingerprint
  texts = ['Etwas ganz anderes steht hier.'] * 9
  other = vocab.train(texts, tmp_path / 'other.model', 20)
  assert other.fingerprint != vocabulary.fingerprint
