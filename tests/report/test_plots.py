import sys

import pytest

from ddlsim.foundation.errors import DataMissing, ScenarioError
from ddlsim.report.panels import sweep_figure
from ddlsim.report.plots import communication_figure, heads_figure, quality_figure, save_plots, spread_figure
from ddlsim.report.reading import read


def test_missing_matplotlib_names_the_extra(make_run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(DataMissing, match=r"ddlsim\[plot\]"):
        save_plots(make_run(), tmp_path / "figures")


@pytest.fixture
def records(make_run):
    pytest.importorskip("matplotlib")
    return read(make_run())


@pytest.mark.parametrize(("axis", "x"), [("rounds", [2, 4]), ("time", [22, 42]), ("bytes", [0.603, 1.203])])
def test_quality_figure_draws_a_line_per_cluster_and_one_for_all(records, axis, x):
    (axes,) = quality_figure(records, axis).axes
    assert [line.get_ydata().tolist() for line in axes.lines[:2]] == [[60.0, 90.0], [40.0, 60.0]]
    assert len(axes.lines) == 3 and all(line.get_marker() == "o" for line in axes.lines)
    assert axes.lines[0].get_xdata() == pytest.approx(x)


def test_communication_figure_orders_nodes_by_cluster(make_run):
    pytest.importorskip("matplotlib")
    axes = communication_figure(read(make_run(node_cluster=[1, 0, 0]))).axes[0]
    # Order 1, 2, 0: node 1 sends 408 bytes to node 2, 7 of them wasted.
    assert (axes.images[0].get_array()[0] * 1e6).tolist() == pytest.approx([0, 408, 0])


def test_heads_figure_shows_every_round_of_every_node(records):
    axes = heads_figure(records).axes[0]
    assert axes.collections[0].get_array().tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]]


def test_save_plots_writes_what_the_records_allow(make_run, tmp_path):
    pytest.importorskip("matplotlib")
    paths = save_plots(make_run(rows=make_run.rows(heads={})), tmp_path / "figures", "svg")
    assert [path.name for path in paths] == [
        "accuracy_rounds.svg",
        "accuracy_time.svg",
        "accuracy_bytes.svg",
        "spread.svg",
        "communication.svg",
    ]
    assert all(path.read_text().lstrip().startswith("<?xml") for path in paths)


def test_spread_figure_draws_every_node_and_each_cluster_s_mean_and_deviation(make_run):
    pytest.importorskip("matplotlib")
    records = read(make_run(rows=make_run.rows({2: [(3, 3), (3, 5), (2, 2)], 4: [(4, 5), (5, 4), (3, 3)]})))
    (axes,) = spread_figure(records).axes
    assert [line.get_ydata().tolist() for line in axes.lines] == [[60, 90], [80, 90], [70, 90], [40, 60], [40, 60]]
    low_and_high = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (low_and_high.min(), low_and_high.max()) == pytest.approx((60, 90))  # 70 - 10 in round 2, 90 - 0 in round 4


def test_figures_that_cannot_be_written_are_one_error(make_run, tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "file").write_text("")
    with pytest.raises(ScenarioError, match=r"--plots: expected to write to .*file, got: .*\. Name another path\."):
        save_plots(make_run(), tmp_path / "file")


def test_figures_of_a_run_whose_errors_are_all_infinite_are_drawn(make_run, tmp_path):
    pytest.importorskip("matplotlib")
    mse = {"name": "mse", "higher_is_better": False}
    rows = [
        {"time_s": 10.0, "node": node, "round": completed, "name": "mse", "value": float("inf")}
        for completed in (2, 4)
        for node in range(3)
    ]
    run = make_run(rows=rows, metric=mse)
    names = {path.stem for path in save_plots(run, tmp_path / "figures")}
    assert {"mse_rounds", "mse_time", "mse_bytes", "spread"} <= names
    sweep_figure([read(run)], "algorithm.heads").savefig(tmp_path / "sweep.png")
