"""Compiles a job's programs for a TPU that need not be there.

    python -m specdec_jax.compile --topology=v4:2x2x1 --chips=1 \\
        --config=configs/ende.py:t5_1_1,checkpoints=shapes \\
        --config.source_buckets="(64,)" --config.gammas="(7,)"

Shapes are enough: no weight is read, and a model of the config may be a folder
or only end in a name of `architecture.SIZES`. The extra `tpu` brings the
compiler. Printed, and written with `--json`: memory of one chip, work of one
round, and what the chips exchange, in and outside the loop.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import json
import math
import os
import pathlib
import re
import sys
import time
from typing import Any

from absl import app
from absl import flags
import jax
from jax import numpy as jnp
from jax.experimental import topologies
from ml_collections import config_flags

from specdec_jax import architecture
from specdec_jax import checkpoint
from specdec_jax import config as config_lib
from specdec_jax import decode
from specdec_jax import draft as draft_lib
from specdec_jax import rounds as rounds_lib
from specdec_jax import sampling as sampling_lib
from specdec_jax import sharding
from specdec_jax import t5

# GiB of a chip, and how its two cores become one device where they do.
CHIPS: dict[str, tuple[int, dict[str, Any]]] = {
    'v4': (32, {'chip_config_name': 'megacore'}),
    'v5e': (16, {}),
    'v5p': (95, {}),
    'v6e': (32, {}),
}
GIB = 2**30

# Nothing here opens a TPU, so nothing has to be asked or locked.
_QUIET = {
    'TPU_SKIP_MDS_QUERY': '1', 'TPU_WORKER_HOSTNAMES': 'localhost',
    'TPU_ACCELERATOR_TYPE': 'v4-8', 'ALLOW_MULTIPLE_LIBTPU_LOAD': '1'}


class CompileError(ValueError):
  """A topology that is unknown, or a program that does not fit."""


@dataclasses.dataclass(frozen=True)
class Side:
  """One model as shapes: its functions and where its weights would lie."""
  config: architecture.T5Config
  model: t5.Model
  layout: sharding.Layout
  params: Any  # ShapeDtypeStructs with shardings


def architecture_of(name: str) -> architecture.T5Config:
  """Of a model folder, or of a name in the size table.

  Example: 'anywhere/t5_1_1_xxl' is the table's; FLAN's models have the shapes
  of 1.1, so 'flan_t5_small' is that of 't5_1_1_small'.
  """
  last = name.rstrip('/').rpartition('/')[2].replace('flan_t5_', 't5_1_1_')
  if last in architecture.SIZES and not pathlib.Path(name).exists():
    return architecture.SIZES[last]
  try:
    return checkpoint.settle(checkpoint.open_checkpoint(name))
  except checkpoint.CheckpointError as error:
    raise CompileError(
        f'model {name}: allowed are a model folder or a name that ends in one '
        f'of {", ".join(architecture.SIZES)} ({error})') from error


def devices_of(topology: str) -> Sequence[Any]:
  """The chips of `v4:2x2x1` and the like."""
  kind = topology.partition(':')[0]
  if kind not in CHIPS:
    raise CompileError(
        f'topology={topology}: allowed are {", ".join(CHIPS)}, then the number '
        'of chips on each axis, as in v4:2x2x1 or v5e:2x2')
  try:
    return topologies.get_topology_desc(
        platform='tpu', topology_name=topology, **CHIPS[kind][1]).devices
  except (jax.errors.JaxRuntimeError, RuntimeError, ValueError) as error:
    raise CompileError(
        f'topology={topology}: not available: {error}. The compiler comes with '
        "pip install 'specdec_jax[tpu]'") from error


def make_side(
    name: str, settings: config_lib.RunConfig, mesh: jax.sharding.Mesh,
    split: bool
) -> Side:
  config, layout = architecture_of(name), sharding.Layout(mesh, split)
  layout.check(config, name)
  dtype = jnp.dtype(settings.dtype)
  params = {
      key: jax.ShapeDtypeStruct(x.shape, dtype, sharding=layout(key))
      for key, x in checkpoint.flatten(t5.param_shapes(config)).items()}
  model = sharding.placed(t5.bind(config, dtype=dtype), layout)
  return Side(config, model, layout, checkpoint.unflatten(params))


def _cache(side: Side, source: Any, slots: int) -> Any:
  shapes = jax.eval_shape(
      lambda params, ids: side.model.start(params, ids, slots),
      side.params, source)
  return jax.tree.map(lambda x: jax.ShapeDtypeStruct(
      x.shape, x.dtype, sharding=side.layout.state(x)), shapes)


def lower(
    target: Side, draft: Side, settings: config_lib.RunConfig, gamma: int
) -> tuple[dict[str, jax.stages.Lowered], tuple[Any, Any]]:
  """The programs that decoding runs (see `generate.Programs`), and its caches.
  """
  b, rows = settings.batch_size, target.layout.rows
  whole = jax.sharding.NamedSharding(
      target.layout.mesh, jax.sharding.PartitionSpec())
  source = jax.ShapeDtypeStruct(
      (b, max(settings.source_buckets)), jnp.int32, sharding=rows)
  spec = rounds_lib.Spec(
      target.model.extend,
      draft_lib.model_drafter(draft.model.start, draft.model.extend),
      gamma, settings.max_new_tokens, settings.max_new_tokens + gamma + 1)
  slots = spec.sizes[0]
  caches = _cache(target, source, slots), _cache(draft, source, slots)
  sampling = jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole),
      sampling_lib.make(
          settings.temperatures[0], settings.top_k, settings.top_p))
  keys = jax.eval_shape(
      decode.sentence_keys, jnp.asarray(0), jnp.arange(b, dtype=jnp.int32))
  per_row = [jax.ShapeDtypeStruct(shape, dtype, sharding=rows)
             for shape, dtype in ((keys.shape, keys.dtype), ((b,), jnp.int32))]

  def start(side):
    return jax.jit(lambda params, ids: side.model.start(params, ids, slots)
                   ).lower(side.params, source)
  programs = {
      'start target': start(target), 'start draft': start(draft),
      'generate': jax.jit(
          functools.partial(decode.generate, spec), donate_argnums=(2, 3)
          ).lower(target.params, draft.params, *caches, sampling, *per_row)}
  return programs, caches


def flops_per_round(
    target: Side, draft: Side, caches: tuple[Any, Any], gamma: int
) -> float:
  """Of all chips together: gamma draft calls and one target call.

  Counted in the calls themselves, because XLA counts the body of a loop once.
  """
  def bare(tree):  # without shardings, to be counted for this machine
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)

  def of(side, cache, width):
    dtype = jax.tree.leaves(side.params)[0].dtype
    tokens = jax.ShapeDtypeStruct((cache.length.shape[0], width), jnp.int32)
    cost = jax.jit(t5.bind(side.config, dtype=dtype).extend).lower(
        bare(side.params), tokens, bare(cache)).cost_analysis()
    return float(cost['flops']) if cost else math.nan
  return (of(target, caches[0], gamma + 1) + of(draft, caches[1], 2)
          + (gamma - 1) * of(draft, caches[1], 1))


_COLLECTIVES = ('all-gather', 'all-reduce', 'all-to-all', 'collective-permute',
                'reduce-scatter')
_INSTRUCTION = re.compile(
    r'\s*(?:ROOT )?%?\S+ = (.+?) (' + '|'.join(_COLLECTIVES)
    + r')(-start)?\(')
_ARRAY = re.compile(r'\b(pred|[a-z]+\d+)\[([\d,]*)\]')
_HEADER = re.compile(r'(?:ENTRY )?%?([\w.\-]+) \(.*\{$')
_CALLED = re.compile(r'(?:calls|to_apply|body|condition)=%?([\w.\-]+)')
_BODY = re.compile(r'\bwhile\(.*body=%?([\w.\-]+)')


@dataclasses.dataclass(frozen=True)
class Collective:
  """One instruction that exchanges data between chips."""
  kind: str
  elements: int  # of its largest result, on one chip
  bytes: int
  in_loop: bool


def collectives(hlo: str) -> list[Collective]:
  """Every exchange in a compiled program's text, and whether a loop runs it.

  Example: `%x = bf16[8,128]{1,0} all-gather(%y), ...` is an all-gather of 1,024
  elements and 2,048 bytes.
  """
  bodies, name = {}, ''
  for line in hlo.splitlines():
    if match := _HEADER.match(line):
      name = match[1]
    bodies.setdefault(name, []).append(line)
  todo = [m[1] for line in hlo.splitlines() if (m := _BODY.search(line))]
  looped: set[str] = set()
  while todo:
    if (at := todo.pop()) not in looped:
      looped.add(at)
      todo += [m for line in bodies.get(at, ()) for m in _CALLED.findall(line)]
  found = []
  for name, lines in bodies.items():
    for line in lines:
      if match := _INSTRUCTION.match(line):
        found.append(_collective(match[2], match[1], name in looped))
  return found


def _collective(kind: str, result: str, in_loop: bool) -> Collective:
  sizes = [(math.prod(map(int, filter(None, dims.split(',')))),
            max(1, int(re.sub(r'\D', '', dtype) or 8) // 8))
           for dtype, dims in _ARRAY.findall(result)]
  elements, width = max(sizes, default=(0, 0))
  return Collective(kind, elements, elements * width, in_loop)


def gathered_weights(
    found: Sequence[Collective], sides: Sequence[Side]
) -> list[int]:
  """Elements of all-gathers in the loop that are as large as a split matrix."""
  least = min((math.prod(x.shape) for side in sides if side.layout.split
               for x in jax.tree.leaves(side.params) if min(x.shape) > 128),
              default=None)
  return [c.elements for c in found if c.in_loop and c.kind == 'all-gather'
          and least is not None and c.elements >= least]


def _by_kind(found: Sequence[Collective]) -> dict[str, dict[str, int]]:
  out: dict[str, dict[str, int]] = {}
  for c in found:
    entry = out.setdefault(c.kind, dict.fromkeys(
        ('count', 'bytes', 'count_in_loop', 'bytes_in_loop'), 0))
    entry['count'] += 1
    entry['bytes'] += c.bytes
    entry['count_in_loop'] += c.in_loop
    entry['bytes_in_loop'] += c.bytes * c.in_loop
  return out


def measure(
    settings: config_lib.RunConfig, topology: str, chips: int | None
) -> dict[str, Any]:
  """Compiles the config's first draft with its largest gamma.

  Args:
    settings: names, shapes, dtype, precision and mesh.
    topology: of the TPU, as in `v4:2x2x1`.
    chips: how many of them hold one model; default: what `mesh` says, or one.

  Raises:
    CompileError: naming what is not available or does not fit.
  """
  devices = devices_of(topology)
  sizes = dict(settings.mesh_sizes)
  if chips is not None:
    sizes['model'] = chips // sizes.get('data', 1)
  mesh = sharding.make_mesh(sizes, devices)
  gamma, draft_name = max(settings.fixed_gammas), settings.drafts[0]
  target = make_side(settings.target, settings, mesh, True)
  draft = make_side(
      draft_name, settings, mesh, settings.draft_layout == 'split')
  weights = [sharding.bytes_of_shard(s.params) for s in (target, draft)]
  limit = CHIPS[topology.partition(':')[0]][0] * GIB
  if sum(weights) > limit:
    raise CompileError(
        f'weights of {sum(weights) / GIB:.1f} GiB a chip on {topology} with '
        f'{mesh.size} chips, allowed are {limit / GIB:.0f} GiB: take more '
        '--chips')
  with jax.default_matmul_precision(settings.matmul_precision):
    programs, caches = lower(target, draft, settings, gamma)
    flops = flops_per_round(target, draft, caches, gamma)
    began = time.perf_counter()
    compiled = {name: _compile(name, p) for name, p in programs.items()}
  seconds = time.perf_counter() - began
  hbm = {'weights_target': weights[0], 'weights_draft': weights[1],
         'caches': sharding.bytes_of_shard(caches),
         'temporaries': max(_temporaries(c) for c in compiled.values())}
  found = [c for p in compiled.values()
           for c in collectives(p.as_text() or '')]
  return {
      'target': settings.target, 'draft': draft_name, 'gamma': gamma,
      'batch_size': settings.batch_size,
      'source_length': max(settings.source_buckets),
      'max_new_tokens': settings.max_new_tokens, 'dtype': settings.dtype,
      'matmul_precision': settings.matmul_precision,
      'topology': topology, 'chips': mesh.size, 'mesh': dict(mesh.shape),
      'draft_layout': settings.draft_layout,
      'hbm_bytes_per_chip': sum(hbm.values()), 'hbm_limit_bytes': limit,
      'hbm_parts': hbm, 'flops_per_round': flops,
      'collectives': _by_kind(found),
      'weights_gathered_in_loop': gathered_weights(found, (target, draft)),
      'compile_s': seconds, 'jax': jax.__version__,
  }


def _compile(name: str, lowered: jax.stages.Lowered) -> jax.stages.Compiled:
  try:
    return lowered.compile()
  except jax.errors.JaxRuntimeError as error:
    if 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    raise CompileError(
        f'program {name} does not fit: {str(error).splitlines()[0]}. Take more '
        '--chips, a shorter source or a smaller batch') from error


def _temporaries(compiled: jax.stages.Compiled) -> int:
  """Bytes of a program beside weights and caches, its code included."""
  stats = compiled.memory_analysis()
  if stats is None:
    raise CompileError('the compiler gives no memory analysis')
  return stats.temp_size_in_bytes + stats.generated_code_size_in_bytes


def table(result: Mapping[str, Any]) -> str:
  """What people read."""
  gib = lambda x: f'{x / GIB:.2f} GiB'
  rows = [
      ('target, draft, γ',
       f'{result["target"]}, {result["draft"]}, {result["gamma"]}'),
      ('batch, source, output', f'{result["batch_size"]}, '
       f'{result["source_length"]}, {result["max_new_tokens"]}'),
      ('dtype, precision',
       f'{result["dtype"]}, {result["matmul_precision"]}'),
      ('topology, mesh', f'{result["topology"]}, {result["mesh"]}'),
      *((name.replace('_', ' '), gib(size))
        for name, size in result['hbm_parts'].items()),
      ('HBM of a chip', f'{gib(result["hbm_bytes_per_chip"])} of '
       f'{gib(result["hbm_limit_bytes"])}'),
      ('FLOPs a round', f'{result["flops_per_round"]:.3g}'),
      *((kind, f'{c["count"]} ({c["bytes"]:,} bytes), in the loop '
         f'{c["count_in_loop"]} ({c["bytes_in_loop"]:,} bytes)')
        for kind, c in result['collectives'].items()),
      ('weights gathered in the loop',
       str(len(result['weights_gathered_in_loop']))),
      ('compilation', f'{result["compile_s"]:.0f} s')]
  return '\n'.join(f'{name:<28} {text}' for name, text in rows)


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments {argv[1:]}')
  options = flags.FLAGS
  for name, value in _QUIET.items():
    os.environ.setdefault(name, value)
  jax.config.update('jax_platforms', 'cpu')  # of what stays on this machine
  try:
    settings = config_lib.resolve(options.config, config_lib.RunConfig)
    result = measure(settings, options.topology, options.chips)
  except ValueError as error:
    sys.exit(f'error: {error}')
  print(table(result))
  if options.json:
    pathlib.Path(options.json).write_text(json.dumps(result, indent=2) + '\n')
  if result['hbm_bytes_per_chip'] > result['hbm_limit_bytes']:
    sys.exit('error: it does not fit: take more --chips')


if __name__ == '__main__':
  config_flags.DEFINE_config_file('config', None, 'FILE.py:VARIANT of a job.')
  flags.DEFINE_string('topology', None, 'Of the TPU, as in v4:2x2x1, v5e:2x2.')
  flags.DEFINE_integer(
      'chips', None, 'How many hold a model; default: the mesh, or one.',
      lower_bound=1)
  flags.DEFINE_string('json', None, 'File for the result.')
  flags.mark_flags_as_required(['config', 'topology'])
  app.run(main)
