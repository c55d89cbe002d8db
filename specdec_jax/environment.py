"""Where a run happened: versions, device, precision, commit."""

import importlib.metadata
import os
import pathlib
import platform
import subprocess
from typing import Any

import jax

from specdec_jax import config as config_lib

_PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'orbax-checkpoint', 'numpy',
             'sacrebleu', 'sentencepiece')


def _commit() -> str:
  folder = pathlib.Path(__file__).parent
  try:
    return subprocess.run(
        ['git', 'rev-parse', 'HEAD'], cwd=folder, capture_output=True,
        text=True, check=True).stdout.strip()
  except (OSError, subprocess.CalledProcessError):
    return 'unknown'


def _processor() -> str:
  path = pathlib.Path('/proc/cpuinfo')
  if path.exists():
    for line in path.read_text().splitlines():
      if line.startswith('model name'):
        return line.partition(':')[2].strip()
  return platform.processor() or platform.machine()


def machine() -> dict[str, Any]:
  """What a job ran on and with."""
  device = jax.devices()[0]
  return {
      'platform': device.platform, 'device': device.device_kind,
      'devices': jax.device_count(), 'hosts': jax.process_count(),
      'processor': _processor(), 'cores': os.cpu_count(),
      'python': platform.python_version(),
      'versions': {p: importlib.metadata.version(p) for p in _PACKAGES},
      'random_generator': str(jax.random.key_impl(jax.random.key(0))),
      'commit': _commit(),
  }


def describe(settings: config_lib.RunConfig) -> dict[str, Any]:
  """What a reader must know to place the figures."""
  return machine() | {
      'dtype': settings.dtype, 'matmul_precision': settings.matmul_precision,
      'seed': settings.seed}
