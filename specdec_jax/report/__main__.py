"""Makes reports again from records, without jax."""

import pathlib
import sys

from absl import app
from absl import flags

from specdec_jax import records
from specdec_jax import report


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments {argv[1:]}')
  workdirs = list(map(pathlib.Path, flags.FLAGS.workdir))
  try:
    if flags.FLAGS.output:
      report.write_merged(workdirs, pathlib.Path(flags.FLAGS.output))
    elif len(workdirs) == 1:
      report.write(workdirs[0])
    else:
      sys.exit('error: --output: several runs need a folder for their report')
  except (records.WorkdirError, OSError) as error:
    sys.exit(f'error: {error}')


if __name__ == '__main__':
  flags.DEFINE_multi_string(
      'workdir', None, 'Folder of a run; several are merged.', required=True)
  flags.DEFINE_string(
      'output', None, 'Folder of the merged report; needed for several runs.')
  app.run(main)
