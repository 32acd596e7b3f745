import pytest

from ddlsim.foundation.errors import ScenarioError
from ddlsim.report.reading import read
from ddlsim.report.side_by_side import comparison_figure, save_comparison

pytest.importorskip("matplotlib")


def test_largest_cluster_is_solid_and_the_worst_other_dashed(make_run):
    left, _ = comparison_figure([read(make_run("a")), read(make_run("b", seed=1))]).axes
    assert [line.get_linestyle() for line in left.lines] == ["-", "--", "-", "--"]
    assert [line.get_ydata().tolist() for line in left.lines[:2]] == [[60.0, 90.0], [40.0, 60.0]]
    assert left.lines[0].get_xdata().tolist() == pytest.approx([22, 42])


def test_a_cluster_that_has_no_honest_node_is_not_the_worst_one(make_run):
    left, _ = comparison_figure([read(make_run("a", attacks=[{"name": "sign_flip", "nodes": [2]}]))]).axes
    assert [(line.get_linestyle(), line.get_ydata().tolist()) for line in left.lines] == [("-", [60.0, 90.0])]


def test_bars_are_bytes_by_cause_and_together_all_that_was_sent(make_run):
    _, right = comparison_figure([read(make_run("a"))]).axes
    assert [bar.get_width() * 1e3 for bar in right.patches] == pytest.approx([1143, 60, 7])
    assert [bar.get_x() * 1e3 for bar in right.patches] == pytest.approx([0, 1143, 1203])
    assert [label.get_text() for label in right.get_yticklabels()] == ["a"]
    assert right.get_xlabel().startswith("sent by all nodes (kB)")


def test_bytes_of_a_run_that_is_under_way_are_one_pale_bar(make_run):
    _, right = comparison_figure([read(make_run("a", traffic=None, status="running")), read(make_run("b"))]).axes
    (pale, *_) = right.patches
    assert pale.get_alpha() == 0.4 and pale.get_width() > 0 and "pale: under way" in right.get_xlabel()


def test_the_same_runs_give_the_same_file(make_run, tmp_path):
    run = make_run("a")
    save_comparison([run], tmp_path / "one.svg")
    save_comparison([run], tmp_path / "two.svg")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_unknown_ending_is_an_error(make_run, tmp_path):
    with pytest.raises(ScenarioError, match=r"expected a file ending in \.png"):
        save_comparison([make_run("a")], tmp_path / "figure.xyz")


@pytest.mark.parametrize("figure", ["lines", "quality"])
def test_runs_without_evaluations_are_drawn_without_a_warning(make_run, tmp_path, recwarn, figure):
    save_comparison([make_run("a", rows=[])], tmp_path / "new" / "figure.svg", figure)
    assert (tmp_path / "new" / "figure.svg").is_file()
    assert [str(warning.message) for warning in recwarn] == []


@pytest.mark.parametrize("place", ["file/figure.svg", "folder.svg"])
def test_a_figure_that_cannot_be_written_is_one_error(make_run, tmp_path, place):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(ScenarioError, match=r"--plot: expected to write to .*, got: .*\. Name another path\."):
        save_comparison([make_run("a")], tmp_path / place)
