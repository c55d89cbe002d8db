"""Where weights, caches and rows live when there are several devices.

A mesh has two axes: `data` splits the rows of a batch, `model` splits weights
and heads. The model knows nothing of it: a table of rules places the weights by
their T5X names, one function places caches, and XLA inserts what has to be
exchanged. The ids are those of one device.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import math
import re
from typing import Any

import jax
from jax import numpy as jnp
from jax.experimental import mesh_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np

from specdec_jax import architecture
from specdec_jax import t5

AXES = ('data', 'model')

# (pattern of the whole parameter name, mesh axis of each array axis). Products
# into heads and MLP are split by columns and those out of them by rows, so
# that a layer exchanges two activations and never a weight.
RULES: tuple[tuple[str, tuple[str | None, ...]], ...] = (
    (r'token_embedder/embedding', ('model', None)),
    (r'.*/(query|key|value)/kernel', (None, 'model')),
    (r'.*/out/kernel', ('model', None)),
    (r'.*/mlp/wi(_[01])?/kernel', (None, 'model')),
    (r'.*/mlp/wo/kernel', ('model', None)),
    (r'decoder/logits_dense/kernel', (None, 'model')),
    (r'.*/rel_embedding', ('model', None)),  # (heads, buckets)
    (r'.*/scale', (None,)),
)


class MeshError(ValueError):
  """A mesh that the devices, the model or the batch cannot fill."""


def axes_of(name: str) -> tuple[str | None, ...]:
  """Mesh axes of a parameter; `decoder/layers_0/mlp/wo/kernel`: rows."""
  for pattern, axes in RULES:
    if re.fullmatch(pattern, name):
      return axes
  raise MeshError(f'parameter {name}: no rule of `sharding.RULES` places it')


@dataclasses.dataclass(frozen=True)
class Layout:
  """How one model lies on a mesh; called with a name it places a parameter.

  Attributes:
    mesh: of axes `data` and `model`.
    split: weights and heads over `model`, or whole on every device, which
      suits a small draft beside a large target.
  """
  mesh: jax.sharding.Mesh
  split: bool = True

  def _place(self, *axes: str | None) -> NamedSharding:
    kept = [a if a == 'data' or self.split else None for a in axes]
    return NamedSharding(self.mesh, PartitionSpec(*kept))

  def __call__(self, name: str) -> NamedSharding:
    return self._place(*axes_of(name))

  @property
  def rows(self) -> NamedSharding:
    """Of arrays whose first axis is the batch."""
    return self._place('data')

  def check(self, config: architecture.T5Config, name: str) -> None:
    """Raises MeshError where the model cannot be split over `model`."""
    size = self.mesh.shape['model'] if self.split else 1
    for option in ('num_heads', 'd_ff', 'vocab_size'):
      if getattr(config, option) % size:
        raise MeshError(
            f'model {name}: {option}={getattr(config, option)} over '
            f'mesh model={size}: allowed are divisors; a draft can also be '
            'draft_layout=replicated')

  def state(self, x: jax.Array) -> NamedSharding:
    """Of one array of a cache: rows over `data`, heads over `model`.

    Example: keys (b, h, k, n) go to ('data', 'model'), a mask (b, s) and
    lengths (b,) to ('data',).
    """
    return self._place('data', 'model') if x.ndim == 4 else self.rows

  def constrain(self, cache: Any) -> Any:
    """The cache, placed; inside a compiled program."""
    return jax.tree.map(
        lambda x: jax.lax.with_sharding_constraint(x, self.state(x)), cache)


@functools.cache
def placed(model: t5.Model, layout: Layout) -> t5.Model:
  """The same functions, with their caches held to the layout."""
  def start(params, source_ids, slots):
    return layout.constrain(model.start(params, source_ids, slots))

  def extend(params, tokens, cache, at=None):
    logits, cache = model.extend(params, tokens, cache, at)
    return logits, layout.constrain(cache)
  return t5.Model(start, extend)


def make_mesh(
    sizes: Mapping[str, int], devices: Sequence[Any] | None = None
) -> jax.sharding.Mesh:
  """A mesh of this host's first devices, or of all devices of all hosts.

  Args:
    sizes: of `data` and `model`; what is missing is 1.
    devices: to use instead of what this process sees (for compiling ahead).

  Raises:
    MeshError: naming the sizes and how many devices there are.
  """
  shape = tuple(sizes.get(axis, 1) for axis in AXES)
  needed = math.prod(shape)
  local = list(devices or jax.local_devices())
  everywhere = local if devices else jax.devices()
  if needed <= len(local):
    chosen = local[:needed]
  elif needed == len(everywhere):
    chosen = everywhere
  else:
    raise MeshError(
        f'mesh {dict(sizes)}: needs {needed} devices; allowed are up to the '
        f'{len(local)} of this host or all {len(everywhere)} of all hosts')
  return jax.sharding.Mesh(
      mesh_utils.create_device_mesh(shape, chosen), AXES)


def put_rows(placement: Any, arrays: Any) -> Any:
  """Puts arrays whose first axis is the batch where the model's rows are."""
  if not isinstance(placement, Layout):
    return arrays
  return jax.tree.map(functools.partial(_put, placement.rows), arrays)


def _put(where: NamedSharding, x: jax.Array) -> jax.Array:
  """Puts an array that every host has whole."""
  if where.is_fully_addressable:
    return jax.device_put(x, where)
  if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
    return jax.random.wrap_key_data(_put(where, jax.random.key_data(x)))
  host = np.asarray(x)
  return jax.make_array_from_callback(x.shape, where, lambda i: host[i])


def spans_hosts(mesh: jax.sharding.Mesh) -> bool:
  """Whether the hosts run one program together, on the same batches."""
  return len({device.process_index for device in mesh.devices.flat}) > 1


def to_host(tree: Any) -> Any:
  """NumPy arrays of a tree; parts that other hosts hold are fetched."""
  def fetch(x):
    if not isinstance(x, jax.Array):
      return x
    if not x.is_fully_addressable:
      assert isinstance(x.sharding, NamedSharding), x.sharding
      x = _whole(x.sharding.mesh)(x).addressable_data(0)
    if x.platform() == 'cpu':
      return np.asarray(x)  # its own buffer, a third of the time of a transfer
    return x
  return jax.device_get(jax.tree.map(fetch, tree))


@functools.cache
def _whole(mesh: jax.sharding.Mesh) -> Callable:
  return jax.jit(lambda x: x,
                 out_shardings=NamedSharding(mesh, PartitionSpec()))


def bytes_of_shard(tree: Any) -> int:
  """Bytes that one device holds of a tree of shapes with shardings."""
  return sum(
      math.prod(x.sharding.shard_shape(x.shape)) * np.dtype(x.dtype).itemsize
      for x in jax.tree.leaves(tree))
