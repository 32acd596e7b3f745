"""Every algorithm under churn, losses, compression and deadlines, with `learning: none`."""

from collections.abc import Callable

import pytest
from contract_runs import is_silent, read_lines, run

from ddlsim.algorithms import ALGORITHMS
from ddlsim.engine.monitor import RoundTimes
from ddlsim.foundation.errors import DdlsimError
from ddlsim.network.messages.compression import COMPRESSIONS


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
    with pytest.raises(DdlsimError, match="all nodes have left permanently"):
        without_learning(f"churn={{name: schedule, offline: [{offline}]}}", "rounds=20")


@pytest.mark.parametrize("on_drop", ["drop", "retransmit"])
def test_lost_messages_end_the_wait(name, without_learning, on_drop):
    summary, _ = without_learning(f"network={{drop_probability: 0.3, on_drop: {on_drop}}}")
    assert summary["status"] == "done"
    assert summary["bytes"]["wasted"] > 0.15 * summary["bytes"]["total"] or is_silent(name)


def test_aborted_messages_end_the_wait(tmp_path, name, without_learning):
    settings = "network.timeout_s=0.1", "network.links.uplink_mbps=0.01"
    if ALGORITHMS[name].collective:
        with pytest.raises(DdlsimError, match="lost 1000 times in a row"):
            without_learning(*settings)
        return
    summary, _ = without_learning(*settings)
    assert summary["status"] == "done"
    given_up = sum(node["aborted_bytes"] for node in read_lines(tmp_path / "run" / "links.jsonl"))
    assert given_up > 0 or is_silent(name)


def test_compressed_messages_take_fewer_bytes_and_less_time(name, without_learning):
    """On a ring peers meet again and keep copies; links are slow if nodes wait, so bytes dominate the time."""
    if is_silent(name) or name in ("demo", "sparseloco", "sparta", "streaming_diloco"):
        pytest.skip("sends nothing, encodes it by itself, or sends mostly headers")
    mbps = 1 if ALGORITHMS[name].waits else 50
    settings = f"network.links.uplink_mbps={mbps}", "topology={name: ring}", "rounds=10"
    plain, _ = without_learning(*settings, out="none")
    all_codecs = {"float16", "int8"} if ALGORITHMS[name].collective else set(COMPRESSIONS) - {"none"}
    for codec in sorted(all_codecs if name in ("el", "fedavg") else all_codecs & {"int8", "top_k"}):
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
    if ALGORITHMS[name].collective:  # its members wait for each other
        assert min(times.values()) >= 6 * 5
    elif ALGORITHMS[name].has_server and ALGORITHMS[name].waits:
        # its rounds of 0.7 s determine the run, and node 7 is late for all of them
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
