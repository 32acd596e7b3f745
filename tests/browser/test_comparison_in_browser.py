"""The page of several runs in a real browser: lines with points of their own, their values, axes and table."""

import json

import pytest
from synthetic_run import write_run

from ddlsim.report.html.page import comparison_page, write
from ddlsim.report.summary import read_all

EVIL = "<script>window.broken = 1</script>"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Two settings: one of two seeds, with the name of a script; one that is evaluated at other rounds and times."""
    folder = tmp_path_factory.mktemp("compared")
    for name, every, seed in ((EVIL, 20, 0), (EVIL, 20, 1), ("other", 30, 0)):
        run = write_run(folder / f"{every}-{seed}", 4, 60, every=every)
        manifest = json.loads((run / "manifest.json").read_text()) | {"seed": seed}
        (run / "manifest.json").write_text(json.dumps(manifest))
        (run / "scenario.yaml").write_text(f"name: tiny\nseed: {seed}\nalgorithm: {{name: '{name}'}}\n")
    return write(comparison_page(list(read_all([folder]))), folder / "page.html")


@pytest.mark.full
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_lines_of_settings_are_drawn_with_values_axes_and_tables(browser, file, theme):
    trouble = []
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=theme)
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("request", lambda asked: asked.url.startswith(("file:", "data:")) or trouble.append(asked.url))
    page.goto(file.as_uri())
    assert page.locator("[data-drawn]").count() == page.locator("[data-figure]").count() == 4
    assert page.evaluate("window.broken") is None
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    page.locator("#curve-accuracy .choice button", has_text="round").click()
    chart = page.locator("#curve-accuracy .chart")
    chart.focus()
    readings = []
    for _ in range(4):
        chart.press("ArrowRight")
        readings.append(page.locator("#curve-accuracy [aria-live]").inner_text())
    page.locator("#curve-accuracy details.twin summary").click()
    page.locator("#curve-accuracy tbody tr").first.wait_for()
    rows = page.locator("#curve-accuracy tbody tr").all_inner_texts()
    page.close()
    assert [one.split(",")[0] for one in readings] == ["round 20", "round 30", "round 40", "round 60"]
    assert EVIL in readings[1] and " at 30" in readings[0] and " at " not in readings[3]
    assert len(rows) == 5 and [row.split("\t")[2] for row in rows] == ["20", "40", "60", "30", "60"]
    assert trouble == []
