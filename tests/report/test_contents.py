"""What messages held, in text and figure, and who holds which samples: from files by hand and from a tiny run."""

import json

import numpy as np
import pytest

from ddlsim import runs
from ddlsim.report import report
from ddlsim.report.payload_table import contents_figure, read_contents
from ddlsim.report.plots import class_counts, distribution_figure, save_plots
from ddlsim.report.reading import read
from ddlsim.scenario import load

ROWS = [(1, "core", 4, 4000), (1, "header", 4, 40), (2, "header", 2, 20), (3, "core", 2, 2000), (3, "header", 2, 20)]
SAMPLES = [[5, 0], [0, 7], [2, 2]]


@pytest.fixture
def run(make_run):
    directory = make_run(node_cluster=[1, 0, 1])
    rows = [dict(zip(("round", "content", "messages", "bytes"), row, strict=True)) for row in ROWS]
    (directory / "contents.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = [{"node": n, "cluster": 0, "train": sum(c), "classes": c} for n, c in enumerate(SAMPLES)]
    (directory / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in own))
    return directory


def test_contents_by_round_the_largest_first(run):
    rounds, num_bytes = read_contents(run)
    assert rounds.tolist() == [1, 2, 3]
    assert {name: values.tolist() for name, values in num_bytes.items()} == {
        "core": [4000, 0, 2000],
        "header": [40, 20, 20],
    }
    assert list(num_bytes) == ["core", "header"]


def test_report_prints_sums_and_means_of_rounds_that_have_some(run):
    lines = report([run]).splitlines()
    found = [line.split() for line in lines if line.startswith(("core", "header"))]
    assert ["core", "6", "kB", "3", "kB"] in found and ["header", "80", "B", "27", "B"] in found


def test_contents_figure_draws_a_line_per_content_with_gaps(run):
    pytest.importorskip("matplotlib")
    (axes,) = contents_figure(read(run), *read_contents(run)).axes
    core, header = (line.get_ydata() for line in axes.lines)
    assert np.isnan(core[1]) and core[[0, 2]] == pytest.approx([4e-3, 2e-3])
    assert header == pytest.approx([40e-6, 20e-6, 20e-6])


def test_distribution_figure_orders_nodes_by_cluster_and_leaves_zeros_white(run):
    pytest.importorskip("matplotlib")
    image = distribution_figure(read(run), class_counts(run)).axes[0].images[0].get_array()
    assert image.tolist() == [[None, 7], [5, None], [2, 2]]  # node 1 is cluster 0


def test_run_without_these_files_has_no_such_figures(make_run):
    directory = make_run()
    assert read_contents(directory) is None and class_counts(directory) is None


SHARDS = ("partition={name: shards, shards_per_node: 2}", "rounds=2", "learning=real", "shift={name: none}")


def test_tiny_run_records_both(tmp_path):
    scenario = load("scenarios/smoke.yaml", (*SHARDS, "algorithm={name: facade, heads: 2}"))
    runs.run(scenario, out=tmp_path / "run")
    counts = class_counts(tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert counts.shape == (8, 10)
    assert counts.sum() == manifest["data"]["per_node"]["total"]
    assert (counts > 0).sum(1).max() <= 4  # two shards, each of at most two neighboring classes
    rounds, num_bytes = read_contents(tmp_path / "run")
    assert rounds.tolist()[:2] == [1, 2] and {"core", "heads", "header"} <= set(num_bytes)


def test_large_networks_record_no_samples_of_nodes(tmp_path):
    runs.run(load("scenarios/smoke.yaml", (*SHARDS, "records.detail=total")), out=tmp_path / "run")
    assert class_counts(tmp_path / "run") is None and read_contents(tmp_path / "run") is not None


def test_regression_records_sizes_alone(tmp_path):
    settings = (
        "evaluation={every: 1, target_accuracy: null}",
        "partition={name: quantity_skew, alpha: 1.0}",
        "rounds=1",
        "validation.source=own",
        "algorithm={name: dpsgd}",
        "data={name: synthetic_regression}",
        "model={name: linear}",
        "shift={name: none}",
    )
    runs.run(load("scenarios/smoke.yaml", settings), out=tmp_path / "run")
    assert class_counts(tmp_path / "run").shape == (8, 1)
    pytest.importorskip("matplotlib")
    assert "samples" in {path.stem for path in save_plots(tmp_path / "run", tmp_path / "plots")}
