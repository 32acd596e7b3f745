"""Merges of a run, and quality over the values of a setting."""

import json

import pytest

from ddlsim import runs
from ddlsim.foundation.errors import ScenarioError
from ddlsim.report.comparing.figures import save_comparison, sweep_panels
from ddlsim.report.reading import read
from ddlsim.report.sections.peers import merge_quality, merges
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
    """Two cells written like `ddlsim reproduce`: no node deluded, and three of four from round 2 (0-based) on."""
    folder = tmp_path_factory.mktemp("death")
    for cell, count in (("none", 0), ("three", 3)):
        oracle = f"algorithm={{name: oracle, sampled_peers: 2, deluded: {count}, deluded_cluster: 1, delusion_start: 2"
        scenario = load("tests/helpers/smoke.yaml", (*TINY, oracle + ", record_merges: true}"))
        runs.run(scenario, out=folder / cell / "seed-1")
    return folder


def test_merges_show_the_deluded_cluster(deluded):
    records = read(deluded / "three" / "seed-1")
    (section,) = merges(records)
    rounds, accuracy = merge_quality(records)
    before, after = section.figure.series
    assert section.figure.x[0].values.tolist() == rounds.tolist() == [1, 2, 3, 4]
    assert before.values == pytest.approx(accuracy[:, 1, 0]) and after.values == pytest.approx(accuracy[:, 1, 1])


def test_deluded_nodes_pull_their_cluster_down_when_merging(deluded):
    (_, none), (_, three) = (merge_quality(read(deluded / cell / "seed-1")) for cell in ("none", "three"))
    assert three[:2] == pytest.approx(none[:2])  # before the delusion
    assert three[2, 1, 1] < none[2, 1, 1] - 0.1


def changed(directory, tau, similarity, seed, accuracy):
    """Write a run with this last accuracy on all nodes and validation losses 3, 1, 2."""
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


def lines_of(runs, key):
    """Return the lines of a sweep's panels: label -> (x, y)."""
    panels = sweep_panels([read(run) for run in runs], key)
    return [{one.label: (one.x[0].tolist(), one.values.tolist()) for one in figure.series} for _, figure in panels]


def test_sweep_draws_a_line_per_remaining_setting_and_averages_seeds(sweep):
    quality, loss = lines_of(sweep, "algorithm.tau")
    assert quality == {
        "similarity=l2": ([10, 100], pytest.approx([0.6, 0.9])),
        "similarity=cosine": ([10], pytest.approx([0.3])),
    }
    assert loss["similarity=cosine"][1] == pytest.approx([2.0])  # the mean of 1, 2 and 3


def test_sweep_shows_the_lowest_losses_of_a_diverged_run(sweep):
    rows = (sweep[2] / "metrics.jsonl").read_text()
    for lost in ("3.0", "5.0"):
        rows = rows.replace(f'"value": {lost}', '"value": NaN')
    (sweep[2] / "metrics.jsonl").write_text(rows)
    _, loss = lines_of(sweep, "algorithm.tau")
    assert loss["similarity=l2"][1] == pytest.approx([2.0, (1 + 2 + 4) / 3])  # node 2: nan, nan and 4


def test_sweep_over_names_places_lines_side_by_side(sweep):
    ((_, figure), _) = sweep_panels([read(run) for run in sweep], "algorithm.similarity")
    assert figure.x[0].names == ["cosine", "l2"] and figure.style == "points" and not figure.x[0].log
    quality, _ = lines_of(sweep, "algorithm.similarity")
    places, values = quality["tau=10"]
    assert [round(place) for place in places] == [0, 1] and values == pytest.approx([0.3, 0.6])
    assert quality["tau=100"][0][0] != places[1]  # no mark covers another


def test_keys_of_a_part_do_not_separate_lines_of_a_sweep_over_its_name(sweep):
    text = "name: tiny\nseed: 1\nrounds: 4\nalgorithm: {name: el, degree: 3}\n"
    (sweep[3] / "scenario.yaml").write_text(text)
    quality, _ = lines_of((sweep[0], sweep[3]), "algorithm.name")
    ((_, values),) = quality.values()
    assert values == pytest.approx([0.5, 0.3])


def test_sweep_over_a_missing_key_is_an_error(sweep):
    with pytest.raises(ScenarioError, match=r"algorithm.nix: expected a number or a name to draw over, got None"):
        sweep_panels([read(run) for run in sweep], "algorithm.nix")


def test_a_sweep_is_saved(sweep, tmp_path):
    save_comparison([read(run) for run in sweep], tmp_path / "sweep.svg", "sweep", "algorithm.tau")
    assert (tmp_path / "sweep.svg").stat().st_size > 5000


def test_the_same_runs_give_the_same_file(make_run, tmp_path):
    run = read(make_run("a"))
    save_comparison([run], tmp_path / "one.svg")
    save_comparison([run], tmp_path / "two.svg")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_unknown_ending_is_an_error(make_run, tmp_path):
    with pytest.raises(ScenarioError, match=r"expected a file ending in \.png"):
        save_comparison([read(make_run("a"))], tmp_path / "figure.xyz")


def test_runs_without_evaluations_are_drawn_without_a_warning(make_run, tmp_path, recwarn):
    save_comparison([read(make_run("a", rows=[]))], tmp_path / "new" / "figure.svg")
    assert (tmp_path / "new" / "figure.svg").is_file()
    assert [str(warning.message) for warning in recwarn] == []


@pytest.mark.parametrize("place", ["file/figure.svg", "folder.svg"])
def test_unwritable_figure_is_one_error(make_run, tmp_path, place):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(ScenarioError, match=r"--plot: expected to write to .*, got: .*\. Name another path\."):
        save_comparison([read(make_run("a"))], tmp_path / place)
