"""Several hosts: JAX's own runtime, and one exchange of values over it.

Every host runs the same command. Hosts that do not share a mesh decode
different batches; the first host asks, decides and writes for all.
"""

from collections.abc import Callable
import json
import os
import sys
from typing import Any, NoReturn, TypeVar

import jax
from jax.experimental import multihost_utils
import numpy as np

T = TypeVar('T')

LOST = (
    'another process of this job has ended, or the connection to it: see its '
    'own message. Run the same command on all hosts again; it goes on where it '
    'stopped')
# A host that is silent for so long counts as lost, and JAX ends the others.
LOST_AFTER = 60  # seconds
_LEAST_ROOM = 1 << 12  # bytes


class HostError(ValueError):
  """A wrong set of flags, a host that is lost, or what the first refused."""


def join(
    distributed: bool, coordinator: str | None, processes: int | None,
    index: int | None
) -> None:
  """Joins the hosts of a job; must come before anything else of JAX.

  Args:
    distributed: whether there are several. On Cloud TPU, Slurm and the like
      JAX finds the rest out.
    coordinator: HOST:PORT of the first process, where it cannot.
    processes: how many processes there are.
    index: of this one, 0 to processes - 1.

  Raises:
    HostError: naming the flags that do not fit together.
  """
  given = (coordinator, processes, index)
  if not distributed and given == (None, None, None):
    return
  if given != (None, None, None) and None in given:
    raise HostError(
        f'--coordinator={coordinator} --processes={processes} '
        f'--process_index={index}: allowed are all three, or none of them and '
        '--distributed on a cluster that JAX knows')
  if index is not None and not 0 <= index < (processes or 0):
    raise HostError(
        f'--process_index={index}: allowed are whole numbers of 0 to '
        f'--processes={processes} less 1')
  try:
    jax.distributed.initialize(
        coordinator, processes, index, heartbeat_timeout_seconds=LOST_AFTER)
  except (ValueError, RuntimeError) as error:
    raise HostError(
        f'--distributed: the processes could not be joined: {error}'
        ) from error


def is_first() -> bool:
  """Whether this process writes."""
  return jax.process_index() == 0


def gather(value: Any) -> list[Any]:
  """The value of each process, in their order; every process must call it.

  Values pass as JSON, so that no code is ever read from another host.

  Raises:
    HostError: if one of them has ended.
  """
  if jax.process_count() == 1:
    return [value]
  data = np.frombuffer(json.dumps(value).encode(), np.uint8)
  sizes = _allgather(np.asarray(data.size, np.int32))
  # Few different sizes, so that few programs are compiled for them.
  room = max(_LEAST_ROOM, 1 << int(sizes.max() - 1).bit_length())
  found = _allgather(np.pad(data, (0, room - data.size)))
  return [json.loads(row[:size].tobytes())
          for row, size in zip(found, sizes, strict=True)]


def _allgather(x: np.ndarray) -> np.ndarray:
  try:
    return np.asarray(multihost_utils.process_allgather(x))
  except (ValueError, RuntimeError) as error:  # which one: by transport
    raise HostError(f'{LOST} ({str(error).splitlines()[0]})') from error


def from_first(make: Callable[[], T]) -> T:
  """What `make` gives on the first process, or its refusal, on all of them."""
  answer: dict[str, Any] = {}
  if is_first():
    try:
      answer = {'value': make()}
    except ValueError as error:
      if jax.process_count() == 1:
        raise
      answer = {'error': str(error)}
  answer = gather(answer)[0]
  if 'error' in answer:
    raise HostError(answer['error'])
  return answer['value']


def fail(message: str) -> NoReturn:
  """Ends this process with a message and status 1.

  One of several is ended at once: the way out of JAX would wait for the others,
  and they for what this one will not send any more.
  """
  if jax.process_count() == 1:
    sys.exit(f'error: {message}')
  print(f'error: process {jax.process_index()} of {jax.process_count()}: '
        f'{message}', file=sys.stderr, flush=True)
  os._exit(1)
