"""Figures as SVG text: two of our own, in the page's style, and the paper's."""

from collections.abc import Sequence
import html
import math
from typing import Any

from specdec_jax import figures as figures_lib
from specdec_jax.report import tables

Row = dict[str, Any]
Point = tuple[float, float]

_WIDTH, _HEIGHT = 360, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 14, 42
# A draft has a colour and a shape: neither is the only sign.
_SHAPES = (
    '<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>',
    '<path d="M{x:.1f} {y:.1f}m-5 4l5-9 5 9z"/>',
    '<path d="M{x:.1f} {y:.1f}m-4-4h8v8h-8z"/>',
    '<path d="M{x:.1f} {y:.1f}m0-6l6 6-6 6-6-6z"/>',
    '<path d="M{x:.1f} {y:.1f}m-5-4l5 9 5-9z"/>')


def shape(number: int, x: float, y: float) -> str:
  """The marker of series `number`."""
  drawn = _SHAPES[number % len(_SHAPES)].format(x=x, y=y)
  return f'<g class="mark s{number % 6}">{drawn}</g>'


def ticks(low: float, high: float) -> list[float]:
  """Round values between `low` and `high`, at most about six.

  Example: ticks(0, 1.3) is 0, 0.5, 1.0; ticks(0, 0.9) is 0, 0.2, .. 0.8.
  """
  step = 10 ** math.floor(math.log10((high - low) or 1))
  for part in (0.1, 0.2, 0.5, 1, 2):
    if (high - low) / (step * part) <= 6:
      step *= part
      break
  first = math.ceil(low / step - 1e-9)
  count = math.floor(high / step + 1e-9) - first + 1
  return [(first + i) * step for i in range(count)]


class Axes:
  """Maps data to places and draws the frame."""

  def __init__(self, x_range: Point, y_range: Point):
    self.x_range, self.y_range = x_range, y_range

  def x(self, value: float) -> float:
    low, high = self.x_range
    return _LEFT + (value - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)

  def y(self, value: float) -> float:
    low, high = self.y_range
    return _HEIGHT - _BOTTOM - (value - low) / (high - low) * (
        _HEIGHT - _TOP - _BOTTOM)

  def line(self, points: Sequence[Point], kind: str) -> str:
    path = ' '.join(f'{self.x(x):.1f},{self.y(y):.1f}' for x, y in points)
    return f'<polyline class="{kind}" points="{path}"/>'

  def frame(
      self, x_ticks: Sequence[float], x_label: str, y_label: str
  ) -> list[str]:
    low, high = self.y_range
    found = []
    for value in ticks(low, high):
      y = self.y(value)
      found += [
          f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" '
          f'y1="{y:.1f}" y2="{y:.1f}"/>',
          f'<text class="tick" x="{_LEFT - 6}" y="{y + 4:.1f}" '
          f'text-anchor="end">{value:.3g}</text>']
    for value in x_ticks:
      found.append(
          f'<text class="tick" x="{self.x(value):.1f}" '
          f'y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{value:.3g}'
          '</text>')
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    return found + [
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 8}" '
        f'text-anchor="middle">{html.escape(x_label)}</text>',
        f'<text transform="translate(12 {middle}) rotate(-90)" '
        f'text-anchor="middle">{html.escape(y_label)}</text>']


def _svg(title: str, parts: Sequence[str]) -> str:
  return (f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
          f'aria-label="{html.escape(title)}">' + ''.join(parts) + '</svg>')


def drafts(rows: Sequence[Row]) -> dict[str, int]:
  """A series number for each draft."""
  names = dict.fromkeys(tables.draft(row) for row in rows)
  return {name: number for number, name in enumerate(names)}


def legend(series: dict[str, int]) -> str:
  return '<ul class="legend">' + ''.join(
      f'<li><svg viewBox="0 0 16 16" aria-hidden="true">{shape(i, 8, 8)}</svg>'
      f'{html.escape(name)}</li>' for name, i in series.items()) + '</ul>'


def factor_by_gamma(rows: Sequence[Row], series: dict[str, int]) -> str | None:
  """Measured factor against gamma (solid), predicted with v (dashed)."""
  rows = [row for row in rows if row['speedup'] is not None]
  if not rows:
    return None
  gammas = sorted({row['gamma'] for row in rows})
  values = [row[key] for row in rows
            for key in ('speedup', 'predicted_with_verify')
            if row[key] is not None]
  axes = Axes((min(gammas) - 0.5, max(gammas) + 0.5),
              (min(0.9, *values) * 0.95, max(1.1, *values) * 1.05))
  parts = axes.frame(gammas, 'γ, drafts a round', 'factor against plain')
  parts.append(axes.line([(axes.x_range[0], 1), (axes.x_range[1], 1)], 'even'))
  for name, number in series.items():
    own = sorted((row for row in rows if tables.draft(row) == name),
                 key=lambda row: row['gamma'])
    predicted = [(row['gamma'], row['predicted_with_verify']) for row in own
                 if row['predicted_with_verify'] is not None]
    parts.append(axes.line(predicted, f'curve dashed s{number % 6}'))
    measured = [(row['gamma'], row['speedup']) for row in own]
    parts.append(axes.line(measured, f'curve s{number % 6}'))
    parts += [shape(number, axes.x(x), axes.y(y)) for x, y in measured]
  return _svg('Measured and predicted factor against γ', parts)


def predicted_and_measured(
    rows: Sequence[Row], series: dict[str, int]
) -> str | None:
  """A point a setting; on the diagonal the prediction with v holds."""
  rows = [row for row in rows if row['speedup'] is not None
          and row['predicted_with_verify'] is not None]
  if not rows:
    return None
  values = [row[key] for row in rows
            for key in ('speedup', 'predicted_with_verify')]
  ends = (min(0.9, *values) * 0.95, max(1.1, *values) * 1.05)
  axes = Axes(ends, ends)
  parts = axes.frame(ticks(*ends), 'predicted, Theorem 3.8 with v', 'measured')
  parts.append(axes.line([(ends[0], ends[0]), (ends[1], ends[1])], 'even'))
  parts += [shape(series[tables.draft(row)],
                  axes.x(row['predicted_with_verify']), axes.y(row['speedup']))
            for row in rows]
  return _svg('Measured factor against predicted factor', parts)


def figures(rows: Sequence[Row]) -> list[tuple[str, str]]:
  """(caption, SVG) of each figure that has something to show."""
  rows = [row for row in rows if isinstance(row['gamma'], int)]
  found, many = [], len({row['run'] for row in rows}) > 1
  for (task, _, _, run, temperature), group in tables.by_place(rows).items():
    found.append((
        f'Factor against γ, temperature {temperature:g}, {task}'
        + (f' ({run})' if many else '')
        + ': measured (solid) and predicted with v (dashed)',
        factor_by_gamma(group, drafts(rows))))
  found.append(('Measured against predicted factor, every setting; the '
                'diagonal is agreement',
                predicted_and_measured(rows, drafts(rows))))
  return [(caption, svg) for caption, svg in found if svg]


def papers_figures(rows: Sequence[Row]) -> list[tuple[str, str]]:
  """The paper's curves with the measured points on them, light and dark."""
  rows = [row for row in rows if isinstance(row['gamma'], int)]
  drawn = (
      ('Figure 2 of the paper: tokens a round against α (Eq. 1); points are '
       'measured', figures_lib.svg_tokens_per_round),
      ('Figure 3: the best γ against α for several c; points are the best γ '
       'measured', figures_lib.svg_best_gamma),
      ('Figure 4: factor and operations against α; points are measured',
       figures_lib.svg_speed_operations))
  return [(caption, f'<div class="on-light">{draw(rows)}</div>'
                    f'<div class="on-dark">{draw(rows, dark=True)}</div>')
          for caption, draw in drawn]
