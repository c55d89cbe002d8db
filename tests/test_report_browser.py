"""The page in a real browser: it sorts, filters, steps and fits."""

import pytest

from specdec_jax import report
from tests import browser
from tests import rows as rows_lib

HOSTILE = '</script><img src=x onerror="document.title=1">\u2028&'
LEFT, RIGHT, END = '\ue012', '\ue014', '\ue010'


@pytest.fixture(scope='module')
def path(tmp_path_factory):
  folder = tmp_path_factory.mktemp('page')
  records = []
  for draft, seconds in (('mini/small', 0.8), ('mini/base', 1.25)):
    for gamma in (0, 2, 4):
      records += [rows_lib.row(
          i, gamma, task='ende_mini', draft=draft, accepted=[gamma and 1] * 3,
          decoder_seconds=1 if not gamma else seconds + gamma / 100,
          beta=[0.5]) for i in range(3)]
  traces = [rows_lib.trace(draft=draft, index=i, source=f'{HOSTILE} {i}')
            for draft in ('mini/small', HOSTILE) for i in range(2)]
  rows_lib.write(folder, records, traces=traces)
  report.write(folder)
  return folder / 'report.html'


@pytest.fixture(scope='module')
def driven():
  with browser.chromium() as found:
    yield found


@pytest.fixture
def page(driven, path):
  driven.open(path)
  yield driven
  assert driven.console == []  # no error, no warning, nothing blocked


def column(page, number):
  return page.texts(f'#settings-table tbody td:nth-child({number})')


def test_a_click_on_a_header_sorts_up_then_down(page):
  names = page.texts('#settings-table th')
  at = names.index('measured') + 1
  head = f'#settings-table th:nth-child({at})'
  unsorted = column(page, at)
  page.click(f'{head} button')
  assert page.attribute(head, 'aria-sort') == 'ascending'
  assert column(page, at) == sorted(unsorted, key=float) != unsorted
  page.click(f'{head} button')
  assert page.attribute(head, 'aria-sort') == 'descending'
  assert column(page, at) == sorted(unsorted, key=float, reverse=True)


def test_headers_sort_by_keyboard(page):
  page.type('#settings-table th:nth-child(1) button', '\n')
  names = column(page, 1)
  assert names == sorted(names)


def test_what_was_not_measured_sorts_last_both_ways(page):
  at = page.texts('#settings-table th').index('repeats') + 1
  for _ in range(2):
    page.click(f'#settings-table th:nth-child({at}) button')
    assert column(page, at)[-1] == report.MISSING


def test_the_filter_keeps_rows_with_every_word(page):
  assert len(column(page, 1)) == 4
  page.type('#settings-filter', 'small γ=4')
  assert column(page, 1) == ['mini/small']
  assert page.texts('#settings-count') == ['1 of 4 settings']


def at(page):
  return page.texts('[data-trace="at"]')[0]


def test_buttons_and_arrow_keys_step_through_the_rounds(page):
  assert at(page) == 'round 1 of 3'
  page.click('[data-trace="next"]')
  assert at(page) == 'round 2 of 3'
  page.type('[data-trace="next"]', RIGHT)
  page.type('[data-trace="previous"]', RIGHT)
  assert at(page) == 'round 3 of 3'
  page.type('[data-trace="previous"]', LEFT)
  assert at(page) == 'round 2 of 3'
  page.click('[data-trace="lines"] li:first-child button')
  assert at(page) == 'round 1 of 3'
  page.type('[data-trace="lines"] li:first-child button', END)
  assert at(page) == 'round 3 of 3'


def test_a_round_shows_each_piece_with_its_fate_in_words_and_both_numbers(
    page):
  assert page.texts('.card .kind') == [
      '✓ accepted', '✗ rejected', '· not judged', '↳ correction']
  assert page.texts('.card b')[1] == '▁zwei'
  assert page.texts('.card em') == [
      '0.90', '0.80', '0.10', '0.70', '0.20', 'n/a', '0.40']


def test_another_draft_and_sentence_can_be_chosen(page):
  page.run('const s = document.querySelector(\'[data-trace="setting"]\');'
           's.selectedIndex = 1; s.dispatchEvent(new Event("change"));')
  assert page.texts('[data-trace="source"]') == [f'{HOSTILE} 0']
  page.run('const s = document.querySelector(\'[data-trace="sentence"]\');'
           's.selectedIndex = 1; s.dispatchEvent(new Event("change"));')
  assert page.texts('[data-trace="source"]') == [f'{HOSTILE} 1']


def test_hostile_text_stays_text(page):
  assert page.run('return document.images.length') == 0
  assert page.run('return document.title') == 'Speculative decoding, measured'
  assert page.texts('[data-trace="source"]') == [f'{HOSTILE} 0']


@pytest.mark.parametrize('width', [390, 1440])
def test_nothing_overflows_the_page(page, path, width):
  page.open(path, width)
  assert page.run('return document.documentElement.scrollWidth') == width
  # Wide things scroll inside their own box.
  assert page.run('''
    return [...document.querySelectorAll('main *, header *')].filter((e) =>
      e.getBoundingClientRect().right > innerWidth + 1
      && !e.closest('.scroll, pre, select')).map((e) => e.outerHTML)''') == []


@pytest.mark.parametrize('scheme', ['light', 'dark'])
def test_text_stands_out_in_both_colour_schemes(page, path, scheme):
  page.driver.execute_cdp_cmd('Emulation.setEmulatedMedia', {'features': [
      {'name': 'prefers-color-scheme', 'value': scheme}]})
  page.open(path)
  ratios = page.run('''
    const light = (color) => {
      const part = color.match(/[\\d.]+/g).slice(0, 3).map((x) => x / 255)
        .map((x) => x <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4);
      return .2126 * part[0] + .7152 * part[1] + .0722 * part[2];
    };
    const back = (e) => {
      const color = getComputedStyle(e).backgroundColor;
      return /, 0\\)$/.test(color) && e.parentElement
        ? back(e.parentElement) : color;
    };
    return [...document.querySelectorAll('p, td, th, li, h1, h2, .kind, .chip')]
      .filter((e) => e.checkVisibility()).map((e) => {
        const two = [light(getComputedStyle(e).color), light(back(e))].sort();
        return [(Math.max(...two) + .05) / (Math.min(...two) + .05),
                e.className + ' ' + e.textContent.slice(0, 20)];
      });''')
  assert [r for r in ratios if r[0] < 4.5] == []
