"""Tables for papers and terminals, significant winners, bars of costs, and bands, with expected values by hand."""

from dataclasses import replace

import numpy as np
import pytest

from ddlsim.foundation.errors import ScenarioError
from ddlsim.report.comparing.cells import columns_of
from ddlsim.report.comparing.curves import Drawn, Target
from ddlsim.report.comparing.groups import group
from ddlsim.report.comparing.rows import compared
from ddlsim.report.comparing.sections import chart, costs_to_target
from ddlsim.report.comparing.tables import table_of
from ddlsim.report.html.page import tiles
from ddlsim.report.summary import read_all
from ddlsim.report.text import columns


@pytest.fixture
def make(make_run):
    """Return runs of EL and DAC with these seeds and changes of accuracy."""

    def made(el=(0.0, 0.1), dac=(0.0, 0.1), **manifest):
        for name, changes in (("el", el), ("dac", dac)):
            for seed, change in enumerate(changes):
                rows = make_run.rows()
                rows = [
                    row | {"value": row["value"] + change * (row["name"] == "accuracy")}
                    for row in rows
                    if row["name"] != "confusion"
                ]
                path = make_run(f"{name}/{seed}", seed=seed, rows=rows, algorithm=name, **manifest)
                (path / "scenario.yaml").write_text(f"name: tiny\nseed: {seed}\nalgorithm: {{name: {name}}}\n")
        return list(read_all([path.parents[1]]))

    return made


CHOSEN = {"columns": ["accuracy", "target_bytes", "target_time"], "units": ["kB", "s"]}


def body(text):
    lines = text.splitlines()
    return [line.removesuffix(r" \\") for line in lines[lines.index(r"\midrule") + 1 : lines.index(r"\bottomrule")]]


def test_latex_has_chosen_columns_in_fixed_units_with_the_best_in_bold(make):
    # From 16/30 (603 bytes, 22 s) to 24/30 (1203, 42): 0.65 at 7/16, 865.5 and 30.75.
    # 0.1 better at 1/16, 640.5 and 23.25.
    rows = compared(make(dac=(0.0, 0.0)), None, Target(0.65))
    text = table_of(rows, "latex", **CHOSEN)
    assert r"setting & accuracy (\%) & bytes to target (kB) & time to target (s)" in text
    assert body(text) == [
        r"dac & $80.00 \pm 0.00$ & $0.866 \pm 0.000$ & $30.8 \pm 0.0$",
        r"el & $\mathbf{85.00 \pm 5.00}$ & $\mathbf{0.753 \pm 0.113}$ & $\mathbf{27.0 \pm 3.8}$",
    ]


def test_siunitx_has_numbers_as_its_commands(make):
    rows = compared(make(dac=(0.0, -0.3)), None, Target(0.65))
    assert body(table_of(rows, "siunitx", **CHOSEN)) == [
        r"dac & \num{65.00 +- 15.00} & \num{0.866} (1/2) & \num{30.8} (1/2)",
        r"el & {\bfseries \num{85.00 +- 5.00}} & \num{0.753 +- 0.113} & \num{27.0 +- 3.8}",
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"columns": ["accuracy", "nix"]}, r"--columns nix: unknown column\. Known: scenario, .*, accuracy, cluster_0"),
        ({"units": ["GiB"]}, r"--units GiB: unknown unit\. Known: B, kB, MB, GB"),
        ({"units": ["GB"], "format": "csv"}, "csv has all numbers in base units. Omit --columns and --units"),
    ],
)
def test_unknown_columns_and_units_are_errors_that_list_the_known(make, changes, expected):
    with pytest.raises(ScenarioError, match=expected):
        table_of(compared(make()), **changes)


def test_wide_table_is_split_into_blocks_with_the_first_columns():
    text = columns(["name", "a", "long title", "b"], [["x", "1", "2", "3"], ["y", "10", "20", "30"]], 1, width=18)
    assert text.splitlines() == [
        *("name   a", "----  --", "x      1", "y     10", ""),
        *("name  long title", "----  ----------", "x              2", "y             20", ""),
        *("name   b", "----  --", "x      3", "y     30"),
    ]


def test_sampling_of_all_runs_is_one_warning(make):
    data = {"name": "cifar10", "fallback": False, "tested": [[401, 1000]]}
    (line,) = (line for line in table_of(compared(make(data=data))).splitlines() if "tested" in line)
    # Wilson's interval with 401 * 999 / 599 samples: the worst node has 60 % with seed 0, 70 % with seed 1.
    assert line == "!! 4 runs: tested on 401 of 1,000 samples; ±3.6 to 3.8 points per node (95 % confidence)"


def test_warning_of_several_settings_is_one_line(make):
    text = table_of(compared(make(labels=["peeks at test data"])))
    assert text.count("peeks") == 1 and "!! all settings: peeks at test data" in text


@pytest.mark.parametrize(
    ("el", "dac", "significant"),
    [
        ((0.1, 0.1, 0.11), (0.0, 0.0, 0.01), True),
        ((0.0, 0.05, 0.1), (0.0, 0.0, 0.01), False),
        ((0.1, 0.11), (0, 0), False),
    ],
)
def test_winner_requires_significance_by_welchs_test(make, el, dac, significant):
    rows = compared(make(el, dac))
    best, found = columns_of(rows)["accuracy"].winner(rows)
    assert (best.setting, found) == ("el", significant)
    if len(el) > 2:
        stats = pytest.importorskip("scipy.stats")
        assert (stats.ttest_ind(el, dac, equal_var=False).pvalue < 0.05) == significant
    tile = next(tile for tile in tiles(rows) if tile.name == "Highest accuracy (%)")
    assert tile.remark == ("el" if significant else "no winner: not significant (Welch's t, 5 %)")


def test_equal_costs_over_seeds_differ_only_by_their_means(make):
    rows = compared(make((0.0,) * 3, (0.0,) * 3), None, Target(0.65))
    assert not columns_of(rows)["target_bytes"].winner(rows)[1]
    slower = replace(rows[1], numbers=rows[1].numbers | {"target_bytes": {"mean": 900.0, "std": 0.0}})
    assert columns_of(rows)["target_bytes"].winner([rows[0], slower]) == (rows[0], True)


def test_costs_to_the_target_are_bars_with_deviations(make):
    time, sent, rounds = costs_to_target(compared(make(dac=(-0.3, -0.3)), None, Target(0.65)))
    assert (time.title, sent.title, rounds.title) == ("Time to target", "Bytes to target", "Rounds to target")
    assert sent.figure.labels == ["dac, not reached", "el"]
    assert sent.figure.values[1] == pytest.approx([753]) and np.isnan(sent.figure.values[0]).all()
    assert sent.figure.spread[1] == pytest.approx(112.5)


def test_bands_end_at_100_percent_and_need_three_seeds(make):
    runs = make((0.0, 0.1, 0.2), (0.0, 0.1))
    figure = chart(group(runs), "accuracy", Drawn(band="ci")).figure
    dac, el = figure.series
    assert dac.low is None and el.high == pytest.approx([16 / 30 + 0.1 + 4.303 * 0.1 / 3**0.5, 1.0])
    assert figure.note == (
        "Simulated time and bytes are means over seeds at equal rounds. No confidence band of dac: fewer than 3 seeds."
    )


def test_page_tables_break_keys_at_dots():
    from ddlsim.report.html.page import html_table
    from ddlsim.report.section import Table

    text = html_table(Table(["key", "value"], [["algorithm.name", "0.5"]], best=[(0, 1)]))
    assert "algorithm.<wbr>name" in text and "<b>0.5</b>" in text
