"""The report of a long run in a real browser: drawn, without errors or requests, with hover, keys and slider."""

import re
from pathlib import Path

import pytest
from synthetic_run import write_run

from ddlsim.report.html.live import LiveServer
from ddlsim.report.html.page import run_page, write
from ddlsim.report.reading import read

EVIL = "<script>window.broken = 1</script>"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return write_run(tmp_path_factory.mktemp("browser") / "run", 32, 1200, name=EVIL)


@pytest.fixture(scope="module")
def file(run) -> Path:
    return write(run_page(read(run)), run / "report.html")


@pytest.fixture
def shown(browser, file):
    """Opens the report; afterwards there were no errors and no requests but for the file."""
    trouble, pages = [], []

    def show(width=1280, theme="light", **options):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme, **options)
        page.set_default_timeout(60_000)
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", lambda asked: asked.url.startswith(("file:", "data:")) or trouble.append(asked.url))
        page.goto(file.as_uri())
        pages.append(page)
        return page

    yield show
    for page in pages:
        page.close()
    assert trouble == []


@pytest.mark.full
@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_every_chart_is_drawn_and_nothing_scrolls_sideways(shown, width, theme):
    page = shown(width, theme)
    figures = page.locator("[data-figure]").count()
    assert figures >= 15
    assert page.locator("[data-drawn]").count() == figures
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    blank = """() => [...document.querySelectorAll('.figure canvas')].filter((canvas) => {
        const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        return new Set(new Uint32Array(pixels.buffer)).size < 3;
    }).map((canvas) => canvas.closest('section').id)"""
    assert page.evaluate(blank) == []


@pytest.mark.full
def test_text_from_records_is_shown_as_text_in_the_browser(shown):
    page = shown()
    assert page.inner_text("h1") == EVIL
    assert page.evaluate("window.broken") is None


@pytest.mark.full
def test_pointer_shows_values(shown):
    page = shown()
    page.locator("#quality .u-over").hover()
    tip = page.locator("#quality .tooltip")
    assert tip.is_visible() and "cluster 1" in tip.inner_text() and "%" in tip.inner_text()
    page.locator("#nodes canvas").hover()
    assert "accuracy" in page.locator("#nodes .tooltip").inner_text()


@pytest.mark.full
def test_keys_move_through_a_chart_and_zoom(shown):
    page = shown()
    chart = page.locator("#quality .chart")
    chart.focus()
    for key in ("ArrowRight", "ArrowRight"):
        chart.press(key)
    reading = page.locator("#quality [aria-live]").inner_text()
    assert reading.startswith("round 80,") and "cluster 0 (30 nodes)" in reading
    chart.press("+")
    assert page.evaluate("!!document.querySelector('#quality .u-axis')")
    heat = page.locator("#nodes canvas")
    heat.focus()
    heat.press("ArrowDown")
    assert page.locator("#nodes [aria-live]").inner_text().startswith("node 0, round 40")


@pytest.mark.full
def test_timeline_shows_activities_at_the_pointer_and_by_keys(shown):
    page = shown()
    chart = page.locator("#timeline canvas")
    chart.hover(position={"x": 60, "y": 60})
    assert "computing" in page.locator("#timeline .tooltip").inner_text()
    chart.focus()
    chart.press("ArrowDown")
    node, time_s, activity = re.fullmatch(
        r"node (\d+), simulated time ([\d.]+)s, .*?(\w+)", page.locator("#timeline [aria-live]").inner_text()
    ).groups()
    assert (activity, float(time_s) < float(node)) == ("computing", True)  # node n computes for n seconds


@pytest.mark.full
def test_time_axis_replaces_the_axis_of_rounds(shown):
    page = shown()
    page.locator("#quality .choice button", has_text="simulated time").click()
    page.locator("#quality .u-over").hover()
    assert page.locator("#quality .tooltip").inner_text().startswith("simulated time")


@pytest.mark.full
def test_slider_moves_through_rounds_and_the_table_follows(shown):
    page = shown()
    first = page.inner_text("#contacts output")
    page.locator("#contacts details.twin summary").click()
    before = page.inner_text("#contacts details.twin table")
    page.locator("#contacts input[type=range]").press("ArrowRight")
    assert page.inner_text("#contacts output") != first
    assert page.inner_text("#contacts details.twin table") != before


@pytest.mark.full
def test_every_chart_has_a_table(shown):
    page = shown()
    page.evaluate("document.querySelectorAll('details.twin').forEach((one) => { one.open = true; })")
    twins = page.locator("details.twin")
    for index in range(twins.count()):
        twins.nth(index).locator("td").first.wait_for()


@pytest.mark.full
def test_printed_page_is_light_and_has_no_controls(shown):
    page = shown(theme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("#theme").is_visible() and not page.locator("nav").is_visible()


@pytest.mark.full
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_serious_fault(shown, theme):
    package = pytest.importorskip("axe_playwright_python", reason="axe is not installed: pip install 'ddlsim[browser]'")
    page = shown(theme=theme, bypass_csp=True)
    page.locator("#quality details.twin summary").click()
    page.add_script_tag(path=Path(package.__file__).parent / "axe.min.js")
    found = page.evaluate("axe.run({exclude: ['.graph path']}, {resultTypes: ['violations']})")["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")] == []


@pytest.mark.full
def test_live_page_follows_the_run(browser, tmp_path):
    run = write_run(tmp_path / "run", 8, 80)
    whole = (run / "metrics.jsonl").read_text()
    manifest = (run / "manifest.json").read_text()
    (run / "manifest.json").write_text(manifest.replace('"done"', '"running"'))
    (run / "metrics.jsonl").write_text(whole[: whole.index('"round":41,') - 40])
    server = LiveServer(lambda directory: run_page(read(directory)), 0)
    page = browser.new_page()
    try:
        server.show(run)
        page.goto(server.address)
        page.locator("#quality details.twin summary").click()
        page.locator("#quality tbody tr").first.wait_for()
        assert page.locator("#quality tbody tr").count() == 1
        (run / "metrics.jsonl").write_text(whole)
        (run / "manifest.json").write_text(manifest)
        page.locator("#quality tbody tr").nth(1).wait_for()
        page.locator("#live", has_text="the run has ended").wait_for()
        assert page.locator("#quality tbody tr").count() == 2  # its table has stayed open
    finally:
        page.close()
        server.close()
