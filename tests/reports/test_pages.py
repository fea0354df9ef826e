"""The pages in a browser: all that can be clicked does what it says, nothing is cut, and colours can be read."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from reports.cli.app import NAMES, build
from reports.pages.contrast import contrast
from reports.pages.html import write_report
from tests.reports import lived
from tests.reports.browser import CHROMIUM, CUT, Browser, browser
from tests.reports.served import bench, serve
from tests.reports.test_live import TARGETS, step, write_search

pytestmark = pytest.mark.slow("opens pages in a browser")

LOOKS = [(width, scheme) for width in (1400, 390) for scheme in ("light", "dark")]
MOST_BYTES, MOST_PX = 1_500_000, 5000

UNREADABLE = """(() => {
  const of = colour => (colour.match(/[\\d.]+/g) || []).map(Number);
  const luminance = rgb => { const [r, g, b] = rgb.map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b };
  const behind = e => { for (; e; e = e.parentElement) {
    const [r, g, b, a = 1] = of(getComputedStyle(e).backgroundColor);
    if (a === 1 && r !== undefined) return [r, g, b] } return [255, 255, 255] };
  const shown = e => e.checkVisibility({contentVisibilityAuto: true, visibilityProperty: true});
  const own = e => [...e.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
  const text = [...document.querySelectorAll('main *, [popover] *')]
    .filter(e => !e.closest('svg, style') && own(e) && shown(e)).map(e => [e, getComputedStyle(e).color]);
  const drawn = [...document.querySelectorAll('.picture svg [id*="text_"] > g')].filter(shown)
    .map(e => [e, getComputedStyle(e).fill]);
  const all = [...text, ...drawn].map(([e, colour]) => {
    const [one, other] = [luminance(of(colour).slice(0, 3)), luminance(behind(e))].sort((a, b) => b - a);
    return [(one + 0.05) / (other + 0.05), colour, e.textContent.trim().slice(0, 40)] });
  return {drawn: drawn.length, low: all.filter(([ratio]) => ratio < 4.5)}
})()"""
"""Visible text, of the page and in its pictures, whose contrast with what is behind it is less than 4.5; and the number
of texts in pictures."""
LINKS = """[...document.querySelectorAll('a[href^="#"]')].filter(a => { a.click();
  const e = document.getElementById(a.getAttribute('href').slice(1)); return !e || !e.checkVisibility() })
  .map(a => a.outerHTML)"""
"""Clicks every link within the page; those whose target is not there or not shown."""
FOLDS = """[...document.querySelectorAll('details')].filter(e => { const before = e.open;
  e.querySelector('summary').click(); return e.open === before }).map(e => e.textContent.slice(0, 60))"""
"""Clicks every summary; those that neither open nor close."""
OPEN = "document.querySelectorAll('details').forEach(e => e.open = true)"
TERMS = """[...document.querySelectorAll('[popovertarget]')].filter(e => { e.click();
  const shown = [...document.querySelectorAll('[popover]')].filter(p => p.matches(':popover-open'));
  const right = shown.length === 1 && shown[0].id === e.getAttribute('popovertarget') &&
    shown[0].getBoundingClientRect().right <= innerWidth && shown[0].textContent.trim().length > 20;
  shown.forEach(p => p.hidePopover()); return !right }).map(e => e.outerHTML)"""
"""Clicks every button; those that do not open what they name, whole, and nothing else."""
OUTSIDE = "performance.getEntriesByType('resource').map(e => e.name)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a bench, of a live run and of a search, with their reports and an index."""
    folder = tmp_path_factory.mktemp("results")
    serve(folder / "bench", bench())
    live = lived.serve_live(folder / "live", play=lived.play_heard)
    found = Path(shutil.copytree(live, folder / "find"))
    points = [path.name.removesuffix(".failed") for path in sorted((found / "points").iterdir())]
    write_search(found, lambda n, _: step(n, points), TARGETS)
    for name in ("bench", "live", "find"):
        write_report(folder / name)
    build(NAMES)(["report", str(folder)], standalone_mode=False)
    return folder


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here")
    with browser() as found:
        yield found


def page_of(folder: Path, name: str) -> Path:
    return folder / "index.html" if name == "index" else folder / name / "report.html"


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
@pytest.mark.parametrize("name", ["bench", "live", "find", "index"])
def test_all_that_can_be_clicked_works(folder: Path, chromium: Browser, name: str, width: int, scheme: str) -> None:
    page = page_of(folder, name)
    assert page.stat().st_size <= MOST_BYTES
    chromium.open(page, width, scheme)  # type: ignore[arg-type]
    height = chromium.evaluate("document.documentElement.scrollHeight")
    assert width < 600 or height < MOST_PX
    assert chromium.evaluate(OUTSIDE) == []
    for broken in (LINKS, FOLDS, FOLDS, TERMS):
        assert chromium.evaluate(broken) == []
    chromium.evaluate(OPEN)
    found = chromium.evaluate(CUT)
    assert found["page"] <= 0 and found["cut"] == []
    colours = chromium.evaluate(UNREADABLE)
    assert colours["low"] == [] and (colours["drawn"] > 50 or name == "index")


def test_a_switch_hides_its_series_in_every_picture(folder: Path, chromium: Browser) -> None:
    chromium.open(page_of(folder, "bench"), 1400)
    colours = """(() => { const swatch = document.querySelector('#series-1 + .swatch');
      const name = swatch.style.background.match(/--c-\\w+/)[0];
      return [...document.querySelectorAll('.picture')].map(e => getComputedStyle(e).getPropertyValue(name).trim())
    })()"""
    before = set(chromium.evaluate(colours))
    assert len(before) == 1 and before != {"transparent"}
    chromium.evaluate("document.querySelector('#series-1').click()")
    assert set(chromium.evaluate(colours)) == {"transparent"}
    chromium.evaluate("document.querySelector('#series-1').click()")
    assert set(chromium.evaluate(colours)) == before


def test_the_filter_of_the_index_hides_rows(folder: Path, chromium: Browser) -> None:
    chromium.open(page_of(folder, "index"), 1400)
    rows = """[...document.querySelectorAll('tbody tr')].filter(e => e.checkVisibility())
      .map(e => e.querySelector('th a').textContent)"""
    enter = """(text => { const box = document.querySelector('[type=search]');
      box.value = text; box.dispatchEvent(new Event('input')) })"""
    for text, names in (("SMALL", ["bench"]), ("endpoint", ["find", "live"]), ("", ["bench", "find", "live"])):
        chromium.evaluate(f"{enter}('{text}')")
        assert sorted(chromium.evaluate(rows)) == names
    for word, names in (("FAIL", ["bench", "find"]), ("PASS", ["bench"])):
        chromium.evaluate(f"document.querySelector('#show-{word}').click()")
        assert sorted(chromium.evaluate(rows)) == names


def test_contrast_is_that_of_the_guidelines() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)  # WCAG's well-known grey
