'use strict';

// Tables: click a header to sort, type to filter.

const lower = (text) => text.toLowerCase();

function compare(a, b, numeric, up) {
  if (a === undefined || b === undefined) {
    // What was not measured stands last in both directions.
    return (a === undefined) - (b === undefined);
  }
  const order = numeric ? Number(a) - Number(b) : a.localeCompare(b);
  return up ? order : -order;
}

function makeSortable(table) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.querySelector('button').addEventListener('click', () => {
      const up = head.getAttribute('aria-sort') !== 'ascending';
      heads.forEach((other) => other.setAttribute('aria-sort', 'none'));
      head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
      const value = (row) => row.cells[column].dataset.v;
      const numeric = head.classList.contains('number');
      body.append(...[...body.rows].sort(
          (a, b) => compare(value(a), value(b), numeric, up)));
    });
  });
}

function makeFilterable(table, input, count) {
  const names = [...table.tHead.rows[0].cells].map(
      (head) => lower(head.textContent.trim()));
  const rows = [...table.tBodies[0].rows];
  const texts = rows.map((row) => [...row.cells].map(
      (cell, i) => `${names[i]}=${lower(cell.textContent)}`).join(' '));
  const filter = () => {
    const words = lower(input.value).split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, i) => {
      row.hidden = !words.every((word) => texts[i].includes(word));
      shown += !row.hidden;
    });
    count.textContent = `${shown} of ${rows.length} settings`;
  };
  input.addEventListener('input', filter);
  filter();
}

// Traces. Text comes in by textContent only.

const SIGNS = {
  'accepted': '\u2713', 'rejected': '\u2717', 'correction': '\u21b3',
  'bonus': '+', 'not judged': '\u00b7', 'past the end': '\u220e'};

function make(tag, className, ...children) {
  const element = document.createElement(tag);
  element.className = className;
  element.append(...children);
  return element;
}

const classOf = (mark) => mark.replaceAll(' ', '-');

/** Every piece of a round, with what became of it. */
function piecesOf(round) {
  const drafted = round.pieces.map((piece, i) => (
    {piece, mark: round.marks[i], p: round.p[i], q: round.q[i]}));
  const next = {piece: round.next_piece, mark: round.next_mark,
                p: round.next_p, q: undefined};
  return round.next_mark === 'past the end' ? drafted : [...drafted, next];
}

function bar(name, value) {
  const known = typeof value === 'number';
  const fill = make('i', '');
  fill.style.width = known ? `${Math.round(100 * value)}%` : '0';
  return make('div', 'bar', make('span', '', name),
      make('div', 'track', fill),
      make('em', '', known ? value.toFixed(2) : 'n/a'));
}

function card(item) {
  const bars = item.q === undefined ? [bar('p', item.p)]
      : [bar('p', item.p), bar('q', item.q)];
  return make('div', `card ${classOf(item.mark)}`, make('b', '', item.piece),
      make('div', 'kind', `${SIGNS[item.mark] ?? '?'} ${item.mark}`), ...bars);
}

function chip(item) {
  const found = make('span', `chip ${classOf(item.mark)}`,
      `${SIGNS[item.mark] ?? '?'} ${item.piece}`);
  found.title = item.mark;
  return found;
}

function makeTraces(root, data) {
  const get = (name) => root.querySelector(`[data-trace="${name}"]`);
  const [setting, sentence] = [get('setting'), get('sentence')];
  const labels = [...new Set(data.map((trace) => trace.label))];
  let trace = null;
  let at = 0;

  function show(index) {
    const last = trace.rounds.length - 1;
    at = Math.max(0, Math.min(index, last));
    get('at').textContent = `round ${at + 1} of ${last + 1}`;
    get('first').disabled = get('previous').disabled = at === 0;
    get('next').disabled = get('last').disabled = at === last;
    get('cards').replaceChildren(...piecesOf(trace.rounds[at]).map(card));
    [...get('lines').children].forEach((line, i) => {
      if (i === at) line.setAttribute('aria-current', 'step');
      else line.removeAttribute('aria-current');
    });
  }

  function choose() {
    trace = data[Number(sentence.value)];
    get('source').textContent = trace.source;
    get('text').textContent = trace.text;
    get('lines').replaceChildren(...trace.rounds.map((round, i) => {
      const button = make('button', '', make('span', 'number', `${i + 1}`),
          ...piecesOf(round).map(chip));
      button.type = 'button';
      button.addEventListener('click', () => show(i));
      return make('li', '', button);
    }));
    show(0);
  }

  function fill() {
    const kept = sentence.selectedIndex;
    const own = data.map((t, i) => [t, i]).filter(
        ([t]) => t.label === setting.value);
    sentence.replaceChildren(...own.map(([t, i]) => new Option(
        `${t.index + 1}: ${t.source.slice(0, 70)}`, i)));
    sentence.selectedIndex = Math.min(Math.max(kept, 0), own.length - 1);
    choose();
  }

  setting.replaceChildren(...labels.map(
      (label) => new Option(label, label)));
  setting.addEventListener('change', fill);
  sentence.addEventListener('change', choose);
  const steps = {first: () => 0, previous: () => at - 1,
                 next: () => at + 1, last: () => trace.rounds.length - 1};
  for (const [name, step] of Object.entries(steps)) {
    get(name).addEventListener('click', () => show(step()));
  }
  const keys = {ArrowLeft: 'previous', ArrowRight: 'next', Home: 'first',
                End: 'last'};
  root.addEventListener('keydown', (event) => {
    if (event.target instanceof HTMLSelectElement || !(event.key in keys)) {
      return;
    }
    event.preventDefault();
    show(steps[keys[event.key]]());
  });
  fill();
}

const settings = document.getElementById('settings-table');
if (settings) {
  makeSortable(settings);
  makeFilterable(settings, document.getElementById('settings-filter'),
      document.getElementById('settings-count'));
}
const traces = document.getElementById('traces');
const traceData = JSON.parse(
    document.getElementById('trace-data').textContent);
if (traces && traceData.length) makeTraces(traces, traceData);
