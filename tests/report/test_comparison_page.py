"""The page of several runs: its sections from hand-made records, its escaping, its file."""

import json
import re

import numpy as np
import pytest

import ddlsim
from ddlsim.foundation.errors import RecordsDamaged, ScenarioError
from ddlsim.report.comparing.curves import Drawn
from ddlsim.report.html.encode import Budget, encoded
from ddlsim.report.html.page import comparison_page, printed
from ddlsim.report.section import Axis, Lines, Series
from ddlsim.report.summary import read_all, summary_of
from ddlsim.tasks.base import MSE

EVIL = "<script>alert(1)</script>"


@pytest.fixture
def make(make_run):
    """Make runs of these algorithms (YAML) with seeds, with accuracies 0.1 apart; return their records."""

    def made(algorithms, seeds=(0,), **manifest):
        for number, algorithm in enumerate(algorithms):
            name = algorithm.split(",")[0].strip("'")
            for seed in seeds:
                rows = [
                    row | {"value": row["value"] - 0.1 * seed} if row["name"] == "accuracy" else row
                    for row in make_run.rows()
                ]
                words = ["ddlsim", "run", "a b.yaml", "--seed", str(seed)]
                path = make_run(
                    f"{number}/seed-{seed}", seed=seed, rows=rows, command=words, algorithm=name, **manifest
                )
                text = f"name: tiny\nseed: {seed}\nalgorithm: {{name: {algorithm}}}\n"
                (path / "scenario.yaml").write_text(text)
        return list(read_all([path.parents[1]]))

    return made


def by_key(runs, **drawn):
    return {section.key: section for section in comparison_page(runs, Drawn(**drawn)).sections}


def test_table_has_a_row_per_setting_with_the_costs_of_the_chosen_value(make):
    table = by_key(make(["el", "dac"], (0, 1)), at=0.45)["settings"].table
    first, second = (dict(zip(table.header, row, strict=True)) for row in table.rows)
    assert (first["setting"], second["setting"]) == ("el", "dac")
    # seed 0 starts above 0.45 with 603 bytes; seed 1 goes from 13/30 to 21/30 and 1203 bytes, and meets it at 1/16
    assert first["accuracy (%)"] == "75.00 ±\u00a05.00" and first["bytes to target (B)"] == "622 ±\u00a019"


def test_charts_show_all_nodes_the_minority_and_fair_accuracy(make):
    found = by_key(make(["el", "dac"]))
    assert [key for key in found if key.startswith("curve")] == [
        "curve-accuracy",
        "curve-minority",
        "curve-fair-accuracy",
    ]
    assert found["curve-minority"].figure.series[1].values == pytest.approx([0.4, 0.6])
    assert "0.667 × mean accuracy" in found["curve-fair-accuracy"].about


def test_chosen_measure_comes_first_with_a_mark(make):
    found = by_key(make(["el", "dac"]), y="worst_node", at=0.5)
    keys = [key for key in found if key.startswith("curve")]
    assert keys[:2] == ["curve-worst-node", "curve-accuracy"]
    assert [mark.value for mark in found[keys[0]].figure.marks] == [0.5] and not found[keys[1]].figure.marks


def test_lines_have_a_band_over_seeds_and_separate_points(make):
    figure = by_key(make(["el"], (0, 1)), x="bytes")["curve-accuracy"].figure
    (line,) = figure.series
    assert [axis.name for axis in figure.x] == ["bytes sent by all nodes", "round", "simulated time"]
    assert [own.tolist() for own in line.x] == [[603, 1203], [2, 4], [22, 42]]
    assert line.values == pytest.approx([16 / 30 - 0.05, 0.75])
    assert (line.low, line.high) == (pytest.approx(line.values - 0.05), pytest.approx(line.values + 0.05))


def test_one_cluster_has_neither_a_minority_nor_fair_accuracy(make):
    found = by_key(make(["el"], node_cluster=[0, 0, 0]))
    assert [key for key in found if key.startswith("curve")] == ["curve-accuracy"]


def test_network_only_runs_have_completion_times_instead_of_curves(make):
    runs = make(["el"], (0, 1))
    for records, last in zip(runs, (3.0, 5.0), strict=True):
        summary_of(records)["timetable"] = [{"round": 1, "first_s": 1.0, "median_s": 2.0, "last_s": last, "nodes": 3}]
    assert by_key(runs)["timetable"].figure.series[0].values.tolist() == [4.0]


def test_differences_have_a_column_per_setting(make):
    found = by_key(make(["facade, heads: 2", "facade, heads: 3, tau: 1"]))
    differing = found["differences"].table
    assert differing.header == ["key", "heads=2", "heads=3, tau=1"]
    assert differing.rows == [["algorithm.heads", "2", "3"], ["algorithm.tau", "–", "1"]]
    assert ["data name", "cifar10"] in [
        [key.removeprefix("(made with) "), value] for key, value in found["common"].table.rows
    ]


def test_digests_are_no_differences(make_run):
    for seed in (0, 1):
        data = {"name": "cifar10", "fallback": False, "dealt": str(seed) * 64}
        path = make_run(str(seed), seed=seed, data=data)
    assert by_key(list(read_all([path.parent])))["differences"].table is None


def test_differences_have_a_row_per_setting_if_settings_outnumber_keys(make):
    table = by_key(make(["facade, heads: 2", "facade, heads: 3", "facade, heads: 4"]))["differences"].table
    assert table.header == ["setting", "algorithm.heads"]
    assert table.rows == [["heads=2", "2"], ["heads=3", "3"], ["heads=4", "4"]]


def test_runs_are_listed_with_their_commands(make):
    found = by_key(make(["el"], (0, 1)))
    assert [row[:4] for row in found["runs"].table.rows] == [
        ["seed-0", "el", "done", "0"],
        ["seed-1", "el", "done", "1"],
    ]
    assert found["commands"].code.splitlines()[:2] == ["# seed-0: el, seed 0", "ddlsim run 'a b.yaml' --seed 0"]


def test_bytes_are_a_bar_per_setting(make):
    figure = by_key(make(["el", "dac"], (0, 1)))["traffic"].figure
    assert figure.labels == ["el (2 seeds)", "dac (2 seeds)"] and figure.parts == ["payload", "header", "wasted"]
    assert figure.values.tolist() == [[1143, 60, 7]] * 2


def test_a_setting_with_the_name_of_a_script_is_text(make):
    text = printed(comparison_page(make([f"'el', mode: '{EVIL}'", "el, mode: x"])))
    assert text.count("<script") == 2 and EVIL not in text
    figures = json.loads(re.search(r'id="figures">(.*?)</script>', text, re.DOTALL)[1])
    assert EVIL in figures["curve-accuracy"]["series"][0]["label"]
    assert "&lt;script&gt;alert(1)" in text


def test_warnings_are_at_the_head_of_the_page(make):
    runs = make(["el"], labels=["peeks at test data"])
    page = comparison_page(runs, damaged=[RecordsDamaged("x/metrics.jsonl: torn")])
    assert page.loud == ["tiny el: peeks at test data", "left out: x/metrics.jsonl: torn"]


def test_tiles_name_the_best_settings_reaching_the_target_in_every_run(make):
    tiles = {tile.name: tile for tile in comparison_page(make(["el", "dac"], (0, 2)), Drawn(at=0.55)).tiles}
    assert tiles["Runs"].value == "4" and tiles["Highest accuracy (%)"].value == "70.00"
    # seed 0 meets 0.55 at 1/16 of the way from 603 to 1203 bytes, seed 2 (0.2 lower) at 13/16
    assert tiles["Lowest bytes to target (B)"].value == "866"


def test_tiles_skip_targets_missed_by_some_runs(make):
    page = comparison_page(make(["el", "dac"], (0, 2)), Drawn(at=0.65))
    assert [tile.name for tile in page.tiles] == ["Runs", "Highest accuracy (%)", "Highest fair acc (%)"]


def test_runs_of_different_metrics_are_one_clear_error(make):
    make(["el"])
    runs = make(["el"], (1,), task="regression", metric=MSE.plain())
    with pytest.raises(ScenarioError, match="compare: runs measured by accuracy and mse do not share an axis"):
        comparison_page(runs)


def test_no_readable_run_is_one_clear_error():
    with pytest.raises(ScenarioError, match="expected at least one run that can be read"):
        comparison_page([])


def test_python_writes_the_same_page(make, tmp_path):
    runs = make(["el", "dac"], (0, 1))
    path = ddlsim.compare([records.directory for records in runs]).html(tmp_path / "new" / "page.html")
    assert path.read_text() == printed(comparison_page(runs))
    with pytest.raises(ScenarioError, match=r"html: expected to write to .*page\.html"):
        ddlsim.compare([runs[0].directory]).html(path / "below.html")


def test_long_line_keeps_its_ends_and_extremes():
    values = np.zeros(900)
    values[[0, 333, 899]] = 1, 5, 2
    long = Series("long", values, x=[np.arange(900.0), np.arange(900.0) * 3])
    short = Series("short", np.ones(2), x=[np.arange(2.0), np.arange(2.0)])
    axes = [Axis("round", np.empty(0)), Axis("simulated time", np.empty(0), "seconds")]
    found, notes = encoded(Lines(axes, "accuracy", [long, short]), Budget())
    one, other = found["series"]
    kept = dict(zip(one["x"][1], one["values"], strict=True))
    assert {0: 1, 999: 5, 2697: 2}.items() <= kept.items() and other["x"] == [[0, 1], [0, 1]]
    assert notes == [
        f"Shown are {len(kept)} of 900 points of the longest line: evenly spaced ones, and the lowest and the highest "
        "of every line."
    ]
