"""What every algorithm must do, run on a small simulated network with the embedded data."""

import json
import sys
from collections import defaultdict
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import torch

from ddlsim import runs
from ddlsim.algorithms import ALGORITHMS
from ddlsim.algorithms.gossip_pull import GossipPull
from ddlsim.engine.simulation import Simulation
from ddlsim.errors import DdlsimError
from ddlsim.learning import learner, local_trainings
from ddlsim.learning.backends.choose import make_backends
from ddlsim.messages.compression import COMPRESSIONS
from ddlsim.network.network import Network
from ddlsim.scenario import ScenarioProblems, load

SMOKE = Path(__file__).parents[2] / "scenarios" / "smoke.yaml"
CHURN = "churn={name: schedule, offline: [{node: 2, start_s: 0.35, end_s: 1.5}, {node: 7, start_s: 0.9, end_s: 99}]}"

SETTINGS = {
    "mapl": ", warmup_rounds: 1, projection_units: 64, temperature: 0.5",
    "pens": ", loss_batches: local_steps, sampled_peers: 3, stage1_rounds: 3",
    "panm": ", loss_batches: local_steps, sampled_peers: 2, stage1_rounds: 3",
    "dac": ", loss_batches: local_steps, sampled_peers: 3",  # scoring on all samples takes longer than a round here
}
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
COLUMNS = ("payload_bytes", "header_bytes", "wasted_bytes", "in_flight_bytes")
LARGEST_BYTES = 102_100  # the model of smoke.yaml, 25,450 parameters, with a header and a few numbers


def run(tmp_path: Path, name: str, *overrides: str, out: str = "run") -> tuple[dict, list[dict]]:
    scenario = load(SMOKE, (f"algorithm={{name: {name}{SETTINGS.get(name, '')}}}", *overrides))
    summary = runs.run(scenario, out=tmp_path / out)
    rows = [json.loads(line) for line in (tmp_path / out / "metrics.jsonl").read_text().splitlines()]
    return summary, rows


def is_silent(name: str) -> bool:
    return ALGORITHMS[name].exchanges == "nothing"


def read_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(params=sorted(ALGORITHMS))
def name(request) -> str:
    return request.param


def test_run_ends_with_every_node_evaluated(tmp_path, name):
    summary, rows = run(tmp_path, name)
    assert summary["status"] == "done"
    last = max(row["round"] for row in rows)
    assert last >= 6
    assert sorted(r["node"] for r in rows if r["round"] == last and r["name"] == "accuracy") == list(range(8))
    assert summary["sim_time_s"] >= 6 * 5 * 0.05  # six rounds of five steps, and the network where nodes wait for it


def test_a_schedule_per_step_ends_with_the_last_step_of_the_run(tmp_path, name, monkeypatch):
    steps, rates = [], local_trainings.rates

    def noted(schedule, learning_rate, updates, total):
        steps.extend((at, total) for _, at in updates)
        return rates(schedule, learning_rate, updates, total)

    monkeypatch.setattr(local_trainings, "rates", noted)
    run(tmp_path, name, "training.schedule={name: linear, per: step}", "rounds=3")
    positions, totals = zip(*steps, strict=True)
    assert set(totals) == {max(positions) + 1}


@pytest.mark.parametrize("trains_by_a_loss_of_its_own", ["fedproto", "fedclassavg", "mapl"])
def test_losses_of_an_algorithm_can_be_computed_in_bfloat16(tmp_path, trains_by_a_loss_of_its_own):
    settings = "training.precision=bf16", "rounds=2", "evaluation.every=2"
    exact = run(tmp_path, trains_by_a_loss_of_its_own, *settings[1:], out="exact")[1]
    rounded = run(tmp_path, trains_by_a_loss_of_its_own, *settings, out="rounded")[1]
    losses = [[row["value"] for row in rows if row["name"] == "test_loss"] for rows in (exact, rounded)]
    assert losses[0] != losses[1] and losses[1] == pytest.approx(losses[0], rel=0.05)


def runs_or_is_refused(tmp_path: Path, name: str, place: str, *overrides: str) -> dict | None:
    """The summary of a run, or nothing if checking tells where the scenario is wrong, before anything was run."""
    try:
        return run(tmp_path, name, *overrides, "rounds=1")[0]
    except ScenarioProblems as error:
        assert [problem.path for problem in error.problems] == [place]


def test_model_without_core_is_refused_at_the_door_or_fits(tmp_path, name):
    summary = runs_or_is_refused(tmp_path, name, "model.name", "model={name: linear}")
    assert (summary is None) == ALGORITHMS[name].needs_core


def test_regression_is_refused_at_the_door_or_fits(tmp_path, name):
    changes = (
        "data={name: synthetic_regression, test_samples: 20}",
        "shift={name: none}",
        "partition={name: domains}",
        "evaluation.target_accuracy=null",
        "training.learning_rate=0.0001",
    )
    summary = runs_or_is_refused(tmp_path, name, "algorithm.name", *changes)
    if summary is None:
        assert ALGORITHMS[name].needs_classes
    else:
        assert summary["status"] == "done" and np.isfinite(summary["mse"]["all"])


def test_nodes_learn(tmp_path, name):
    summary, _ = run(tmp_path, name, "rounds=20")
    assert summary["accuracy"]["all"] > 0.3  # ten classes, chance is 0.1


def test_every_byte_sent_is_counted_once(tmp_path, name):
    _, rows = run(tmp_path, name)
    last = max(row["round"] for row in rows)
    counted = {r["node"]: r["value"] for r in rows if r["round"] == last and r["name"] == "bytes_sent"}
    nodes, pairs = (read_lines(tmp_path / "run" / file) for file in ("links.jsonl", "communication.jsonl"))
    by_pairs = {node["node"]: 0 for node in nodes}
    for pair in pairs:
        by_pairs[pair["src"]] += sum(pair[column] for column in COLUMNS)
    assert by_pairs == {node["node"]: node["sent_bytes"] for node in nodes}
    least = {"models": 100 * LARGEST_BYTES / 3, "vectors": 90 * 1_280, "nothing": -1}[ALGORITHMS[name].exchanges]
    assert sum(by_pairs.values()) > least
    assert bool(pairs) != is_silent(name)
    # What a node sends after its last evaluation is in these files alone.
    assert all(counted[node] <= by_pairs[node] for node in by_pairs)
    pulls = issubclass(ALGORITHMS[name], GossipPull)
    assert not ALGORITHMS[name].waits or pulls or counted == by_pairs


def test_rows_of_bytes_are_what_a_node_has_handed_over_by_then(tmp_path, name, monkeypatch):
    """Without latency and bandwidth a message is on the wire as a whole, so that the counts are equal to the byte."""
    handed_over, of_nodes, of_server = defaultdict(int), [], []
    send, snapshot = Network.send, Simulation.snapshot

    def send_and_count(self, messages):
        for message in messages:
            handed_over[message.src] += len(message.receivers) * (message.payload_bytes + message.header_bytes)
        send(self, messages)

    def snapshot_and_look(self, node, completed):
        (of_server if self.members[node].is_server else of_nodes).append((node, handed_over[node]))
        return snapshot(self, node, completed)

    monkeypatch.setattr(Network, "send", send_and_count)
    monkeypatch.setattr(Simulation, "snapshot", snapshot_and_look)
    _, rows = run(tmp_path, name, "network.fidelity=ideal", "devices={name: lognormal, median_step_time_s: 0.05}")
    expected = of_nodes + of_server[1::2]  # a server is looked at again when all nodes are there
    assert sorted((r["node"], r["value"]) for r in rows if r["name"] == "bytes_sent") == sorted(expected)
    assert sum(handed_over.values()) == sum(
        pair[column] for pair in read_lines(tmp_path / "run" / "communication.jsonl") for column in COLUMNS
    )


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_bytes_in_are_bytes_out_or_wasted_or_in_flight(tmp_path, name, mode):
    if is_silent(name):
        pytest.skip("sends nothing")
    late = "protocol={deadline_s: 0.3, late: drop, staleness_s: 0}"
    changes = (
        CHURN,
        late,
        "devices={name: lognormal, median_step_time_s: 0.05}",
        "network.links.uplink_mbps=20",
        "network.drop_probability=0.1",
    )
    summary, _ = run(tmp_path, name, f"mode={mode}", *changes)
    nodes, pairs = (
        [json.loads(line) for line in (tmp_path / "run" / file).read_text().splitlines()]
        for file in ("links.jsonl", "communication.jsonl")
    )
    parts = [f"{part}_bytes" for part in ("push", "request", "response", "aborted", "lost", "unused", "in_flight")]
    columns = ["payload_bytes", "header_bytes", "wasted_bytes", "in_flight_bytes"]
    for node in nodes:
        of_node = [pair for pair in pairs if pair["src"] == node["node"]]
        assert sum(node[part] for part in parts) == node["sent_bytes"]
        assert sum(pair[column] for pair in of_node for column in columns) == node["sent_bytes"]
        assert sum(node[part] for part in parts[3:6]) == sum(pair["wasted_bytes"] for pair in of_node)
        assert 0 <= node["uplink_utilization"] <= 1
    assert sum(node["received_bytes"] for node in nodes) == sum(node["sent_bytes"] for node in nodes)
    assert summary["bytes"]["total"] == sum(node["sent_bytes"] for node in nodes)
    assert summary["links"]["queueing_s"]["mean"] > 0


def test_contents_of_messages_are_all_that_was_sent(tmp_path, name):
    run(tmp_path, name)
    pairs, contents = (read_lines(tmp_path / "run" / file) for file in ("communication.jsonl", "contents.jsonl"))
    on_the_wire = sum(pair[column] for pair in pairs for column in COLUMNS)
    sent = sum(row["bytes"] for row in contents)
    # where nobody waits, messages are on their way when the last node is through
    assert on_the_wire == sent if ALGORITHMS[name].waits else on_the_wire <= sent
    assert sum(row["messages"] for row in contents if row["content"] == "header") >= sum(p["messages"] for p in pairs)


def test_the_file_says_what_becomes_of_peers_that_are_away(name):
    files = {base.__module__ for base in ALGORITHMS[name].__mro__ if base.__module__.startswith("ddlsim.algorithms.")}
    assert any(" away" in text or " offline" in text for text in (sys.modules[file].__doc__ for file in files))


def test_nobody_waits_for_ever_under_churn(tmp_path, name):
    summary, rows = run(tmp_path, name, CHURN)
    assert summary["status"] == "done"
    assert [(r["node"], r["value"]) for r in rows if r["name"] == "online"][:2] == [(2, 0), (7, 0)]
    assert np.isfinite([r["value"] for r in rows if r["name"] == "test_loss"]).all()


def test_offline_node_receives_nothing(tmp_path, name):
    away = "churn={name: schedule, offline: [{node: 3, start_s: 0, end_s: 1000}]}"
    run(tmp_path, name, away)
    lines = (tmp_path / "run" / "communication.jsonl").read_text().splitlines()
    assert not [pair for pair in map(json.loads, lines) if 3 in (pair["src"], pair["dst"])]


def test_same_seed_same_bytes_whether_or_not_full_waves_are_launched_early(tmp_path, name, monkeypatch):
    for out in ("a", "b", "c"):
        monkeypatch.setattr(learner, "make_backends", partial(make_backends, asynchronous=out == "b"))
        run(tmp_path, name, f"seed={int(out == 'c')}", out=out)
    files = ("metrics.jsonl", "communication.jsonl")
    first, again, other = ([(tmp_path / out / file).read_bytes() for file in files] for out in ("a", "b", "c"))
    assert first == again
    assert first[0] != other[0]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_waves_as_on_a_gpu_give_the_same_run(tmp_path, name, mode, device, monkeypatch):
    """The way of a GPU, on the CPU or on one: stacked models and their evaluation instead of one after the other."""
    options = "rounds=2", f"mode={mode}", "devices={name: lognormal, median_step_time_s: 0.05}", "evaluation.every=1"
    expected, expected_rows = run(tmp_path, name, *options, "compute_device=cpu", out="threads")
    monkeypatch.setattr(learner, "make_backends", partial(make_backends, stacked=True))
    summary, rows = run(tmp_path, name, *options, f"compute_device={device}", out="stacked")
    assert (summary["bytes"], summary["sim_time_s"]) == (expected["bytes"], expected["sim_time_s"])
    assert [(row["node"], row["name"]) for row in rows] == [(row["node"], row["name"]) for row in expected_rows]
    for found, row in zip(rows, expected_rows, strict=True):
        off = np.abs(np.subtract(row["value"], found["value"])).sum()
        assert off <= (2 if row["name"] == "confusion" else 0.01), (found, row)  # one image may stand on the edge


@pytest.mark.parametrize("leave_s", [0, 0.7])
def test_no_round_is_done_while_everybody_is_away(tmp_path, name, leave_s):
    """Nor counted: a server, who is there, waits."""
    away = ", ".join(f"{{node: {node}, start_s: {leave_s}, end_s: {3 + node / 10}}}" for node in range(8))
    summary, rows = run(tmp_path, name, f"churn={{name: schedule, offline: [{away}]}}", "evaluation.every=1")
    assert summary["status"] == "done" and summary["evaluated_round"] >= 6
    measured = {row["round"]: row["time_s"] for row in rows if row["name"] == "accuracy"}
    done_before = sum(time_s < 3 for time_s in measured.values())
    assert done_before <= 3 if leave_s else not done_before
    assert summary["sim_time_s"] >= 3 + (6 - done_before) * 5 * 0.05


def test_a_run_that_everybody_leaves_for_good_says_so(tmp_path, name):
    away = ", ".join(f"{{node: {node}, start_s: {0.7 + node / 10}, end_s: .inf}}" for node in range(8))
    with pytest.raises(DdlsimError, match="all nodes have left for good"):
        run(tmp_path, name, f"churn={{name: schedule, offline: [{away}]}}", "rounds=20")


def test_asynchronous_run_ends(tmp_path, name):
    summary, _ = run(tmp_path, name, "mode=async", "devices={name: lognormal, median_step_time_s: 0.05}")
    assert summary["status"] == "done"


@pytest.mark.parametrize("on_drop", ["drop", "retransmit"])
def test_nobody_waits_for_ever_for_messages_that_are_lost(tmp_path, name, on_drop):
    summary, rows = run(tmp_path, name, f"network={{drop_probability: 0.3, on_drop: {on_drop}}}")
    assert summary["status"] == "done"
    assert summary["bytes"]["wasted"] > 0.15 * summary["bytes"]["total"] or is_silent(name)
    assert np.isfinite([r["value"] for r in rows if r["name"] == "test_loss"]).all()


def test_nobody_waits_for_messages_that_are_given_up(tmp_path, name):
    summary, rows = run(tmp_path, name, "network.timeout_s=0.1", "network.links.uplink_mbps=0.01")
    assert summary["status"] == "done"
    given_up = sum(node["aborted_bytes"] for node in read_lines(tmp_path / "run" / "links.jsonl"))
    assert given_up > 0 or is_silent(name)
    assert np.isfinite([r["value"] for r in rows if r["name"] == "test_loss"]).all()


COMPRESSED = sorted(name for name in COMPRESSIONS if name != "none")


def on_a_ring(name: str) -> tuple[str, ...]:
    """On a ring peers meet again and have copies; where nodes wait, links are slow, so that bytes take the time."""
    mbps = 1 if ALGORITHMS[name].waits else 50
    return (f"network.links.uplink_mbps={mbps}", "topology={name: ring}", "rounds=10", "evaluation.every=10")


@pytest.fixture(scope="module")
def uncompressed(tmp_path_factory) -> Callable[[str], dict]:
    return cache(lambda name: run(tmp_path_factory.mktemp("uncompressed"), name, *on_a_ring(name))[0])


@pytest.mark.parametrize("compression", COMPRESSED)
def test_compressed_messages_take_fewer_bytes_and_less_time(tmp_path, name, compression, uncompressed):
    if is_silent(name):
        pytest.skip("sends nothing")
    plain = uncompressed(name)
    summary, rows = run(tmp_path, name, *on_a_ring(name), f"network.compression={{name: {compression}}}")
    assert summary["status"] == "done"
    assert np.isfinite([r["value"] for r in rows if r["name"] == "test_loss"]).all()
    assert summary["bytes"]["total"] < 0.75 * plain["bytes"]["total"]
    if ALGORITHMS[name].waits and ALGORITHMS[name].exchanges == "models":
        # whom PANM keeps, and so how many it asks, depends on what is learned
        assert name == "panm" or summary["bytes"]["header"] == plain["bytes"]["header"]
        assert summary["sim_time_s"] < 0.85 * plain["sim_time_s"]


@pytest.mark.parametrize("compression", COMPRESSED)
def test_compressed_runs_under_churn_and_losses_end_and_repeat(tmp_path, name, compression):
    changes = (
        CHURN.replace("}]}", "}], state: lost}"),
        f"network.compression={{name: {compression}}}",
        "network.drop_probability=0.2",
        "network.on_drop=drop",
    )
    for out in ("a", "b") if compression == "random_k" else ("a",):
        summary, _ = run(tmp_path, name, *changes, out=out)
        assert summary["status"] == "done"
    if compression == "random_k":  # the one that draws
        files = ("metrics.jsonl", "communication.jsonl")
        a, b = ([(tmp_path / out / file).read_bytes() for file in files] for out in ("a", "b"))
        assert a == b


def test_deadline_frees_the_fast_from_a_slow_node(tmp_path, name):
    slow = "devices={name: per_node, step_times_s: [0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.5]}"
    _, rows = run(tmp_path, name, slow, "protocol={deadline_s: 0.3, late: keep}", "evaluation.every=6")
    times = {r["node"]: r["time_s"] for r in rows if r["name"] == "accuracy" and r["round"] == 6}
    assert max(times[node] for node in range(7)) < 8 < 15 <= times[7]


def test_newcomers_join_and_are_evaluated_from_then_on(tmp_path, name):
    late = "churn={name: schedule, offline: [{node: 2, start_s: 0, end_s: 1.4}, {node: 7, start_s: 0, end_s: 1e9}]}"
    summary, rows = run(tmp_path, name, late, "evaluation.every=1")
    assert summary["status"] == "done"
    assert [(r["time_s"], r["node"], r["value"]) for r in rows if r["name"] == "online"] == [
        (0, 2, 0),
        (0, 7, 0),
        (1.4, 2, 1),
    ]
    evaluated = {node: [r["round"] for r in rows if r["node"] == node and r["name"] == "accuracy"] for node in range(8)}
    assert evaluated[0][:6] == [1, 2, 3, 4, 5, 6]
    assert evaluated[2] and evaluated[2] == evaluated[0][-len(evaluated[2]) :]
    assert evaluated[7] == []
    assert min(r["time_s"] for r in rows if r["node"] == 2 and r["name"] == "accuracy") >= 1.4
    lines = (tmp_path / "run" / "communication.jsonl").read_text().splitlines()
    there = {*range(7), *([8] if ALGORITHMS[name].has_server else [])}
    assert {pair[end] for pair in map(json.loads, lines) for end in ("src", "dst")} <= there


LOOKS = {"accuracy", "accuracy_lowest_test_loss", "bytes_sent", "confusion", "evaluated_head", "test_loss"}


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_how_often_a_run_is_evaluated_changes_neither_training_nor_clocks(tmp_path, name, mode):
    """Between evaluations, and after the last one, everything is the same to the byte."""
    found = []
    for every in (1, 2, 6, 1000):
        out = f"every {every}"
        changes = (f"evaluation.every={every}", f"mode={mode}", "devices={name: lognormal, median_step_time_s: 0.05}")
        summary, rows = run(tmp_path, name, *changes, out=out)
        last = max(row["round"] for row in rows if row["name"] == "accuracy")
        trained = [row for row in rows if row["name"] not in LOOKS or row["round"] == last]
        files = [
            (tmp_path / out / file).read_bytes() for file in ("communication.jsonl", "contents.jsonl", "links.jsonl")
        ]
        found.append((trained, files, summary["sim_time_s"]))
    assert len(found[0][0]) >= 8 * 4
    assert all(other == found[0] for other in found[1:])


@pytest.mark.parametrize("name", sorted(name for name in ALGORITHMS if ALGORITHMS[name].has_server))
def test_nodes_of_a_server_wait_for_its_answer_in_either_mode(tmp_path, name):
    """A node that went on would train one chain of models while the answers to another one overwrite it."""
    found = []
    for mode in ("sync", "async"):
        summary, rows = run(
            tmp_path, name, f"mode={mode}", "devices={name: lognormal, median_step_time_s: 0.05}", out=mode
        )
        found.append((summary["sim_time_s"], [row for row in rows if row["name"] != "online"]))
    assert found[0] == found[1]
