"""The main job.

    python -m specdec_jax.main --config=configs/ende.py:mini \\
        --workdir=runs/ende_mini
"""

import logging as std_logging
import pathlib
import sys

from absl import app
from absl import flags
from absl import logging
from ml_collections import config_flags

from specdec_jax import run


def _is_ours(record: std_logging.LogRecord) -> bool:
  """Orbax and XLA tell of every step they take; a run has a few lines."""
  return (record.levelno >= std_logging.WARNING
          or 'specdec_jax' in record.pathname)


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments {argv[1:]}')
  logging.get_absl_handler().addFilter(_is_ours)
  try:
    run.run(flags.FLAGS.config, pathlib.Path(flags.FLAGS.workdir))
  except (ValueError, FloatingPointError) as error:
    logging.debug('refused', exc_info=True)  # shown with --verbosity=1
    sys.exit(f'error: {error}')


if __name__ == '__main__':
  config_flags.DEFINE_config_file(
      'config', None, 'Configuration file, with a variant: FILE.py:VARIANT.')
  flags.DEFINE_string('workdir', None, 'Folder for records and report.')
  flags.mark_flags_as_required(['config', 'workdir'])
  app.run(main)
