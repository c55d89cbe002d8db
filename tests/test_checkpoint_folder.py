"""No key leads out of a checkpoint folder."""

import os

from etils import epath
import pytest

from specdec_jax.checkpoint import errors
from specdec_jax.checkpoint import folder as folder_lib


def _folder(path):
  path.mkdir(exist_ok=True)
  return folder_lib.Folder(epath.Path(path))


@pytest.mark.parametrize('key', [
    '', '.', '..', '../a', 'a/../b', 'a/./b', 'a//b', '/a', '/etc/passwd', 'a/',
    'gs://b/a', 'file:///a', 'C:/a', 'a\\b', 'a\0b', 'a\nb'])
def test_keys_that_are_no_plain_path_are_refused(tmp_path, key):
  for root in (tmp_path / 'c', 'gs://bucket/c'):
    folder = folder_lib.Folder(epath.Path(root))
    with pytest.raises(errors.CheckpointError, match='inside the checkpoint'):
      folder.file(key)


def test_links_are_followed_inside_only(tmp_path):
  folder = _folder(tmp_path / 'c')
  (tmp_path / 'c' / 'real').write_bytes(b'inside')
  (tmp_path / 'secret').write_bytes(b'outside')
  for name, to in (('inner', 'real'), ('outer', '../secret'),
                   ('absolute', '/etc/passwd'), ('loop', 'loop')):
    (tmp_path / 'c' / name).symlink_to(to)
  assert folder.read('inner') == b'inside'
  for name in ('outer', 'absolute'):
    with pytest.raises(errors.CheckpointError, match='a link to'):
      folder.read(name)
  with pytest.raises(errors.CheckpointError):
    folder.read('loop')
  with pytest.raises(errors.CheckpointError):
    folder.check_entries()


def test_parent_folder_that_is_a_link_is_refused(tmp_path):
  folder = _folder(tmp_path / 'c')
  _folder(tmp_path / 'elsewhere')
  (tmp_path / 'elsewhere' / 'x').write_bytes(b'outside')
  (tmp_path / 'c' / 'sub').symlink_to(tmp_path / 'elsewhere')
  with pytest.raises(errors.CheckpointError, match='a link to'):
    folder.read('sub/x')


def test_checkpoint_folder_may_itself_be_a_link(tmp_path):
  _folder(tmp_path / 'c')
  (tmp_path / 'c' / 'x').write_bytes(b'inside')
  (tmp_path / 'name').symlink_to('c')
  assert folder_lib.Folder(epath.Path(tmp_path / 'name')).read('x') == b'inside'


def test_ranges_are_compared_with_the_file(tmp_path):
  folder = _folder(tmp_path / 'c')
  (tmp_path / 'c' / 'x').write_bytes(b'0123456789')
  assert folder.read('x', 3, 4) == b'3456'
  assert folder.read('x', 10, 0) == b''
  for start, length in ((0, 11), (10, 1), (-1, 3), (3, -1), (0, 1 << 62)):
    with pytest.raises(errors.CheckpointError, match='a file of 10'):
      folder.read('x', start, length)


def test_pipe_is_not_read(tmp_path):
  """Opening one would wait for ever."""
  folder = _folder(tmp_path / 'c')
  os.mkfifo(tmp_path / 'c' / 'x')
  with pytest.raises(errors.CheckpointError, match='no such file'):
    folder.read('x')
  with pytest.raises(errors.CheckpointError, match='neither a file'):
    folder.check_entries()
