"""The main job.

    python -m specdec_jax.main --config=configs/ende.py:mini \\
        --workdir=runs/ende_mini

Several hosts run the same command, each with `--distributed` (Cloud TPU, Slurm)
or with `--coordinator`, `--processes` and `--process_index`.
"""

import contextlib
import logging as std_logging
import pathlib

from absl import app
from absl import flags
from absl import logging
import jax
from ml_collections import config_flags

from specdec_jax import hosts
from specdec_jax import run


def _is_ours(record: std_logging.LogRecord) -> bool:
  """Orbax and XLA tell of every step they take; a run has a few lines."""
  return (record.levelno >= std_logging.WARNING
          or 'specdec_jax' in record.pathname)


def profile() -> contextlib.AbstractContextManager:
  """A trace of the first process, where one is asked for."""
  folder = flags.FLAGS.jax_profile
  if not folder or not hosts.is_first():
    return contextlib.nullcontext()
  options = jax.profiler.ProfileOptions()
  options.python_tracer_level = 0  # what the device does is what is looked for
  return jax.profiler.trace(folder, profiler_options=options)


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments {argv[1:]}')
  logging.get_absl_handler().addFilter(_is_ours)
  options = flags.FLAGS
  try:
    hosts.join(options.distributed, options.coordinator, options.processes,
               options.process_index)
    with profile():
      run.run(options.config, pathlib.Path(options.workdir))
  except (ValueError, FloatingPointError) as error:
    logging.debug('refused', exc_info=True)  # shown with --verbosity=1
    hosts.fail(str(error))
  except jax.errors.JaxRuntimeError as error:
    if jax.process_count() == 1:
      raise
    hosts.fail(f'{hosts.LOST} ({str(error).splitlines()[0]})')


if __name__ == '__main__':
  config_flags.DEFINE_config_file(
      'config', None, 'Configuration file, with a variant: FILE.py:VARIANT.')
  flags.DEFINE_string('workdir', None, 'Folder for records and report.')
  flags.DEFINE_string('jax_profile', None, 'Folder for a profiler trace.')
  flags.DEFINE_bool('distributed', False, 'Join the hosts of a cluster.')
  flags.DEFINE_string('coordinator', None, 'HOST:PORT of the first process.')
  flags.DEFINE_integer('processes', None, 'How many processes there are.')
  flags.DEFINE_integer('process_index', None, 'Which of them this is.')
  flags.mark_flags_as_required(['config', 'workdir'])
  app.run(main)
