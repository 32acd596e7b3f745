"""The page of sections: escaped, self-contained, below its size limit."""

import json
import re

import numpy as np
import pytest

from ddlsim.report.html.encode import Budget, encoded
from ddlsim.report.html.page import Page, Tile, printed
from ddlsim.report.section import Axis, Bars, Frame, Heat, Lines, Section, Series, Table

EVIL = "</script><script>alert(1)</script>\"'&"


def figures(text: str) -> dict:
    return json.loads(re.search(r'id="figures">(.*?)</script>', text, re.DOTALL)[1])


def line(values, **more) -> Lines:
    return Lines([Axis("round", np.arange(len(values)))], "accuracy", [Series("all", np.array(values, float))], **more)


def test_text_from_records_is_shown_as_text():
    table = Table([EVIL], [[EVIL]])
    heat = Heat([Frame(EVIL, np.zeros((1, 1)))], [EVIL], [EVIL], EVIL, EVIL)
    evil = [
        Section("table", EVIL, EVIL, EVIL, table, code=EVIL, notes=[EVIL]),
        Section("heat", EVIL, EVIL, EVIL, figure=heat),
    ]
    text = printed(Page(EVIL, evil, EVIL, [Tile(EVIL, EVIL, EVIL)], [EVIL], EVIL))
    clean = printed(Page("x", [Section("table", "x", "x"), Section("heat", "x", "x", figure=heat)]))
    assert text.count("<script") == clean.count("<script") == 2
    assert "alert(1)</script>" not in text
    assert figures(text)["heat"]["rows"] == [EVIL]


def test_page_requests_nothing_from_the_network():
    text = printed(Page("x", [Section("line", "x", "x", figure=line([1, 2]))]))
    assert "default-src 'none'" in text and "connect-src 'none'" in text and "unsafe" not in text.split("</head>")[0]
    markup = re.sub(r"<script.*?</script>|<style.*?</style>", "", text, flags=re.DOTALL)
    assert "http" not in markup.replace("http-equiv", "") and " src=" not in markup and "style=" not in markup


def test_large_page_is_thinned_to_its_size_limit():
    rng = np.random.default_rng(0)
    many = [Section(f"heat-{i}", "x", "x", figure=heat_of(rng.random((60, 2000)))) for i in range(30)]
    text = printed(Page("x", many))
    assert len(text.encode()) < 1_000_000
    assert "columns, evenly spaced." in text


def heat_of(values: np.ndarray, **more) -> Heat:
    rows, columns = ([str(i) for i in range(size)] for size in values.shape)
    return Heat([Frame("x", values)], rows, columns, "row", "column", **more)


def test_long_curve_keeps_its_ends_and_extremes():
    values = np.zeros(1200)
    values[[0, 777, 801, 1199]] = 3, 9, -9, 4
    found, notes = encoded(line(values), Budget())
    kept = dict(zip(found["x"][0]["values"], found["series"][0]["values"], strict=True))
    assert 400 <= len(kept) <= 402
    assert {0: 3, 777: 9, 801: -9, 1199: 4}.items() <= kept.items()
    assert notes == [
        f"Shown are {len(kept)} of 1,200 points: evenly spaced ones, and the lowest and the highest of every line."
    ]


def unpacked(frame: dict) -> list[float | None]:
    import base64

    codes = np.frombuffer(base64.b64decode(frame["data"]), "u1" if frame["bits"] == 8 else "<u2")
    return [None if code == 0 else frame["low"] + (int(code) - 1) * frame["step"] for code in codes]


def test_packed_whole_numbers_are_exact():
    frame = encoded(heat_of(np.array([[7.0, np.nan], [260.0, 8.0]])), Budget())[0]["frames"][0]
    assert frame["bits"] == 8
    assert unpacked(frame) == [7, None, 260, 8]


def test_packed_fractions_are_within_a_step():
    frame = encoded(heat_of(np.array([[0.1, 0.25], [np.inf, 0.9]])), Budget())[0]["frames"][0]
    assert frame["bits"] == 16
    found = unpacked(frame)
    assert found[2] is None
    assert [found[0], found[1], found[3]] == pytest.approx([0.1, 0.25, 0.9], abs=0.8 / 65534)


def test_slider_has_one_scale_for_all_pictures():
    frames = [Frame(str(i), np.array([[float(i)]])) for i in (3, 50)]
    found = encoded(Heat(frames, ["a"], ["b"], "row", "column", choose="slider"), Budget())[0]
    assert [(frame["least"], frame["most"], unpacked(frame)) for frame in found["frames"]] == [
        (3, 50, [3]),
        (3, 50, [50]),
    ]


def test_bars_are_plain_numbers():
    found = encoded(Bars(["all"], ["a", "b"], np.array([[1.0, 2.5]])), Budget())[0]
    assert found["values"] == [[1, 2.5]]


def test_every_figure_has_a_table_twin():
    sections = [Section(f"line-{i}", "x", "x", figure=line([1])) for i in range(3)]
    text = printed(Page("x", sections))
    assert text.count('<details class="twin">') == 3
