"""A real headless Chromium for tests of pages."""

from collections.abc import Iterator
import contextlib
import importlib.util
import pathlib
import shutil
from typing import Any

import pytest

INSTALL = 'apt-get install -y --no-install-recommends chromium chromium-driver'


def why_not() -> str | None:
  """What to install, if something is missing."""
  if importlib.util.find_spec('selenium') is None:
    return 'needs selenium: pip install -e .[test]'
  if not (shutil.which('chromium') and shutil.which('chromedriver')):
    return f'needs chromium and chromedriver: {INSTALL}'
  return None


@contextlib.contextmanager
def chromium() -> Iterator['Browser']:
  """Starts a browser and ends it with the test; skips where there is none."""
  reason = why_not()
  if reason:
    pytest.skip(reason)
  from selenium import webdriver
  from selenium.webdriver.chrome.service import Service
  options = webdriver.ChromeOptions()
  options.binary_location = shutil.which('chromium') or ''
  for argument in ('--headless=new', '--no-sandbox', '--disable-gpu',
                   '--disable-dev-shm-usage', '--hide-scrollbars'):
    options.add_argument(argument)
  options.set_capability('goog:loggingPrefs', {'browser': 'ALL'})
  driver = webdriver.Chrome(
      options=options, service=Service(shutil.which('chromedriver')))
  try:
    yield Browser(driver)
  finally:
    driver.quit()


class Browser:
  """The few things that tests do with a page."""

  def __init__(self, driver: Any):
    self.driver = driver

  def open(self, path: pathlib.Path, width: int = 1440) -> None:
    self.driver.execute_cdp_cmd('Emulation.setDeviceMetricsOverride', {
        'width': width, 'height': 900, 'deviceScaleFactor': 1,
        'mobile': False})
    self.driver.get(path.resolve().as_uri())

  def run(self, script: str, *arguments: Any) -> Any:
    """What a script returns."""
    return self.driver.execute_script(script, *arguments)

  def click(self, selector: str) -> None:
    self.driver.find_element('css selector', selector).click()

  def type(self, selector: str, keys: str) -> None:
    self.driver.find_element('css selector', selector).send_keys(keys)

  def texts(self, selector: str) -> list[str]:
    """Texts of the visible elements, in the order of the page."""
    return self.run(
        'return [...document.querySelectorAll(arguments[0])].filter('
        'e => e.checkVisibility()).map(e => e.textContent)', selector)

  def attribute(self, selector: str, name: str) -> str | None:
    return self.driver.find_element(
        'css selector', selector).get_dom_attribute(name)

  @property
  def console(self) -> list[dict]:
    """Every message since the last look."""
    return self.driver.get_log('browser')
