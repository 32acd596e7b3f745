"""Merges of several runs side by side, and quality over a setting's values."""

import json

import pytest

from ddlsim import runs
from ddlsim.foundation.errors import ScenarioError
from ddlsim.report.figures import merge_quality
from ddlsim.report.panels import merge_panels, sweep_figure, title_of
from ddlsim.report.reading import read
from ddlsim.report.side_by_side import save_comparison
from ddlsim.scenario import load

pytest.importorskip("matplotlib")

TINY = (
    "rounds=4",
    "topology={name: complete}",
    "network={fidelity: ideal}",
    "shift={name: none}",
    "evaluation.every=4",
    "nodes={clusters: [4, 4]}",
    "partition={name: label_clusters, labels: [[0, 1], [2, 3]], samples_per_node: 40}",
    "validation={source: node, fraction: 0.25}",
)


@pytest.fixture(scope="module")
def deluded(tmp_path_factory):
    """Two cells as `ddlsim reproduce` leaves them: no node deluded, and three of four from round 2 (0-based) on."""
    folder = tmp_path_factory.mktemp("death")
    for cell, count in (("none", 0), ("three", 3)):
        oracle = f"algorithm={{name: oracle, sampled_peers: 2, deluded: {count}, deluded_cluster: 1, delusion_start: 2"
        scenario = load("scenarios/smoke.yaml", (*TINY, oracle + ", record_merges: true}"))
        runs.run(scenario, out=folder / cell / "seed-1")
    return folder


def test_each_run_has_a_panel_of_the_deluded_cluster(deluded):
    runs = [read(deluded / cell / "seed-1") for cell in ("three", "none")]
    panels = merge_panels(runs).axes
    assert [axes.get_title() for axes in panels] == ["three, seed 1", "none, seed 1"]
    for axes, records in zip(panels, runs, strict=True):
        rounds, accuracy = merge_quality(records)
        before, after = axes.lines[:2]
        assert before.get_xdata().tolist() == rounds.tolist() == [1, 2, 3, 4]
        assert before.get_ydata() == pytest.approx(100 * accuracy[:, 1, 0])
        assert after.get_ydata() == pytest.approx(100 * accuracy[:, 1, 1])
    # drawn between round 2, the last before the delusion (counted from 1), and round 3
    assert panels[0].lines[2].get_xdata() == [2.5, 2.5]
    assert len(panels[1].lines) == 2


def test_deluded_nodes_pull_their_cluster_down_when_merging(deluded):
    (_, none), (_, three) = (merge_quality(read(deluded / cell / "seed-1")) for cell in ("none", "three"))
    assert three[:2] == pytest.approx(none[:2])  # nobody is deluded yet
    assert three[2, 1, 1] < none[2, 1, 1] - 0.1


def test_run_without_recorded_merges_is_told(make_run):
    with pytest.raises(ScenarioError, match=r"its merges were not recorded.*record_merges=true"):
        merge_panels([read(make_run())])


def test_run_that_is_no_seed_is_named_by_its_directory(make_run):
    assert title_of(read(make_run("alone"))) == "alone"


def changed(directory, tau, similarity, seed, accuracy):
    """A run by hand whose last evaluation is this accuracy on all nodes, with validation losses 3, 1, 2 on each."""
    text = f"name: tiny\nseed: {seed}\nrounds: 4\nalgorithm: {{name: dac, tau: {tau}, similarity: {similarity}}}\n"
    (directory / "scenario.yaml").write_text(text)
    rows = [(4, node, "accuracy", accuracy) for node in range(3)]
    losses = ((1, 3.0), (2, 1.0), (3, 2.0))
    rows += [(r, node, "validation_loss", loss + node) for node in range(3) for r, loss in losses]
    keys = ("round", "node", "name", "value")
    lines = [json.dumps({"time_s": 1.0, **dict(zip(keys, row, strict=True))}) for row in rows]
    (directory / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    return directory


@pytest.fixture
def sweep(make_run):
    settings = [(10, "l2", 1, 0.5), (10, "l2", 2, 0.7), (100, "l2", 1, 0.9), (10, "cosine", 1, 0.3)]
    return [changed(make_run(f"run{i}"), *setting) for i, setting in enumerate(settings)]


def test_sweep_draws_a_line_per_other_setting_and_averages_seeds(sweep):
    quality, loss = sweep_figure([read(run) for run in sweep], "algorithm.tau").axes
    lines = {bars.get_label(): bars.lines[0] for bars in quality.containers}
    assert set(lines) == {"similarity=l2", "similarity=cosine"}
    assert lines["similarity=l2"].get_xdata() == pytest.approx([10, 100])
    assert lines["similarity=l2"].get_ydata() == pytest.approx([60, 90])
    assert lines["similarity=cosine"].get_ydata() == pytest.approx([30])
    assert loss.containers[0].lines[0].get_ydata() == pytest.approx([2.0])  # the mean of 1, 2 and 3


def test_sweep_shows_the_lowest_losses_also_where_a_run_has_diverged(sweep):
    rows = (sweep[2] / "metrics.jsonl").read_text()
    for lost in ("3.0", "5.0"):
        rows = rows.replace(f'"value": {lost}', '"value": NaN')
    (sweep[2] / "metrics.jsonl").write_text(rows)
    _, loss = sweep_figure([read(run) for run in sweep], "algorithm.tau").axes
    lines = {bars.get_label(): bars.lines[0] for bars in loss.containers}
    assert lines["similarity=l2"].get_ydata() == pytest.approx([2.0, (1 + 2 + 4) / 3])  # node 2: nan, nan and 4


def test_sweep_over_names_puts_them_side_by_side(sweep):
    quality, _ = sweep_figure([read(run) for run in sweep], "algorithm.similarity").axes
    assert [label.get_text() for label in quality.get_xticklabels()] == ["cosine", "l2"]
    lines = {bars.get_label(): bars.lines[0] for bars in quality.containers}
    assert lines["tau=10"].get_xdata().astype(float).round().tolist() == [0, 1]
    assert lines["tau=100"].get_xdata()[0] != lines["tau=10"].get_xdata()[1]  # none hides another
    assert lines["tau=10"].get_ydata() == pytest.approx([30, 60])
    assert quality.get_xscale() == "linear"


def test_keys_of_a_part_do_not_tell_lines_apart_where_its_name_is_drawn_over(sweep):
    text = "name: tiny\nseed: 1\nrounds: 4\nalgorithm: {name: el, degree: 3}\n"
    (sweep[3] / "scenario.yaml").write_text(text)
    quality, _ = sweep_figure([read(run) for run in (sweep[0], sweep[3])], "algorithm.name").axes
    (bars,) = quality.containers
    assert bars.lines[0].get_ydata() == pytest.approx([50, 30])


def test_sweep_over_what_is_neither_number_nor_name_is_told(sweep):
    with pytest.raises(ScenarioError, match=r"algorithm.nix: expected a number or a name to draw over, got None"):
        sweep_figure([read(run) for run in sweep], "algorithm.nix")


def test_all_figures_are_saved(deluded, sweep, tmp_path):
    save_comparison([deluded], tmp_path / "merges.png", "merges")
    save_comparison(sweep, tmp_path / "sweep.svg", "sweep", "algorithm.tau")
    assert (tmp_path / "merges.png").stat().st_size > 5000 and (tmp_path / "sweep.svg").stat().st_size > 5000
