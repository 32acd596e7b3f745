"""Properties of every algorithm in the records of finished runs, which `finished` makes once for all tests.

Churn, losses, deadlines and compression: test_contract_of_protocol.py. Models, tasks, devices and evaluations:
test_contract_of_settings.py.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from contract_runs import UNEQUAL, is_silent, read_lines, run

from ddlsim.algorithms import ALGORITHMS
from ddlsim.algorithms.gossip_pull import GossipPull
from ddlsim.engine.simulation import Simulation
from ddlsim.learning import learner, local_trainings
from ddlsim.learning.backends.stacked import make_backends
from ddlsim.network.network import Network

CHURN = "churn={name: schedule, offline: [{node: 2, start_s: 0.35, end_s: 1.5}, {node: 7, start_s: 0.9, end_s: 99}]}"
HARSH = (UNEQUAL, "network.links.uplink_mbps=20", "network.drop_probability=0.1", "evaluation.samples=100")
FINISHED = {
    ("sync", "plain"): ("rounds=16", "evaluation={every: 8, samples: 500}"),
    ("sync", "ideal"): (
        "network.fidelity=ideal",
        UNEQUAL,
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
COLUMNS = ("payload_bytes", "header_bytes", "wasted_bytes", "in_flight_bytes")
LARGEST_BYTES = 102_100  # the model of smoke.yaml, 25,450 parameters, with a header and a few numbers


def settings_of(name: str, mode: str, network: str) -> list[str]:
    """Return settings of FINISHED; collectives have no receivers whose copies a codec keeps."""
    codec = "int8" if ALGORITHMS[name].collective else "random_k"
    return [setting.replace("random_k", codec) for setting in FINISHED[mode, network]]


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
            summary, rows = run(out, name, f"mode={mode}", *settings_of(name, mode, network))
        return Finished(out, summary, rows, handed_over, of_nodes, of_server, steps)

    return finish


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
    sends_later = issubclass(ALGORITHMS[name], GossipPull) or name in ("mapl", "relaysgd")  # hubs of a tree
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


def test_byte_rows_count_the_messages_of_a_node(name, finished):
    """Without latency and bandwidth limits, whole messages are sent at once, so the counts are equal to the byte."""
    ideal = finished("sync", "ideal")
    # a server is checked after its round, unless it has none, and again when all nodes are online
    expected = ideal.looked_at + ideal.server_looked_at[ALGORITHMS[name].waits :: 1 + ALGORITHMS[name].waits]
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


@pytest.mark.full
def test_same_seed_same_bytes_whether_or_not_full_waves_are_launched_early(tmp_path, name, finished, monkeypatch):
    monkeypatch.setattr(learner, "make_backends", partial(make_backends, asynchronous=True))
    run(tmp_path / "again", name, "mode=async", *settings_of(name, "async", "harsh"))
    files = [(tmp_path / "again" / file).read_bytes() for file in ("metrics.jsonl", "communication.jsonl")]
    assert files == finished("async", "harsh").files


def test_docstring_describes_offline_peers(name):
    files = {base.__module__ for base in ALGORITHMS[name].__mro__ if base.__module__.startswith("ddlsim.algorithms.")}
    assert any(re.search(r"\b(away|offline)\b", sys.modules[file].__doc__, re.IGNORECASE) for file in files)
