"""The paper's grid on real T5 checkpoints, shared by the study configs.

A folder `checkpoints` holds one sub-folder a model, in any layout that
`specdec_jax.load` reads (the newest `checkpoint_STEP` in it is taken), and
`sentencepiece.model` beside them.
"""

from typing import Any

# The ladder of each variant: the paper's small, base and large as drafts, and
# its 11B target. Only 1.0 and FLAN run the tasks as published; 1.1 needs
# fine-tuned checkpoints, as the paper's were.
LADDERS: dict[str, dict[str, str]] = {
    't5_1_0': dict(small='t5_small', base='t5_base', large='t5_large',
                   target='t5_11B'),
    't5_1_1': dict(small='t5_1_1_small', base='t5_1_1_base',
                   large='t5_1_1_large', target='t5_1_1_xxl'),
    'flan': dict(small='flan_t5_small', base='flan_t5_base',
                 large='flan_t5_large', target='flan_t5_xxl'),
}

# γ of Tables 2 and 4, by task, draft and temperature.
GAMMAS: dict[str, dict[tuple[str, float], int]] = {
    'ende': {('small', 0.0): 7, ('base', 0.0): 7, ('large', 0.0): 7,
             ('small', 1.0): 7, ('base', 1.0): 5, ('large', 1.0): 3},
    'cnndm': {('small', 0.0): 5, ('base', 0.0): 5, ('large', 0.0): 3,
              ('small', 1.0): 5, ('base', 1.0): 3, ('large', 1.0): 3},
}


def paper_grid(variant: str, checkpoints: str, task: str) -> dict[str, Any]:
  """The target, drafts, temperatures and γ of the paper's Tables 2 and 4.

  Args:
    variant: one of `LADDERS`.
    checkpoints: folder or URL with one sub-folder a model.
    task: 'ende' or 'cnndm'.

  Returns:
    `target`, `drafts`, `temperatures` and `gammas` (all that occur), and
    `cells`: the paper's own (draft, temperature, gamma), six of them.
  """
  if variant not in LADDERS:
    raise ValueError(
        f'variant {variant!r}: allowed are {", ".join(LADDERS)}')
  if task not in GAMMAS:
    raise ValueError(f'task {task!r}: allowed are {", ".join(GAMMAS)}')
  if not checkpoints:
    raise ValueError(
        f'{variant}: needs checkpoints=DIR, a folder with '
        f'{", ".join(LADDERS[variant].values())}')
  paths = {role: f'{checkpoints.rstrip("/")}/{name}'
           for role, name in LADDERS[variant].items()}
  target = paths.pop('target')
  cells = tuple((paths[draft], temperature, gamma)
                for (draft, temperature), gamma in GAMMAS[task].items())
  return dict(
      target=target, drafts=tuple(paths.values()), temperatures=(0.0, 1.0),
      gammas=tuple(sorted({gamma for *_, gamma in cells})), cells=cells)
