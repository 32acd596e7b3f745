"""Figures of sections in matplotlib, and the files of a run's figures."""

import sys

import numpy as np
import pytest

from ddlsim.foundation.errors import DataMissing, ScenarioError
from ddlsim.report.figures import colors, draw
from ddlsim.report.run_report import save_plots
from ddlsim.report.section import Axis, Bars, Frame, Heat, Lines, Mark, Series


def test_missing_matplotlib_names_the_extra(make_run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(DataMissing, match=r"ddlsim\[plot\]"):
        save_plots(make_run(), tmp_path / "figures")


def test_curves_have_a_panel_per_axis_in_readable_units():
    pytest.importorskip("matplotlib")
    axes = [Axis("round", np.array([1, 2])), Axis("bytes sent", np.array([2e6, 4e6]), "bytes")]
    series = [Series("all", np.array([0.5, 0.6]), 0, np.array([0.4, 0.6]), np.array([0.5, 0.8]))]
    rounds, sent = draw([("Title", Lines(axes, "accuracy", series, "percent", [Mark("target", 0.55)]))]).axes
    line, mark = sent.lines
    assert line.get_xdata().tolist() == [2, 4] and line.get_ydata() == pytest.approx([50, 60])
    assert (sent.get_xlabel(), sent.get_ylabel(), sent.get_title()) == ("bytes sent (MB)", "accuracy (%)", "Title")
    assert rounds.get_xlabel() == "round" and mark.get_ydata()[0] == pytest.approx(55)
    band = sent.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((40, 80))


def test_heat_map_shows_cells_borders_and_four_pictures_of_a_slider():
    pytest.importorskip("matplotlib")
    frames = [Frame(str(number), np.array([[np.nan, 1.0], [2.0, number]]), "count") for number in range(10)]
    heat = Heat(frames, ["0", "1"], ["0", "1"], "sender", "receiver", "round", "slider", [1], square=True)
    panels = [axes for axes in draw([("Title", heat)]).axes if axes.images]
    assert [axes.get_title() for axes in panels] == ["round 0", "round 3", "round 6", "round 9"]
    assert panels[3].images[0].get_array().tolist() == [[None, 1], [2, 9]]
    assert {axes.images[0].get_clim() for axes in panels} == {(0, 9)}
    assert panels[0].lines[0].get_ydata()[0] == 0.5


def test_categories_have_the_colors_of_the_palette():
    pytest.importorskip("matplotlib")
    heat = Heat([Frame("head", np.array([[0.0, 1.0]]))], ["0"], ["1", "2"], "node", "round", categories=["a", "b"])
    panel, bar = draw([("Heads", heat)]).axes
    assert panel.images[0].cmap.colors[:2] == colors(2)[:2]
    assert [label.get_text() for label in bar.get_yticklabels()] == ["a", "b"]


def test_bars_are_stacked_parts():
    pytest.importorskip("matplotlib")
    (axes,) = draw([("Bytes", Bars(["a"], ["payload", "wasted"], np.array([[1500.0, 500.0]])))]).axes
    assert [(bar.get_x(), bar.get_width()) for bar in axes.patches] == [(0, 1.5), (1.5, 0.5)]
    assert axes.get_xlabel() == "kB"


@pytest.mark.parametrize("count", [1, 7, 8, 30])
def test_colors_do_not_repeat(count):
    pytest.importorskip("matplotlib")
    assert len(set(colors(count)[:count])) == count


def test_each_figure_of_a_run_is_a_file_named_by_its_section(make_run, tmp_path):
    pytest.importorskip("matplotlib")
    paths = save_plots(make_run(), tmp_path / "figures")
    assert [path.name for path in paths] == [
        "quality.png",
        "fairness.png",
        "nodes.png",
        "pairs.png",
        "causes.png",
        "heads.png",
        "agreement.png",
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_unwritable_folder_is_one_error(make_run, tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "file").write_text("")
    with pytest.raises(ScenarioError, match=r"--plots: expected to write to .*file, got: .*\. Name another path\."):
        save_plots(make_run(), tmp_path / "file")


def test_run_with_only_infinite_errors_is_drawn(make_run, tmp_path):
    pytest.importorskip("matplotlib")
    rows = [
        {"time_s": 10.0, "node": node, "round": completed, "name": "mse", "value": float("inf")}
        for completed in (2, 4)
        for node in range(3)
    ]
    run = make_run(rows=rows, metric={"name": "mse", "higher_is_better": False})
    assert "quality.png" in {path.name for path in save_plots(run, tmp_path / "figures")}
