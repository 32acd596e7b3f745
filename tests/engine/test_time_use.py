"""Use of simulated time by hand (two nodes of unequal speed, departures, deadlines), and timelines."""

import json

import numpy as np
import pytest
from small_network import equal_network
from small_simulation import Plain, assemble

from ddlsim import runs
from ddlsim.report.reading import read
from ddlsim.report.sections.timeline import activities, trace
from ddlsim.report.summary import summarize
from ddlsim.scenario import from_mapping

PAIR = {
    "name": "pair",
    "rounds": 3,
    "learning": "none",
    "nodes": {"clusters": [2]},
    "algorithm": {"name": "dpsgd"},
    "model": {"name": "sizes", "core": 100_000, "head": 24_000},
    "data": {"name": "fashion-mnist-mini"},
    "partition": {"name": "uniform"},
    "training": {"local_steps": 1, "batch_size": 5, "learning_rate": 0.1},
    "topology": {"name": "complete"},
    "network": {
        "header_bytes": 0,
        "links": {"name": "uniform", "uplink_mbps": 3.968, "downlink_mbps": 100, "latency_ms": 0},
    },
    "devices": {"name": "per_node", "step_times_s": [1, 3]},
}
"""A message has 496,000 B, so it takes one second."""


def test_time_use_of_a_fast_and_a_slow_node_by_hand(tmp_path):
    """Node 0 computes for 1 s a round, node 1 for 3 s; a message takes 1 s. Node 1 sends at 3, 6 and 9 s, and never
    waits. Node 0 computes until 1, 5 and 8 s, waits until node 1 sends, and has its messages at 4, 7 and 10 s.
    """
    runs.run(from_mapping(PAIR), out=tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "time_use.jsonl").open()]
    uses = [[row[f"{name}_s"] for name in ("computing", "waiting", "transfer", "offline", "other")] for row in rows]
    assert uses[0] == pytest.approx([3, 2 + 1 + 1, 3, 0, 0])
    assert uses[1] == pytest.approx([9, 0, 0, 0, 1])
    found = summarize(tmp_path / "run")["time_use"]
    assert found["shares"] == pytest.approx(
        {"computing": 12 / 20, "waiting": 4 / 20, "transfer": 3 / 20, "offline": 0, "other": 1 / 20}
    )
    assert found["waited_for"] == {"node": 1, "waits": 3, "seconds": pytest.approx(4)}


def test_timeline_of_two_nodes_by_hand(tmp_path):
    runs.run(from_mapping(PAIR | {"records": {"timeline": [0, 5.5]}}), out=tmp_path / "run")
    window, *rows = [json.loads(line) for line in (tmp_path / "run" / "timeline.jsonl").open()]
    assert (window["start_s"], window["end_s"]) == (0, 5.5)
    found = sorted((row["what"], row["node"], row["start_s"], row["end_s"]) for row in rows)
    assert found == [
        ("computing", 0, 0, 1),
        ("computing", 0, 4, 5),
        ("computing", 1, 0, 3),
        ("computing", 1, 3, 5.5),
        ("message", 0, 1, 2),
        ("message", 0, 5, 5.5),
        ("message", 1, 3, 4),
        ("waiting", 0, 1, 3),
    ]
    seen = activities(rows, np.array([0, 1]), np.array([0.5, 1.5, 2.5, 3.5, 4.5]))
    assert seen.tolist() == [[1, 2, 0, 3, 1], [1, 1, 1, 1, 1]]


class Pairwise(Plain):
    """Node 0 trains 1 step and node 1 trains 4; both send to each other and wait."""

    def round(self, node, state, round_num):
        yield node.train((None,), steps=[1, 4][node.id])
        node.send([1 - node.id], round_num)
        yield node.receive(round_num, [1 - node.id])


def simulated(**options):
    made = assemble(
        Pairwise(), 2, lambda env: equal_network(env, 2, 1e6, 1e6, fidelity="ideal"), **{"rounds": 1, **options}
    )
    made.run()
    return made.transport.times.rows()


def test_departure_ends_work_and_the_waits_of_others():
    rows = simulated(absences={1: [(2.5, 1e9)]})
    assert (rows[1]["computing_s"], rows[1]["offline_s"]) == (2.5, 0)
    assert (rows[0]["computing_s"], rows[0]["waiting_s"]) == (1, 1.5)
    assert (rows[1]["waits_held_up"], rows[1]["held_up_s"]) == (1, 1.5)


def test_wait_until_a_deadline_counts_for_the_missing_node():
    rows = simulated(deadline_s=2.0)
    assert (rows[0]["waiting_s"], rows[1]["waits_held_up"], rows[1]["held_up_s"]) == (2, 1, 2)


def test_trace_follows_chromes_trace_event_format(tmp_path):
    """Fields of the documentation: ph M with process_name and thread_name, ph X with ts and dur in microseconds."""
    runs.run(from_mapping(PAIR | {"nodes": {"clusters": [3]}, "devices": {"name": "constant"}}), out=tmp_path / "run")
    made = json.loads(trace(read(tmp_path / "run")))
    events = made["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X"}
    names = {(event["name"], event["args"]["name"]) for event in events if event["ph"] == "M"}
    assert {
        ("process_name", "node 2"),
        ("thread_name", "compute"),
        ("thread_name", "send"),
        ("thread_name", "send 2"),
    } <= names
    slices = [event for event in events if event["ph"] == "X"]
    assert all({"name", "cat", "pid", "tid", "ts", "dur", "args"} <= event.keys() for event in slices)
    first = next(event for event in slices if event["cat"] == "compute" and event["pid"] == 1)
    assert (first["ts"], first["dur"]) == (0, 50_000)
    assert {event["cat"] for event in slices} >= {"compute", "send", "receive"}
    threads = {(event["pid"], event["tid"]) for event in slices}
    for thread in threads:
        ends = 0.0
        for event in sorted((e for e in slices if (e["pid"], e["tid"]) == thread), key=lambda e: e["ts"]):
            assert event["ts"] >= ends - 1e-6
            ends = event["ts"] + event["dur"]
