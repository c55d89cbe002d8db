"""Makes reports again from records, without jax."""

import pathlib
import sys

from absl import app
from absl import flags

from specdec_jax import records
from specdec_jax import report

_WORKDIRS = flags.DEFINE_multi_string(
    'workdir', None, 'Folder of a run; several are merged.', required=True)
_OUTPUT = flags.DEFINE_string(
    'output', None, 'Folder of the merged report; needed for several runs.')


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments {argv[1:]}')
  workdirs = list(map(pathlib.Path, _WORKDIRS.value))
  try:
    if _OUTPUT.value:
      report.write_merged(workdirs, pathlib.Path(_OUTPUT.value))
    elif len(workdirs) == 1:
      report.write(workdirs[0])
    else:
      sys.exit('error: --output: several runs need a folder for their report')
  except (records.WorkdirError, OSError) as error:
    sys.exit(f'error: {error}')


if __name__ == '__main__':
  app.run(main)
