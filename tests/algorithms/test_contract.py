"""Properties of every algorithm, on a small simulated network with the embedded data.

Tests that read the records of a finished run share it: `finished` makes each of them once. Properties of the protocol
(churn, losses, deadlines, compression) are tested with `learning: none`.
"""

import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import torch

from ddlsim import runs
from ddlsim.algorithms import ALGORITHMS
from ddlsim.algorithms.gossip_pull import GossipPull
from ddlsim.engine.monitor import RoundTimes
from ddlsim.engine.simulation import Simulation
from ddlsim.foundation.errors import DdlsimError
from ddlsim.learning import learner, local_trainings
from ddlsim.learning.backends.choose import make_backends
from ddlsim.network.messages.compression import COMPRESSIONS
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
HARSH = (
    "devices={name: lognormal, median_step_time_s: 0.05}",
    "network.links.uplink_mbps=20",
    "network.drop_probability=0.1",
    "evaluation.samples=100",
)
FINISHED = {
    ("sync", "plain"): ("rounds=16", "evaluation={every: 8, samples: 500}"),
    ("sync", "ideal"): (
        "network.fidelity=ideal",
        "devices={name: lognormal, median_step_time_s: 0.05}",
        "training.schedule={name: linear, per: step}",
        "rounds=4",
        "evaluation={every: 2, samples: 50}",
    ),
    ("sync", "harsh"): (*HARSH, CHURN, "protocol={deadline_s: 0.3, late_messages: drop, staleness_s: 0}"),
    ("async", "harsh"): (
        *HARSH,
        "network.on_drop=drop",
        CHURN.replace("}]}", "}], state: lost}"),
        "network.compression={name: random_k}",  # the codec that draws random numbers
    ),
}
"""(mode, network) -> settings of the runs that tests share."""
QUICK = ("model={name: mlp, hidden: [8]}", "evaluation.samples=50")
COLUMNS = ("payload_bytes", "header_bytes", "wasted_bytes", "in_flight_bytes")
LARGEST_BYTES = 102_100  # the model of smoke.yaml, 25,450 parameters, with a header and a few numbers
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def run(out: Path, name: str, *overrides: str) -> tuple[dict, list[dict]]:
    scenario = load(SMOKE, (f"algorithm={{name: {name}{SETTINGS.get(name, '')}}}", *overrides))
    summary = runs.run(scenario, out=out)
    return summary, read_lines(out / "metrics.jsonl")


def read_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def is_silent(name: str) -> bool:
    return ALGORITHMS[name].exchanges == "nothing"


@dataclass
class Finished:
    """The records of a finished run, and observations during it.

    Attributes:
        handed_over: bytes that each node had given to the network by the end.
        looked_at: (node, bytes given to the network so far) per evaluation of a node.
        server_looked_at: the same of the server.
        steps: (position, total) of every update whose learning rate was scheduled.
    """

    out: Path
    summary: dict
    rows: list[dict]
    handed_over: dict[int, int]
    looked_at: list[tuple[int, int]]
    server_looked_at: list[tuple[int, int]]
    steps: list[tuple[int, int]]

    @property
    def nodes(self) -> list[dict]:
        return read_lines(self.out / "links.jsonl")

    @property
    def pairs(self) -> list[dict]:
        return read_lines(self.out / "communication.jsonl")

    @property
    def files(self) -> list[bytes]:
        return [(self.out / file).read_bytes() for file in ("metrics.jsonl", "communication.jsonl")]


@pytest.fixture(scope="module", params=sorted(ALGORITHMS))
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def finished(name, tmp_path_factory) -> Callable[[str, str], Finished]:
    """Return finished(mode, network): a run of this algorithm, made once per worker; see FINISHED."""

    @cache
    def finish(mode: str, network: str) -> Finished:
        handed_over, of_nodes, of_server, steps = defaultdict(int), [], [], []
        send, snapshot, rates = Network.send, Simulation.snapshot, local_trainings.rates

        def send_and_count(self, messages):
            for message in messages:
                handed_over[message.src] += len(message.receivers) * (message.payload_bytes + message.header_bytes)
            send(self, messages)

        def snapshot_and_look(self, node, completed):
            (of_server if self.members[node].is_server else of_nodes).append((node, handed_over[node]))
            return snapshot(self, node, completed)

        def noted(schedule, learning_rate, updates, total):
            steps.extend((at, total) for _, at in updates)
            return rates(schedule, learning_rate, updates, total)

        out = tmp_path_factory.mktemp(f"{name}-{mode}-{network}") / "run"
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Network, "send", send_and_count)
            patched.setattr(Simulation, "snapshot", snapshot_and_look)
            patched.setattr(local_trainings, "rates", noted)
            summary, rows = run(out, name, f"mode={mode}", *FINISHED[mode, network])
        return Finished(out, summary, rows, handed_over, of_nodes, of_server, steps)

    return finish


@pytest.fixture
def without_learning(name, tmp_path) -> Callable[..., tuple[dict, list[dict]]]:
    """Return without_learning(settings): a run in which models are only sizes."""
    return lambda *settings, out="run": run(tmp_path / out, name, "learning=none", *settings)


@pytest.fixture
def completions(monkeypatch) -> list[tuple[int, int, float]]:
    """Return (node, round, simulated seconds) of every completed round in a run without learning."""
    seen, completed = [], RoundTimes.completed

    def noted(self, node, round_num, population):
        seen.append((node, round_num, population.now_s()))
        completed(self, node, round_num, population)

    monkeypatch.setattr(RoundTimes, "completed", noted)
    return seen


def test_run_ends_with_every_node_evaluated_and_learns(finished):
    plain = finished("sync", "plain")
    assert plain.summary["status"] == "done"
    last = max(row["round"] for row in plain.rows)
    assert last >= 16
    assert sorted(r["node"] for r in plain.rows if r["round"] == last and r["name"] == "accuracy") == list(range(8))
    assert plain.summary["sim_time_s"] >= 16 * 5 * 0.05  # rounds of five steps, and the network if nodes wait for it
    assert plain.summary["accuracy"]["all"] > 0.25  # ten classes, chance is 0.1


def test_a_schedule_per_step_ends_with_the_last_step_of_the_run(finished):
    positions, totals = zip(*finished("sync", "ideal").steps, strict=True)
    assert set(totals) == {max(positions) + 1}


def test_every_byte_sent_is_counted_once(name, finished):
    plain = finished("sync", "plain")
    last = max(row["round"] for row in plain.rows)
    counted = {r["node"]: r["value"] for r in plain.rows if r["round"] == last and r["name"] == "bytes_sent"}
    by_pairs = {node["node"]: 0 for node in plain.nodes}
    for pair in plain.pairs:
        by_pairs[pair["src"]] += sum(pair[column] for column in COLUMNS)
    assert by_pairs == {node["node"]: node["sent_bytes"] for node in plain.nodes}
    least = {"models": 200 * LARGEST_BYTES / 3, "vectors": 90 * 1_280, "nothing": -1}[ALGORITHMS[name].exchanges]
    assert sum(by_pairs.values()) > least
    assert bool(plain.pairs) != is_silent(name)
    # Only these files contain messages sent after a node's last evaluation.
    assert all(counted[node] <= by_pairs[node] for node in by_pairs)
    sends_later = issubclass(ALGORITHMS[name], GossipPull) or name == "mapl"
    assert not ALGORITHMS[name].waits or sends_later or counted == by_pairs


def test_message_contents_add_up_to_all_sent_bytes(name, finished):
    plain = finished("sync", "plain")
    contents = read_lines(plain.out / "contents.jsonl")
    on_the_wire = sum(pair[column] for pair in plain.pairs for column in COLUMNS)
    sent = sum(row["bytes"] for row in contents)
    # without waits, messages are in flight when the last node finishes
    assert on_the_wire == sent if ALGORITHMS[name].waits else on_the_wire <= sent
    messages = sum(pair["messages"] for pair in plain.pairs)
    assert sum(row["messages"] for row in contents if row["content"] == "header") >= messages


def test_byte_rows_count_the_messages_of_a_node(finished):
    """Without latency and bandwidth limits, whole messages are sent at once, so the counts are equal to the byte."""
    ideal = finished("sync", "ideal")
    expected = ideal.looked_at + ideal.server_looked_at[1::2]  # a server is checked again when all nodes are online
    assert sorted((r["node"], r["value"]) for r in ideal.rows if r["name"] == "bytes_sent") == sorted(expected)
    assert sum(ideal.handed_over.values()) == sum(pair[column] for pair in ideal.pairs for column in COLUMNS)


def test_bytes_in_are_bytes_out_or_wasted_or_in_flight(name, finished):
    parts = [f"{part}_bytes" for part in ("push", "request", "response", "aborted", "lost", "unused", "in_flight")]
    for mode in ("sync", "async"):
        harsh = finished(mode, "harsh")
        nodes, pairs, summary = harsh.nodes, harsh.pairs, harsh.summary
        assert bool(pairs) != is_silent(name)
        for node in nodes:
            of_node = [pair for pair in pairs if pair["src"] == node["node"]]
            assert sum(node[part] for part in parts) == node["sent_bytes"]
            assert sum(pair[column] for pair in of_node for column in COLUMNS) == node["sent_bytes"]
            assert sum(node[part] for part in parts[3:6]) == sum(pair["wasted_bytes"] for pair in of_node)
            assert 0 <= node["uplink_utilization"] <= 1
        assert sum(node["received_bytes"] for node in nodes) == sum(node["sent_bytes"] for node in nodes)
        assert summary["bytes"]["total"] == sum(node["sent_bytes"] for node in nodes)
        if mode == "sync" and ALGORITHMS[name].exchanges == "models":
            assert summary["links"]["queueing_s"]["mean"] > 0


def test_runs_end_under_churn_and_losses(finished):
    for mode in ("sync", "async"):
        harsh = finished(mode, "harsh")
        assert harsh.summary["status"] == "done"
        assert [(r["node"], r["value"]) for r in harsh.rows if r["name"] == "online"][:2] == [(2, 0), (7, 0)]
        assert np.isfinite([r["value"] for r in harsh.rows if r["name"] == "test_loss"]).all()


def test_same_seed_same_bytes_whether_or_not_full_waves_are_launched_early(tmp_path, name, finished, monkeypatch):
    monkeypatch.setattr(learner, "make_backends", partial(make_backends, asynchronous=True))
    run(tmp_path / "again", name, "mode=async", *FINISHED["async", "harsh"])
    files = [(tmp_path / "again" / file).read_bytes() for file in ("metrics.jsonl", "communication.jsonl")]
    assert files == finished("async", "harsh").files


def test_another_seed_gives_other_records(tmp_path):
    for seed in (0, 1):
        run(tmp_path / str(seed), "el", *QUICK, f"seed={seed}", "rounds=1")
    assert (tmp_path / "0/metrics.jsonl").read_bytes() != (tmp_path / "1/metrics.jsonl").read_bytes()


@pytest.mark.parametrize("trains_by_a_loss_of_its_own", ["fedproto", "fedclassavg", "mapl"])
def test_custom_losses_can_be_computed_in_bfloat16(tmp_path, trains_by_a_loss_of_its_own):
    losses = []
    for precision in ("float32", "bf16"):
        settings = f"training.precision={precision}", "rounds=2", "evaluation={every: 2, samples: 100}"
        rows = run(tmp_path / precision, trains_by_a_loss_of_its_own, *settings)[1]
        losses.append([row["value"] for row in rows if row["name"] == "test_loss"])
    assert losses[0] != losses[1] and losses[1] == pytest.approx(losses[0], rel=0.05)


def runs_or_is_refused(tmp_path: Path, name: str, place: str, *overrides: str) -> dict | None:
    """Return the summary of a run, or None if the check reports an error at this place before the run."""
    try:
        return run(tmp_path / "run", name, *overrides, "rounds=1")[0]
    except ScenarioProblems as error:
        assert [problem.path for problem in error.problems] == [place]


def test_model_without_core_is_refused_by_check_or_runs(tmp_path, name):
    summary = runs_or_is_refused(tmp_path, name, "model.name", "model={name: linear}", "evaluation.samples=50")
    assert (summary is None) == ALGORITHMS[name].needs_core


def test_regression_is_refused_by_check_or_runs(tmp_path, name):
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


def test_docstring_describes_offline_peers(name):
    files = {base.__module__ for base in ALGORITHMS[name].__mro__ if base.__module__.startswith("ddlsim.algorithms.")}
    assert any(re.search(r"\b(away|offline)\b", sys.modules[file].__doc__) for file in files)


@pytest.mark.parametrize(
    ("mode", "device"),
    [("async", "cpu"), pytest.param("sync", "cuda", marks=needs_cuda), pytest.param("async", "cuda", marks=needs_cuda)],
)
def test_waves_of_a_gpu_give_the_same_run(tmp_path, name, mode, device, monkeypatch):
    """The GPU backend, on a GPU or on the CPU: models are stacked instead of computed one by one."""
    options = (
        *QUICK,
        "rounds=2",
        f"mode={mode}",
        "devices={name: lognormal, median_step_time_s: 0.05}",
        "evaluation.every=1",
    )
    expected, expected_rows = run(tmp_path / "threads", name, *options, "compute_device=cpu")
    monkeypatch.setattr(learner, "make_backends", partial(make_backends, stacked=True))
    summary, rows = run(tmp_path / "stacked", name, *options, f"compute_device={device}")
    assert (summary["bytes"], summary["sim_time_s"]) == (expected["bytes"], expected["sim_time_s"])
    assert [(row["node"], row["name"]) for row in rows] == [(row["node"], row["name"]) for row in expected_rows]
    for found, row in zip(rows, expected_rows, strict=True):
        off = np.abs(np.subtract(row["value"], found["value"])).sum()
        limit = 2 if row["name"] == "confusion" else 0.021  # one image of fifty may lie on the decision boundary
        assert off <= limit, (found, row)


LOOKS = {"accuracy", "accuracy_lowest_test_loss", "bytes_sent", "confusion", "evaluated_head", "test_loss"}
ONE_PER_SET_OF_HOOKS = ("adpsgd", "dac", "el", "facade", "fedsim", "mapl", "scaffold", "sgp")


@pytest.mark.parametrize(
    "algorithm",
    [
        algorithm if algorithm in ONE_PER_SET_OF_HOOKS else pytest.param(algorithm, marks=pytest.mark.full)
        for algorithm in sorted(ALGORITHMS)
    ],
)
def test_evaluation_interval_changes_neither_training_nor_clocks(tmp_path, algorithm):
    """All other records are the same to the byte, between evaluations and after the last one."""
    found = []
    mode = "async" if sorted(ALGORITHMS).index(algorithm) % 2 else "sync"
    for every in (1, 3, 1000):
        out = tmp_path / str(every)
        changes = (
            *QUICK,
            f"evaluation.every={every}",
            f"mode={mode}",
            "devices={name: lognormal, median_step_time_s: 0.05}",
            "rounds=4",
        )
        summary, rows = run(out, algorithm, *changes)
        last = max(row["round"] for row in rows if row["name"] == "accuracy")
        trained = [row for row in rows if row["name"] not in LOOKS or row["round"] == last]
        files = [(out / file).read_bytes() for file in ("communication.jsonl", "contents.jsonl", "links.jsonl")]
        found.append((trained, files, summary["sim_time_s"]))
    assert len(found[0][0]) >= 8 * 4
    assert all(other == found[0] for other in found[1:])


@pytest.mark.parametrize("server", sorted(name for name in ALGORITHMS if ALGORITHMS[name].has_server))
def test_nodes_wait_for_the_answer_of_a_server_in_both_modes(tmp_path, server):
    """A node that does not wait would train a model that late answers overwrite."""
    found = []
    for mode in ("sync", "async"):
        settings = (
            f"mode={mode}",
            "devices={name: lognormal, median_step_time_s: 0.05}",
            "rounds=3",
            "evaluation={every: 1, samples: 50}",
        )
        summary, rows = run(tmp_path / mode, server, *settings)
        found.append((summary["sim_time_s"], [row for row in rows if row["name"] != "online"]))
    assert found[0] == found[1]


def test_offline_node_receives_nothing(tmp_path, without_learning):
    without_learning("churn={name: schedule, offline: [{node: 3, start_s: 0, end_s: 1000}]}")
    pairs = read_lines(tmp_path / "run" / "communication.jsonl")
    assert not [pair for pair in pairs if 3 in (pair["src"], pair["dst"])]


@pytest.mark.parametrize("leave_s", [0, 0.7])
def test_no_round_completes_while_all_nodes_are_offline(without_learning, completions, leave_s):
    """A server is online and waits, so it counts no round either."""
    offline = ", ".join(f"{{node: {node}, start_s: {leave_s}, end_s: {3 + node / 10}}}" for node in range(8))
    summary, _ = without_learning(f"churn={{name: schedule, offline: [{offline}]}}")
    assert summary["status"] == "done" and max(completed for _, completed, _ in completions) >= 6
    assert not [time_s for _, _, time_s in completions if leave_s < time_s < 3]
    done_before = max((completed for _, completed, time_s in completions if time_s < 3), default=0)
    assert done_before <= 3 if leave_s else not done_before
    assert summary["sim_time_s"] >= 3 + (6 - done_before) * 5 * 0.05


def test_run_reports_the_departure_of_all_nodes(without_learning):
    offline = ", ".join(f"{{node: {node}, start_s: {0.7 + node / 10}, end_s: .inf}}" for node in range(8))
    with pytest.raises(DdlsimError, match="all nodes have left for good"):
        without_learning(f"churn={{name: schedule, offline: [{offline}]}}", "rounds=20")


@pytest.mark.parametrize("on_drop", ["drop", "retransmit"])
def test_lost_messages_end_the_wait(name, without_learning, on_drop):
    summary, _ = without_learning(f"network={{drop_probability: 0.3, on_drop: {on_drop}}}")
    assert summary["status"] == "done"
    assert summary["bytes"]["wasted"] > 0.15 * summary["bytes"]["total"] or is_silent(name)


def test_aborted_messages_end_the_wait(tmp_path, name, without_learning):
    summary, _ = without_learning("network.timeout_s=0.1", "network.links.uplink_mbps=0.01")
    assert summary["status"] == "done"
    given_up = sum(node["aborted_bytes"] for node in read_lines(tmp_path / "run" / "links.jsonl"))
    assert given_up > 0 or is_silent(name)


def test_compressed_messages_take_fewer_bytes_and_less_time(name, without_learning):
    """On a ring peers meet again and keep copies; links are slow if nodes wait, so bytes dominate the time."""
    if is_silent(name):
        pytest.skip("sends nothing")
    mbps = 1 if ALGORITHMS[name].waits else 50
    settings = f"network.links.uplink_mbps={mbps}", "topology={name: ring}", "rounds=10"
    plain, _ = without_learning(*settings, out="none")
    for codec in sorted(set(COMPRESSIONS) - {"none"}):
        summary, _ = without_learning(*settings, f"network.compression={{name: {codec}}}", out=codec)
        assert summary["status"] == "done"
        assert summary["bytes"]["total"] < 0.75 * plain["bytes"]["total"], codec
        if ALGORITHMS[name].waits and ALGORITHMS[name].exchanges == "models":
            assert name == "panm" or summary["bytes"]["header"] == plain["bytes"]["header"], codec
            assert summary["sim_time_s"] < 0.85 * plain["sim_time_s"], codec


def test_deadline_frees_fast_nodes_from_a_slow_one(name, without_learning, completions):
    slow = "devices={name: per_node, step_times_s: [0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 1]}"
    without_learning(slow, "protocol={deadline_s: 0.7, late_messages: keep}")
    times = {node: time_s for node, completed, time_s in completions if completed == 6}
    if ALGORITHMS[name].has_server:  # its rounds of 0.7 s determine the run, and node 7 is late for all of them
        assert 7 not in times and max(times[node] for node in range(7)) == pytest.approx(6 * 0.7, abs=0.1)
    else:
        assert max(times[node] for node in range(7)) < 8 < 15 <= times[7]


def test_joining_nodes_take_part_in_later_rounds(tmp_path, name, without_learning, completions):
    late = "churn={name: schedule, offline: [{node: 2, start_s: 0, end_s: 1.4}, {node: 7, start_s: 0, end_s: 1e9}]}"
    summary, rows = without_learning(late, "rounds=9")
    assert summary["status"] == "done"
    online = [(r["time_s"], r["node"], r["value"]) for r in rows if r["name"] == "online"]
    assert online == [(0, 2, 0), (0, 7, 0), (1.4, 2, 1)]
    done = {node: [completed for other, completed, _ in completions if other == node] for node in range(8)}
    assert done[0][:6] == [1, 2, 3, 4, 5, 6]
    assert done[2] and done[2] == done[0][-len(done[2]) :]
    assert done[7] == []
    assert min(time_s for node, _, time_s in completions if node == 2) >= 1.4
    there = {*range(7), *([8] if ALGORITHMS[name].has_server else [])}
    pairs = read_lines(tmp_path / "run" / "communication.jsonl")
    assert {pair[end] for pair in pairs for end in ("src", "dst")} <= there
