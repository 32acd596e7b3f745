"""Changed input files: a run is neither resumed nor reused."""

import json

import numpy as np
import pytest

import ddlsim
from ddlsim import runs
from ddlsim.foundation.errors import ScenarioError
from ddlsim.runs.manifest import file_digests
from ddlsim.runs.sweeps.points import Point
from ddlsim.scenario import from_mapping
from ddlsim.scenario.model import to_plain


class Stopped(ddlsim.Callback):
    def on_round(self, completed):
        if completed.round == 1:
            raise ddlsim.StopRun("here")


@pytest.fixture
def given(tmp_path):
    """Return a scenario with arrays and a partition in files, and a function that rewrites them from a seed."""
    partition, data = tmp_path / "parts.json", tmp_path / "mine.npz"

    def write(dealt_from=0, drawn_from=0):
        order = np.random.default_rng(dealt_from).permutation(40).tolist()
        partition.write_text(json.dumps([order[:10], order[10:20]]))
        rng = np.random.default_rng(drawn_from)
        x, y = rng.normal(size=(60, 3)), rng.integers(0, 2, 60)
        np.savez(data, x_train=x[:40], y_train=y[:40], x_test=x[40:], y_test=y[40:])

    write()
    scenario = {
        "rounds": 2,
        "nodes": {"clusters": [2]},
        "algorithm": {"name": "dpsgd"},
        "topology": {"name": "complete"},
        "model": {"name": "mlp", "hidden": [3]},
        "data": {"name": "npz", "path": str(data)},
        "partition": {"name": "file", "path": str(partition)},
        "training": {"learning_rate": 0.1, "batch_size": 5, "local_steps": 1},
        "evaluation": {"every": 1},
    }
    return from_mapping(scenario), write


OTHERS = [({"dealt_from": 1}, r"partition: samples of each node"), ({"drawn_from": 1}, r"data: npz")]


@pytest.mark.parametrize(("change", "named"), OTHERS)
def test_finished_run_is_not_reused_for_changed_inputs(given, tmp_path, change, named):
    scenario, write = given
    first = runs.run(scenario, out=tmp_path / "run")
    point = Point("", tmp_path / "run", scenario)
    assert runs.run(scenario, out=tmp_path / "run") == point.summary() == first
    write(**change)
    assert point.summary() is None
    with pytest.raises(ScenarioError, match=named + r" has changed since the run: its SHA-256 was .*--force"):
        runs.run(scenario, out=tmp_path / "run")
    assert runs.run(scenario, out=tmp_path / "run", force=True)["status"] == "done"
    assert point.summary() is not None


@pytest.mark.parametrize(("change", "named"), OTHERS)
def test_run_does_not_resume_with_changed_inputs(given, tmp_path, change, named):
    scenario, write = given
    runs.run(scenario, out=tmp_path / "run", callbacks=[Stopped()])
    write(**change)
    with pytest.raises(ScenarioError, match=named + r" has changed since the run"):
        runs.resume(tmp_path / "run")
    write()
    assert runs.resume(tmp_path / "run")["status"] == "done"


def test_a_file_of_the_same_contents_but_other_bytes_is_the_same_partition(given, tmp_path):
    scenario, _ = given
    first = runs.run(scenario, out=tmp_path / "run")
    path = tmp_path / "parts.json"
    path.write_text(json.dumps(json.loads(path.read_text()), indent=1))
    assert runs.run(scenario, out=tmp_path / "run") == first


def test_network_only_run_is_not_reused_for_a_changed_topology(given, tmp_path):
    edges = tmp_path / "net.txt"
    edges.write_text("0 1\n")
    keys = {"learning": "none", "partition": {"name": "random"}, "topology": {"name": "file", "path": str(edges)}}
    scenario = from_mapping(to_plain(given[0]) | keys)
    runs.run(scenario, out=tmp_path / "net")
    edges.write_text("0 1\n# the same\n")
    with pytest.raises(ScenarioError, match=r"topology.path: .*net.txt has changed since the run"):
        runs.run(scenario, out=tmp_path / "net")


def test_run_is_not_reused_for_changed_traces(given, tmp_path):
    up, down = tmp_path / "up", tmp_path / "down"
    for trace in (up, down):
        trace.write_text("1\n2\n")
    links = {"name": "mahimahi", "uplinks": [str(up)], "downlinks": [str(down)]}
    keys = {"learning": "none", "partition": {"name": "random"}, "network": {"links": links}}
    scenario = from_mapping(to_plain(given[0]) | keys)
    runs.run(scenario, out=tmp_path / "net")
    down.write_text("1\n20\n")
    with pytest.raises(ScenarioError, match=r"network.links.downlinks: .*down has changed since the run"):
        runs.run(scenario, out=tmp_path / "net")


def test_changes_of_links_are_inputs(given, tmp_path):
    table, changes = tmp_path / "links.csv", tmp_path / "changes.csv"
    table.write_text("node,uplink_mbps,downlink_mbps,latency_ms\n0,1,1,1\n1,1,1,1\n")
    changes.write_text("node,time_s,uplink_mbps,downlink_mbps\n0,0.01,2,2\n")
    links = {"name": "table", "path": str(table), "changes": str(changes)}
    keys = {"learning": "none", "partition": {"name": "random"}, "network": {"links": links}}
    scenario = from_mapping(to_plain(given[0]) | keys)
    runs.run(scenario, out=tmp_path / "net")
    changes.write_text("node,time_s,uplink_mbps,downlink_mbps\n0,0.01,0.1,0.1\n")
    with pytest.raises(ScenarioError, match=r"network.links.changes: .*changes.csv has changed since the run"):
        runs.run(scenario, out=tmp_path / "net")


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("listed", [False, True])
def test_initial_weights_are_inputs(given, tmp_path, folder, listed):
    place = tmp_path / "weights"
    if folder:
        place.mkdir()
    held = place / "model.safetensors" if folder else place
    held.write_bytes(b"one")
    model = {"name": "resnet18", "pretrained": str(place)}
    keys = {"model": {"name": "mixed", "models": [model, {"name": "gn_lenet"}]} if listed else model}
    scenario = from_mapping(to_plain(given[0]) | keys)
    (first,) = (found for key, found in file_digests(scenario).items() if key.endswith(f"pretrained {place}"))
    held.write_bytes(b"other")
    assert first not in file_digests(scenario).values()


def test_runs_of_one_process_read_a_changed_topology(given, tmp_path):
    edges = tmp_path / "net.txt"
    keys = {"learning": "none", "partition": {"name": "random"}, "topology": {"name": "file", "path": str(edges)}}
    sent = []
    for text in ("0 1\n1 2\n", "0 1\n1 2\n0 2\n"):
        edges.write_text(text)
        scenario = from_mapping(to_plain(given[0]) | keys | {"nodes": {"clusters": [3]}})
        sent.append(runs.run(scenario, out=tmp_path / "net", force=True)["bytes"]["total"])
    assert 6 * sent[0] == 4 * sent[1]  # 4 or 6 messages a round
