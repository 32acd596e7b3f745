"""Message contents and the samples of nodes, in text and figures: from files by hand and from a tiny run."""

import json

import numpy as np
import pytest

from ddlsim import runs
from ddlsim.report.reading import read
from ddlsim.report.record_files import read_contents, read_samples
from ddlsim.report.run_report import report, save_plots
from ddlsim.report.sections.peers import samples
from ddlsim.report.sections.traffic import contents
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


def test_report_prints_sums_and_means_over_rounds_with_contents(run):
    lines = report([run]).splitlines()
    found = [line.split() for line in lines if line.startswith(("core", "header"))]
    assert ["core", "6", "kB", "3", "kB"] in found and ["header", "80", "B", "27", "B"] in found


def test_contents_have_a_line_each_with_gaps(run):
    core, header = (one.values for one in [*contents(read(run))][1].figure.series)
    assert np.isnan(core[1]) and core[[0, 2]].tolist() == [4000, 2000]
    assert header.tolist() == [40, 20, 20]


def test_samples_are_ordered_by_cluster_and_zeros_are_empty(run):
    (section,) = samples(read(run))
    values = section.figure.frames[0].values
    assert np.array_equal(values, [[np.nan, 7], [5, np.nan], [2, 2]], equal_nan=True)  # node 1 is cluster 0


def test_run_without_these_files_has_no_such_figures(make_run):
    directory = make_run()
    assert read_contents(directory) is None and read_samples(directory) is None


SHARDS = ("partition={name: shards, shards_per_node: 2}", "rounds=2", "learning=real", "shift={name: none}")


def test_tiny_run_records_both(tmp_path):
    scenario = load("tests/helpers/smoke.yaml", (*SHARDS, "algorithm={name: facade, heads: 2}"))
    runs.run(scenario, out=tmp_path / "run")
    counts = read_samples(tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert counts.shape == (8, 10)
    assert counts.sum() == manifest["data"]["per_node"]["total"]
    assert (counts > 0).sum(1).max() <= 4  # two shards, each of at most two neighboring classes
    rounds, num_bytes = read_contents(tmp_path / "run")
    assert rounds.tolist()[:2] == [1, 2] and {"core", "heads", "header"} <= set(num_bytes)


def test_large_networks_record_no_samples_of_nodes(tmp_path):
    runs.run(load("tests/helpers/smoke.yaml", (*SHARDS, "records.detail=total")), out=tmp_path / "run")
    assert read_samples(tmp_path / "run") is None and read_contents(tmp_path / "run") is not None


@pytest.mark.full
def test_regression_records_sizes_alone(tmp_path):
    settings = (
        "evaluation={every: 1, target_accuracy: null}",
        "partition={name: quantity_skew, alpha: 1.0}",
        "rounds=1",
        "validation.source=own",
        "algorithm={name: dpsgd}",
        "data={name: synthetic_regression, test_samples: 20}",
        "model={name: linear}",
        "shift={name: none}",
    )
    runs.run(load("tests/helpers/smoke.yaml", settings), out=tmp_path / "run")
    assert read_samples(tmp_path / "run").shape == (8, 1)
    pytest.importorskip("matplotlib")
    assert "samples" in {path.stem for path in save_plots(tmp_path / "run", tmp_path / "plots")}
