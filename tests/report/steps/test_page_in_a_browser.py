"""The page of `trace` in a real browser: it draws, zooms, moves and says nothing to anybody."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests import needs
from tests.traces import job
from whichrank.flows.trace.analyse import trace
from whichrank.report.steps import html

webdriver = needs.package("selenium.webdriver")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver")
SAMPLE = Path(__file__).parents[2] / "samples" / "traces" / "gloo_data_4rank"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    profile = tmp_path_factory.mktemp("chromium")
    for flag in (
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
        "--disable-background-networking", "--disable-component-update", "--window-size=1280,1400",
        f"--user-data-dir={profile}",
    ):  # fmt: skip
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


def shown(browser, report, folder):
    path = folder / "trace.html"
    path.write_text("".join(html.render(report)), encoding="utf-8")
    browser.get(path.as_uri())
    assert browser.execute_script("return document.querySelector('[data-map]').dataset.ready") == "true"


def drawn(browser):
    """Colours that the canvas holds, but for its background."""
    return browser.execute_script("""
        const c = document.querySelector('canvas'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        const found = new Set();
        for (let i = 0; i < d.length; i += 4 * 7) found.add((d[i] << 16) | (d[i + 1] << 8) | d[i + 2]);
        return found.size;""")


def view(browser):
    text = browser.execute_script("return document.querySelector('[data-map]').dataset.view")
    return [float(value) for value in text.split()]


def settle(browser):
    browser.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))")


def test_the_map_draws_and_zooms(browser, tmp_path):
    from selenium.webdriver import ActionChains, Keys
    from selenium.webdriver.common.by import By

    shown(browser, trace([SAMPLE]), tmp_path)
    assert drawn(browser) > 5
    whole = view(browser)
    browser.find_element(By.CSS_SELECTOR, "[data-zoom=in]").click()
    settle(browser)
    half = view(browser)
    assert half[1] - half[0] == pytest.approx((whole[1] - whole[0]) / 2, rel=0.01)
    canvas = browser.find_element(By.TAG_NAME, "canvas")
    canvas.send_keys(Keys.ARROW_RIGHT)
    settle(browser)
    assert view(browser)[0] > half[0]
    ActionChains(browser).drag_and_drop_by_offset(canvas, 120, 0).perform()
    settle(browser)
    assert view(browser)[0] < half[0] + (half[1] - half[0]) / 8
    canvas.send_keys("0")
    settle(browser)
    assert view(browser) == whole
    ActionChains(browser).move_to_element_with_offset(canvas, 200, 20).perform()
    settle(browser)
    tip = browser.find_element(By.CLASS_NAME, "tip")
    assert tip.is_displayed()
    assert "rank" in tip.text
    legend = browser.find_elements(By.CSS_SELECTOR, ".legend button")
    before = drawn(browser)
    for button in legend:
        button.click()
    settle(browser)
    assert drawn(browser) < before
    assert browser.find_element(By.TAG_NAME, "h1").text.startswith("Rank 2 is late")


def test_hundreds_of_ranks_stay_usable(browser, tmp_path):
    job(tmp_path / "job", world=200, steps=4, extra=lambda one, _s: one.kernel(900, "slow") if one.rank == 77 else None)
    report = trace([tmp_path / "job"])
    assert [late.rank for late in report.stragglers] == [77]
    shown(browser, report, tmp_path)
    assert drawn(browser) > 3
    took = browser.execute_script("""
        const start = performance.now();
        for (let i = 0; i < 5; i++) document.querySelector('[data-zoom=in]').click();
        return performance.now() - start;""")
    settle(browser)
    assert took < 5000
    assert (tmp_path / "trace.html").stat().st_size < 4 << 20


def test_nothing_is_loaded_and_nothing_fails(browser, tmp_path):
    browser.get_log("performance")
    shown(browser, trace([SAMPLE / "rank-0.json.gz"]), tmp_path)
    said = [line["message"] for line in browser.get_log("performance")]
    asked = [line for line in said if "Network.requestWillBeSent" in line]
    assert all('"url":"file:' in line or '"url":"data:' in line for line in asked)
    assert [line for line in browser.get_log("browser") if line["level"] == "SEVERE"] == []
