"""Figures: valid SVG that shows what was measured and nothing else."""

import re
from xml.etree import ElementTree

import pytest

from specdec_jax import figures


def setting(**values):
  return {'task': 't', 'draft': 'D', 'temperature': 0.0, 'gamma': 3,
          'batch_size': 1, 'alpha': 0.6, 'tokens_per_round': 2.1, 'c': 0.05,
          'speedup': 1.3, 'speedup_low': 1.2, 'speedup_high': 1.4,
          'predicted_with_verify': 1.35, **values}


OF_SETTINGS = [
    figures.svg_tokens_per_round, figures.svg_best_gamma,
    figures.svg_speed_operations, figures.svg_predicted, figures.svg_factors]
ROWS = [setting(), setting(gamma=5, speedup=0.9), setting(draft='E'),
        setting(temperature=1.0)]


def ids(svg):
  return re.findall(r'\bid="([^"]+)"', svg)


def texts(svg):
  return ''.join(ElementTree.fromstring(svg).itertext())


@pytest.mark.parametrize('draw', OF_SETTINGS)
@pytest.mark.parametrize('rows', [ROWS, []], ids=['rows', 'none'])
def test_every_figure_is_one_svg_element_with_a_title(draw, rows):
  svg = draw(rows)
  assert svg.startswith('<svg role="img" aria-label=')
  assert ElementTree.fromstring(svg).tag.endswith('svg')
  assert 'http' not in re.sub(r'xmlns(:\w+)?="[^"]*"', '', svg)


def test_ids_of_all_figures_and_styles_are_different():
  found = [i for draw in OF_SETTINGS for dark in (False, True)
           for i in set(ids(draw(ROWS, dark)))]
  assert len(found) == len(set(found))


def test_references_within_a_figure_lead_to_its_ids():
  svg = figures.svg_factors(ROWS)
  used = re.findall(r'(?:href="#|url\(#)([^")]+)', svg)
  assert used and set(used) <= set(ids(svg))


def test_the_same_rows_give_the_same_text():
  assert figures.svg_factors(ROWS) == figures.svg_factors(ROWS)


def test_light_and_dark_differ_in_ink():
  assert '#e8e8e8' in figures.svg_factors(ROWS, True)
  assert '#e8e8e8' not in figures.svg_factors(ROWS)


@pytest.mark.parametrize('draw', OF_SETTINGS)
@pytest.mark.parametrize('missing', [None, float('nan')])
def test_what_was_not_measured_is_not_drawn(draw, missing):
  numbers = ('alpha', 'speedup', 'tokens_per_round', 'predicted_with_verify')
  svg = draw([setting(**dict.fromkeys(numbers, missing))])
  assert re.sub(r'\d', '', svg) == re.sub(r'\d', '', draw([]))


def test_lossy_and_synthetic_rows_are_marked():
  svg = figures.svg_predicted(
      [setting(), setting(lenience=0.5), setting(synthetic=0.8)])
  for name in ('measured', 'lossy', 'synthetic'):
    assert name in texts(svg)
  assert 'lossy' not in texts(figures.svg_predicted([setting()]))


def test_names_are_text_never_markup():
  svg = figures.svg_factors([setting(draft='a$\\frac$<script>b</script>&')])
  assert '<script' not in svg and '<script>b' in texts(svg)


def test_the_best_gamma_is_that_of_the_largest_factor():
  best = figures.best_measured(ROWS)
  assert [(r['draft'], r['temperature'], r['gamma']) for r in best] == [
      ('D', 0.0, 3), ('E', 0.0, 3), ('D', 1.0, 3)]


def test_a_timeline_has_a_lane_a_setting():
  svg = figures.svg_timeline([
      ('γ = 1', [('encoder', 0.1), ('draft', 0.01), ('target', 0.2)]),
      ('plain', [('encoder', 0.1), ('target', 0.2)])])
  for name in ('γ = 1', 'plain', 'encoder', 'draft', 'target'):
    assert name in texts(svg)


def test_factors_against_a_number_of_the_rows():
  svg = figures.svg_against(
      [setting(batch_size=b) for b in (1, 8)], 'batch_size', 'batch size')
  assert 'batch size' in texts(svg) and 'D, γ = 3' in texts(svg)
