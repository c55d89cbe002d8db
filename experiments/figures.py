"""Figures 1 to 5: theory with the measured points drawn on it.

    python -m experiments.figures --workdir=runs/paper

Runs or goes on with `runs/paper/grid`; a workdir of `specdec_jax.main` is read
as it is. Expected result: `figures/*.svg`, light and dark: tokens a round, best
γ, speed and operations against α, predicted against measured, a timeline of
calls; and a sentence's rounds as text. Time: four minutes, or seconds
where the grid is there.
"""

from collections.abc import Sequence

from experiments import common
from specdec_jax import figures
from specdec_jax import records

TIMELINE_GAMMAS = (7, 3, 0)


def calls(row: common.Row, cost: common.Row) -> list[figures.Call]:
  """Calls of one decoded sentence, with the measured time of each.

  Example: two rounds of 2 and 1 drafts are encoder, draft, draft, target,
  draft, target.
  """
  target = cost['target_step_seconds']
  if row['gamma']:
    target *= cost['verify_ratio'][str(row['gamma'])]
  found = [('encoder', row['encoder_seconds'])]
  for drafted in row['drafted']:
    found += [('draft', cost['draft_step_seconds'])] * drafted
    found.append(('target', target))
  return found


def lanes(study: common.Study) -> list[tuple[str, list[figures.Call], float]]:
  """Name, calls and measured seconds of the first sentence at each γ.

  Of the first draft and temperature; a γ that was not run, or whose times are
  not known, is left out.
  """
  found = []
  costs = figures.known(
      study.costs, 'draft_step_seconds', 'target_step_seconds')
  timed = figures.known(
      study.examples, 'encoder_seconds', 'decoder_seconds')
  for cost in costs[:1]:
    for gamma in TIMELINE_GAMMAS:
      row = next((r for r in timed if r['gamma'] == gamma and all(
          r[key] == cost[key] for key in ('draft', 'temperature'))), None)
      if row is None or (gamma and str(gamma) not in cost['verify_ratio']):
        continue
      found.append((f'γ = {gamma}' if gamma else 'plain', calls(row, cost),
                    row['encoder_seconds'] + row['decoder_seconds']))
  return found


def timeline_rows(
    found: Sequence[tuple[str, Sequence[figures.Call], float]]
) -> list[common.Row]:
  """Milliseconds of each kind of call, their sum, and what was measured."""
  rows = []
  for name, sequence, measured in found:
    row: common.Row = {'lane': name}
    for kind in ('encoder', 'draft', 'target'):
      row[kind] = 1000 * sum(s for what, s in sequence if what == kind)
    row['sum'] = row['encoder'] + row['draft'] + row['target']
    rows.append({**row, 'measured': 1000 * measured})
  return rows


TIMELINE = {
    'decoding': common.text('lane'), 'encoder, ms': common.column('encoder', 1),
    'draft calls': common.column('draft', 1),
    'target calls': common.column('target', 1),
    'sum': common.column('sum', 1), 'measured': common.column('measured', 1),
}


def trace_lines(rounds: Sequence[common.Row]) -> str:
  """Figure 1 as Markdown, a line a round.

  Accepted drafts stand as they are, the rejected one is struck out, the
  target's own token is bold; drafts behind a rejected one are left out.

  Example: drafts a b c, of which one was kept, and then d: a ~~b~~ **d**.
  """
  def code(piece):
    return f"`{piece.replace('`', chr(39))}`"
  lines = []
  for played in rounds:
    kept = played['pieces'][:played['accepted']]
    rest = played['pieces'][played['accepted']:]
    words = [*map(code, kept), *(f'~~{code(piece)}~~' for piece in rest[:1]),
             f'**{code(played["next_piece"])}**']
    lines.append(f'1. {" ".join(words)}')
  return '\n'.join(lines) + '\n'


def figure_1(study: common.Study) -> str:
  """Rounds of the first sentence that the run has traced."""
  traces = records.read(study.folder / 'traces.jsonl')
  if not traces:
    return f'{common.MISSING}: the run has no traces.jsonl.\n'
  first = traces[0]
  return (f'{common.draft(first)}, γ = {first["gamma"]}, temperature '
          f'{first["temperature"]:g}: {common.cell(first["source"])}\n\n'
          + trace_lines(first['rounds']))


DRAWN = {
    'figure2_tokens_per_round': figures.svg_tokens_per_round,
    'figure3_best_gamma': figures.svg_best_gamma,
    'figure4_speed_operations': figures.svg_speed_operations,
    'predicted_measured': figures.svg_predicted,
    'factors': figures.svg_factors,
}


def make(lab: common.Lab) -> None:
  grid = common.grid(lab)
  found = lanes(grid)
  pictures = [
      common.save_svg(lab, name, lambda dark, draw=draw: draw(
          grid.settings, dark)) for name, draw in DRAWN.items()]
  pictures.append(common.save_svg(
      lab, 'figure5_timeline', lambda dark: figures.svg_timeline(
          [lane[:2] for lane in found], dark)))
  common.publish(lab, 'figures', 'Figures of the paper, with measured points', [
      common.conditions(grid),
      '## Figure 1: rounds of one sentence\n', figure_1(grid),
      '## Figures 2 to 5\n', *pictures,
      '## Figure 5 in numbers\n',
      common.Table('timeline', TIMELINE, timeline_rows(found)),
      'One sentence. The length of a call is its measured median, the number '
      'of calls that of the record; "measured" is the sentence\'s own time.\n'])


if __name__ == '__main__':
  common.main(make)
