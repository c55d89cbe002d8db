"""Figures as SVG text, from plain rows; for light and dark pages.

Each `svg_*` function takes rows of `settings.jsonl` (a figure of the paper may
also be drawn from none: then it holds the curves alone). What a row lacks is
not drawn; lossy and synthetic rows have markers of their own.

Colours follow the order of drafts or gammas. Every id is made unique, so that
several figures can stand in one page.
"""

from collections.abc import Callable, Iterable, Sequence
import contextlib
import html
import io
import math
import re
from typing import Any

import cycler
import matplotlib
from matplotlib import figure as figure_lib
import numpy as np

from specdec_jax import theory

Row = dict[str, Any]

GAMMAS = (1, 3, 5, 7, 10)       # where no row says which
COSTS = (0.01, 0.05, 0.1, 0.2)  # c of figure 3
ALPHAS = np.linspace(0, 0.995, 200)

_LIGHT = ('#0b62a4', '#c4491d', '#2a7f3f', '#7a4aa0', '#8a6d00', '#b3245f',
          '#00798c', '#5c5c5c')
_DARK = ('#6db6ff', '#ff9b70', '#7ad191', '#c9a2f0', '#e6c84f', '#ff8db8',
         '#5fd3e3', '#b8b8b8')
_MARKERS = {'measured': 'o', 'lossy': '^', 'synthetic': 's'}


def label(name: str) -> str:
  """A draft's short name, in which nothing is markup.

  Example: 'runs/x/mini/small' is 'mini/small'.
  """
  return '/'.join(name.rstrip('/').split('/')[-2:]).replace('$', r'\$')


def kind(row: Row) -> str:
  """Whether a row is exact, lossy or of a synthetic acceptance."""
  if row.get('synthetic') is not None:
    return 'synthetic'
  return 'lossy' if row.get('lenience', 1.0) < 1 else 'measured'


def known(rows: Iterable[Row], *names: str) -> list[Row]:
  """Rows that have a finite number under every name."""
  def has(row, name):
    value = row.get(name)
    return isinstance(value, int | float) and math.isfinite(value)
  return [row for row in rows if all(has(row, name) for name in names)]


@contextlib.contextmanager
def _canvas(title: str, dark: bool, columns: int = 1, height: float = 3.6):
  """A figure's axes; the SVG text is in the list once the block ends."""
  ink = '#e8e8e8' if dark else '#222222'
  style: Any = {
      'svg.fonttype': 'none', 'svg.hashsalt': f'{title}{dark}',
      'font.family': 'sans-serif', 'font.size': 10, 'axes.grid': True,
      'grid.alpha': 0.25, 'text.color': ink, 'axes.labelcolor': ink,
      'axes.edgecolor': ink, 'xtick.color': ink, 'ytick.color': ink,
      'axes.facecolor': 'none', 'figure.facecolor': 'none',
      'legend.frameon': False, 'legend.fontsize': 8,
      'axes.spines.top': False, 'axes.spines.right': False,
      'axes.prop_cycle': cycler.cycler(
          color=list(_DARK if dark else _LIGHT)),
  }
  with matplotlib.rc_context(style):
    figure = figure_lib.Figure(
        figsize=(max(6.4, 4.4 * columns), height), layout='constrained')
    axes = [figure.add_subplot(1, columns, i + 1) for i in range(columns)]
    text: list[str] = []
    yield axes, text
    buffer = io.StringIO()
    figure.savefig(buffer, format='svg', metadata={'Date': None})
    text.append(_embeddable(buffer.getvalue(), title, dark))


def _embeddable(svg: str, title: str, dark: bool) -> str:
  """The <svg> element alone, with a title and with ids of its own."""
  salt = re.sub(r'\W+', '-', title.lower()) + ('-dark' if dark else '-light')
  svg = svg[svg.index('<svg'):].strip()
  svg = re.sub(r'(?s)<metadata>.*?</metadata>', '', svg)
  svg = re.sub(r'\bid="', f'id="{salt}-', svg)
  svg = re.sub(r'(href="#|url\(#)', rf'\g<1>{salt}-', svg)
  quoted = html.escape(title)
  return svg.replace('<svg', f'<svg role="img" aria-label="{quoted}"', 1)


def _colour(index: int) -> str:
  return f'C{index % len(_LIGHT)}'


def _points(
    axis, rows: Sequence[Row], x: str, y: Callable[[Row], float],
    order: Sequence[Any], key: Callable[[Row], Any], hollow: bool = False
) -> None:
  for row in rows:
    colour = _colour(order.index(key(row)))
    axis.plot(row[x], y(row), _MARKERS[kind(row)], color=colour, markersize=5,
              markerfacecolor='none' if hollow else colour)


def _legend(axis, rows: Sequence[Row], **options: Any) -> None:
  """Adds a line a marker to what is labelled already."""
  for name in dict.fromkeys(map(kind, rows)):
    axis.plot([], [], _MARKERS[name], color='0.5', markersize=5, label=name)
  if axis.get_legend_handles_labels()[0]:
    axis.legend(**options)


def _gammas(rows: Sequence[Row]) -> list[int]:
  return sorted({row['gamma'] for row in rows}) or list(GAMMAS)


def svg_tokens_per_round(rows: Sequence[Row], dark: bool = False) -> str:
  """Figure 2: tokens a round against alpha, Eq. 1 and measured."""
  rows = known(rows, 'alpha', 'tokens_per_round', 'gamma')
  gammas = _gammas(rows)
  with _canvas('Tokens a round against alpha', dark) as ([axis], text):
    for i, gamma in enumerate(gammas):
      axis.plot(ALPHAS, theory.tokens_per_round(ALPHAS, gamma),
                color=_colour(i), label=f'γ = {gamma}')
    axis.plot(ALPHAS, theory.oracle_tokens(ALPHAS), '--', color='0.5',
              label='1/(1−α)')
    _points(axis, rows, 'alpha', lambda r: r['tokens_per_round'], gammas,
            lambda r: r['gamma'])
    axis.set(xlabel='α', ylabel='tokens a round', xlim=(0, 1),
             ylim=(0.8, max(gammas) + 1.2))
    _legend(axis, rows, loc='upper left')
  return text[0]


def best_measured(rows: Sequence[Row]) -> list[Row]:
  """The row of the fastest gamma for each draft, temperature and kind."""
  best: dict[tuple, Row] = {}
  for row in known(rows, 'alpha', 'speedup', 'gamma'):
    key = tuple(row.get(name) for name in (
        'task', 'draft', 'temperature', 'batch_size', 'lenience', 'synthetic'))
    if key not in best or row['speedup'] > best[key]['speedup']:
      best[key] = row
  return list(best.values())


def svg_best_gamma(rows: Sequence[Row], dark: bool = False) -> str:
  """Figure 3: best gamma against alpha for several c.

  A point is the fastest gamma that was measured for a draft and temperature,
  0 where plain decoding was faster than all.
  """
  rows = best_measured(rows)
  drafts = list(dict.fromkeys(row['draft'] for row in rows))
  with _canvas('Best gamma against alpha', dark) as ([axis], text):
    for c, width in zip(COSTS, np.linspace(2.4, 0.8, len(COSTS)), strict=True):
      axis.plot(ALPHAS, theory.best_gamma(ALPHAS, c), color='0.55',
                drawstyle='steps-post', linewidth=width, label=f'c = {c:g}')
    _points(axis, rows, 'alpha',
            lambda r: r['gamma'] if r['speedup'] >= 1 else 0, drafts,
            lambda r: r['draft'])
    for draft in drafts:
      axis.plot([], [], 'o', color=_colour(drafts.index(draft)), markersize=5,
                label=_with_cost(rows, draft))
    axis.set(xlabel='α', ylabel='best γ', xlim=(0, 1), ylim=(-0.5, 16),
             yticks=range(0, 17, 2))
    _legend(axis, [r for r in rows if kind(r) != 'measured'], loc='upper left')
  return text[0]


def _with_cost(rows: Sequence[Row], draft: str) -> str:
  costs = [r['c'] for r in known(rows, 'c') if r['draft'] == draft]
  if not costs:
    return label(draft)
  return f'{label(draft)}, c = {sum(costs) / len(costs):.3f}'


def svg_speed_operations(rows: Sequence[Row], dark: bool = False) -> str:
  """Figure 4: speed and operations against alpha, curves at c = c_hat = 0.

  Measured operations are target positions a token, (gamma+1) over tokens a
  round: the draft's own are left out, as c_hat = 0 does.
  """
  rows = known(rows, 'alpha', 'gamma')
  gammas = _gammas(rows)
  with _canvas('Speed and operations against alpha', dark, 2) as (axes, text):
    for i, gamma in enumerate(gammas):
      axes[0].plot(ALPHAS, theory.walltime_factor(ALPHAS, gamma, 0),
                   color=_colour(i), label=f'γ = {gamma}')
      axes[1].plot(ALPHAS, theory.operations_factor(ALPHAS, gamma, 0),
                   color=_colour(i))
    fast, counted = known(rows, 'speedup'), known(rows, 'tokens_per_round')
    _points(axes[0], fast, 'alpha', lambda r: r['speedup'], gammas,
            lambda r: r['gamma'])
    _points(axes[1], [r for r in counted if r['tokens_per_round']], 'alpha',
            lambda r: (r['gamma'] + 1) / r['tokens_per_round'], gammas,
            lambda r: r['gamma'], hollow=True)
    axes[0].set(xlabel='α', ylabel='factor over plain', xlim=(0, 1))
    axes[1].set(xlabel='α', ylabel='operations over plain', xlim=(0, 1))
    _legend(axes[0], fast, loc='upper left')
  return text[0]


def svg_predicted(rows: Sequence[Row], dark: bool = False) -> str:
  """Predicted factor (Thm 3.8 with the measured v) against the measured."""
  rows = known(rows, 'predicted_with_verify', 'speedup')
  drafts = list(dict.fromkeys(row['draft'] for row in rows))
  with _canvas('Predicted against measured', dark) as ([axis], text):
    ends = [r[n] for r in rows for n in ('predicted_with_verify', 'speedup')]
    low, high = min(ends, default=0.5), max(ends, default=2)
    axis.plot([low, high], [low, high], '--', color='0.5', label='equal')
    _points(axis, rows, 'predicted_with_verify', lambda r: r['speedup'], drafts,
            lambda r: r['draft'])
    for i, draft in enumerate(drafts):
      axis.plot([], [], 'o', color=_colour(i), markersize=5,
                label=label(draft))
    axis.set(xlabel='predicted (Thm 3.8 with v)', ylabel='measured factor')
    _legend(axis, rows, loc='upper left')
  return text[0]


def svg_factors(rows: Sequence[Row], dark: bool = False) -> str:
  """Measured factor for each gamma and draft, a panel a temperature."""
  rows = known(rows, 'speedup', 'gamma', 'temperature')
  temperatures = list(dict.fromkeys(row['temperature'] for row in rows)) or [0]
  drafts = list(dict.fromkeys(row['draft'] for row in rows))
  with _canvas('Factor for each gamma', dark, len(temperatures)) as (
      axes, text):
    for axis, temperature in zip(axes, temperatures, strict=True):
      for i, draft in enumerate(drafts):
        line = sorted((r for r in rows if r['draft'] == draft
                       and r['temperature'] == temperature),
                      key=lambda r: r['gamma'])
        _spread_line(axis, line, 'gamma', _colour(i), label(draft))
      axis.axhline(1, linestyle='--', color='0.5')
      axis.set(xlabel='γ', ylabel='factor over plain',
               title=f'temperature {temperature:g}')
    _legend(axes[0], [r for r in rows if kind(r) != 'measured'])
  return text[0]


def svg_against(
    rows: Sequence[Row], x: str, xlabel: str, dark: bool = False
) -> str:
  """Measured factor against any number of the rows, a line a draft and γ."""
  rows = known(rows, x, 'speedup', 'gamma')
  lines = list(dict.fromkeys((r['draft'], r['gamma']) for r in rows))
  with _canvas(f'Factor against {xlabel}', dark) as ([axis], text):
    for i, (draft, gamma) in enumerate(lines):
      line = sorted((r for r in rows if (r['draft'], r['gamma'])
                     == (draft, gamma)), key=lambda r: r[x])
      _spread_line(axis, line, x, _colour(i), f'{label(draft)}, γ = {gamma}')
    axis.axhline(1, linestyle='--', color='0.5')
    axis.set(xlabel=xlabel, ylabel='factor over plain')
    _legend(axis, [r for r in rows if kind(r) != 'measured'])
  return text[0]


def _spread_line(axis, rows: Sequence[Row], x: str, colour: str, name: str):
  """Factors joined by a line, with bars of the smallest and largest repeat."""
  axis.plot([r[x] for r in rows], [r['speedup'] for r in rows], '-',
            color=colour, label=name)
  for row in rows:
    axis.plot(row[x], row['speedup'], _MARKERS[kind(row)], color=colour,
              markersize=5)
    if known([row], 'speedup_low', 'speedup_high'):
      axis.plot([row[x]] * 2, [row['speedup_low'], row['speedup_high']],
                color=colour, linewidth=1)


Call = tuple[str, float]  # `encoder`, `draft` or `target`, and its seconds


def svg_timeline(
    lanes: Sequence[tuple[str, Sequence[Call]]], dark: bool = False
) -> str:
  """Figure 5: the calls of decoding one sentence, a lane a setting.

  Args:
    lanes: name and calls in their order, one after the other.
  """
  kinds = ('encoder', 'draft', 'target')
  with _canvas('Timeline of calls', dark, height=2.6) as ([axis], text):
    for place, (_, calls) in enumerate(lanes):
      starts = np.cumsum([0.0, *(seconds for _, seconds in calls)])
      for i, wanted in enumerate(kinds):
        spans = [(1000 * starts[j], 1000 * seconds) for j, (what, seconds)
                 in enumerate(calls) if what == wanted]
        axis.broken_barh(spans, (-place - 0.35, 0.7), facecolors=_colour(i),
                         edgecolors='none' if wanted == 'draft' else '0.5',
                         linewidth=0.3)
    for i, wanted in enumerate(kinds):
      axis.plot([], [], 's', color=_colour(i), label=wanted)
    axis.set_yticks([-i for i in range(len(lanes))],
                    [name.replace('$', r'\$') for name, _ in lanes])
    axis.set(xlabel='milliseconds')
    axis.grid(axis='y', visible=False)
    axis.legend(loc='lower center', bbox_to_anchor=(0.5, 1), ncols=3)
  return text[0]
