"""The report as one HTML file that needs nothing else and no network.

All text from data goes through `html.escape`, or through `script_json` into a
block that the script reads with `JSON.parse`; the page's security policy allows
its own script alone.
"""

import base64
from collections.abc import Sequence
import hashlib
from html import escape
import json
import pathlib
import string
from typing import Any

from specdec_jax.report import gather
from specdec_jax.report import plots
from specdec_jax.report import tables
from specdec_jax.report import words

_HERE = pathlib.Path(__file__).parent

SECTIONS = {'comparison': 'Against the paper', 'figures': 'Figures',
            'settings': 'All settings', 'traces': 'Round by round',
            'details': 'Details'}


def script_json(value: Any) -> str:
  """JSON that cannot leave its script element.

  Example: `{"a": "</script>"}` becomes `{"a": "\\u003c/script\\u003e"}`.
  """
  text = json.dumps(value, allow_nan=False)  # U+2028 and the like become \\u
  for sign in '<>&':
    text = text.replace(sign, f'\\u{ord(sign):04x}')
  return text


def items(texts: Sequence[str], kind: str = '') -> str:
  rows = ''.join(f'<li>{escape(text)}</li>' for text in texts)
  return f'<ul class="{kind}">{rows}</ul>'


def _cell(cell: tables.Cell, numeric: bool, below: bool) -> str:
  flags = {'number': numeric, 'missing': cell.missing, 'below': below}
  kinds = [kind for kind, holds in flags.items() if holds]
  value = ('' if cell.value is None or cell.missing
           else f' data-v="{escape(str(cell.value))}"')
  return f'<td class="{" ".join(kinds)}"{value}>{escape(cell.text)}</td>'


def _line(shown: tables.Table, line: tables.Line) -> str:
  cells = []
  for name, numeric, cell in zip(
      shown.header, shown.numeric, line.cells, strict=True):
    slow = (name == 'measured' and isinstance(cell.value, float)
            and cell.value < 1)
    cells.append(_cell(cell, numeric, slow))
  return f'<tr class="{line.kind}">{"".join(cells)}</tr>'


def table(shown: tables.Table, identity: str = '') -> str:
  """A table in its own scrolling box; one with an identity can be sorted."""
  heads = []
  for name, numeric in zip(shown.header, shown.numeric, strict=True):
    kind = 'number' if numeric else ''
    inner, sort = escape(name), ''
    if identity:
      inner = f'<button type="button">{inner}</button>'
      sort = ' aria-sort="none"'
    heads.append(f'<th scope="col" class="{kind}"{sort}>{inner}</th>')
  named = f' id="{identity}"' if identity else ''
  body = ''.join(_line(shown, line) for line in shown.lines)
  return (
      f'<div class="scroll" role="region" tabindex="0" '
      f'aria-label="{escape(shown.title)}"><table{named}><thead><tr>'
      f'{"".join(heads)}</tr></thead><tbody>{body}</tbody></table></div>')


def _comparison(rows: Sequence[dict]) -> str:
  return table(tables.comparison(rows)) + (
      '<p class="soft">Exp: Theorem 3.8 from α and c; with v: the same with '
      'the measured cost of verifying. Italic rows are as printed in the paper '
      'for the draft of the same role: other models, another machine, another '
      'baseline. A factor below 1 is a loss and is set in red.</p>')


def _figures(rows: Sequence[dict]) -> str:
  own = plots.figures(rows)
  if not own:
    return '<p>Nothing was timed, so there is nothing to draw.</p>'
  return (plots.legend(plots.drafts(rows)) + _grid('figures', own)
          + _grid('figures wide', plots.papers_figures(rows)))


def _grid(name: str, figures: Sequence[tuple[str, str]]) -> str:
  drawn = ''.join(
      f'<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>'
      for caption, svg in figures)
  return f'<div class="{name}">{drawn}</div>'


def _settings(rows: Sequence[dict]) -> str:
  return (
      '<div class="controls"><label for="settings-filter">Filter, for example '
      'small γ=3 t=0<input id="settings-filter" type="search" '
      'autocomplete="off"></label><p class="soft" id="settings-count" '
      'aria-live="polite"></p></div>'
      + table(tables.settings('All settings', rows), 'settings-table')
      + items(words.LEGEND, 'soft'))


_TRACES = '''
<noscript><p>Stepping through rounds needs JavaScript.</p></noscript>
<p class="soft">Each round the draft proposes, the target judges: a proposal is
kept with probability min(1, p / q); at the first that is not, the target's
correction stands instead. Arrow keys step.</p>
<div class="controls">
<label>Draft and temperature<select data-trace="setting"></select></label>
<label>Sentence<select data-trace="sentence"></select></label>
</div>
<p class="soft">Source</p><p class="quote" data-trace="source"></p>
<div class="stepper" role="group" aria-label="Rounds">
<button type="button" class="step" data-trace="first">First</button>
<button type="button" class="step" data-trace="previous">← Back</button>
<output data-trace="at" aria-live="polite"></output>
<button type="button" class="step" data-trace="next">Next →</button>
<button type="button" class="step" data-trace="last">Last</button>
</div>
<div class="cards" data-trace="cards"></div>
<ul class="keys">
<li><span class="chip accepted">✓ accepted</span></li>
<li><span class="chip rejected">✗ rejected</span></li>
<li><span class="chip correction">↳ correction by the target</span></li>
<li><span class="chip bonus">+ bonus after a full block</span></li>
<li><span class="chip not-judged">· not judged</span></li>
<li><span class="chip past-the-end">∎ past the end</span></li>
</ul>
<ol class="lines" data-trace="lines"></ol>
<p class="soft">Output</p><p class="quote" data-trace="text"></p>
'''


def trace_data(jobs: Sequence[gather.Job]) -> list[dict[str, Any]]:
  """What the viewer needs of each trace, with the name of its setting."""
  found = []
  for job in jobs:
    for row in job.traces:
      if not row['rounds']:
        continue
      named = {'lenience': job.config.get('lenience'), **row}
      label = (f'{tables.draft(named)}, temperature {row["temperature"]:g}, '
               f'γ={row["gamma"]}')
      found.append({
          'label': label + (f' ({job.name})' if len(jobs) > 1 else ''),
          **{key: row[key] for key in ('index', 'source', 'text', 'rounds')}})
  return found


def _facts(job: gather.Job) -> str:
  options = {f'config.{name}': v for name, v in job.config.items()}
  return '<dl>' + ''.join(
      f'<dt>{escape(str(name))}</dt><dd>{escape(str(value))}</dd>'
      for name, value in {**job.facts, **options}.items()) + '</dl>'


def _details(jobs: Sequence[gather.Job]) -> str:
  parts = []
  for job in jobs:
    parts += [f'<h3>{escape(job.name)}</h3>',
              f'<p>{escape(words.place(job))}</p>',
              f'<p>{escape(words.conditions(job))}</p>',
              '<details><summary>Hardware, versions, seed and every option'
              f'</summary>{_facts(job)}</details>']
  return ''.join(parts)


_SHOWN = 6  # verdicts; more are folded away


def _verdicts(rows: Sequence[dict]) -> str:
  parts, many = [], len({row['run'] for row in rows}) > 1
  for (task, _, machine, run, temperature), group in (
      tables.by_place(rows).items()):
    timed = words.honest(group)
    best = max(timed, key=lambda row: row['speedup'], default=None)
    won = sum(row['speedup'] >= 1 for row in timed)
    parts.append(
        f'Temperature {temperature:g}, {task} on {machine}'
        + (f' ({run}): ' if many else ': ') + (
            'nothing comparable was timed.' if best is None else
            f'{won} of {len(timed)} settings are faster than plain, best '
            f'{words.factor(best)}.'))
  if len(parts) <= _SHOWN:
    return items(parts)
  return (f'<details><summary>Run by run ({len(parts)})</summary>'
          f'{items(parts)}</details>')


def _problems(jobs: Sequence[gather.Job]) -> str:
  found = [f'{job.name}: {text}' for job in jobs for text in job.problems]
  if not found:
    return ''
  return ('<section id="missing" class="warning" aria-label="Missing"><h2>'
          f'Missing in these records</h2>{items(found)}</section>')


def render(jobs: Sequence[gather.Job]) -> str:
  """The whole page."""
  rows = tables.with_place(jobs)
  data = trace_data(jobs)
  nothing = '<p>No setting has been decoded yet.</p>'
  inner = {
      'comparison': _comparison(rows) if rows else nothing,
      'figures': _figures(rows),
      'settings': _settings(rows) if rows else nothing,
      'traces': _TRACES if data else '<p>No sentence was traced.</p>',
      'details': _details(jobs)}
  sections = ''.join(
      f'<section id="{name}"><h2>{SECTIONS[name]}</h2>{body}</section>'
      for name, body in inner.items())
  script = (_HERE / 'page.js').read_text('utf-8')
  digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
  template = string.Template((_HERE / 'page.html').read_text('utf-8'))
  return template.substitute(
      script_hash=f'sha256-{digest}', script=script,
      style=(_HERE / 'page.css').read_text('utf-8'),
      headline=escape(words.headline(rows)), verdicts=_verdicts(rows),
      contents=''.join(f'<a href="#{name}">{title}</a>'
                       for name, title in SECTIONS.items()),
      warnings=items(words.warnings(jobs)), problems=_problems(jobs),
      sections=sections, traces=script_json(data))
