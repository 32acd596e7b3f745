"""Secure aggregation: bytes and times of small groups, drop-outs, and models of whole runs."""

import json

import numpy as np
import pytest
from small_network import equal_network
from small_simulation import Plain, assemble
from torn_runs import outcome, run_until, run_whole

from ddlsim import runs
from ddlsim.network.messages.secure_aggregation import (
    ADVERTISE,
    COLLECT,
    SHARE,
    UNMASK,
    answer_bytes,
    news_bytes,
    threshold,
)
from ddlsim.report.reading import read
from ddlsim.report.summary import summary_of
from ddlsim.runs.checkpoint import Every
from ddlsim.scenario import ScenarioProblems, from_mapping
from ddlsim.scenario.network_sections import SecureAggregation

STAGES = (ADVERTISE, SHARE, COLLECT, UNMASK)
HERE = 3
"""The node that aggregates what nodes 0, 1 and 2 send."""


class ToOne(Plain):
    """Nodes send ten values and a number to node 3."""

    def __init__(self, begins_s=(0.0, 0.0, 0.0, 0.0)):
        self.begins_s, self.got, self.ended_s = begins_s, [], []

    def round(self, node, state, round_num):
        yield node.sleep(self.begins_s[node.id])
        if node.id != HERE:
            node.send([HERE], round_num, model=np.zeros(10), samples=3)
            yield node.sleep(10.0)  # a finished node would not leave
            return
        inbox = yield node.receive(round_num, range(HERE))
        self.got.append([message.src for message in inbox])
        self.ended_s.append(node.now_s)


def run(algorithm=None, absences=None, rounds=1, secure=None, **protocol):
    """Run four nodes with messages of half a second; return their actions."""
    algorithm, absences = algorithm or ToOne(), absences or {}
    settings = SecureAggregation(**{"threshold": 2, "value_bits": 16} | (secure or {}))
    made = assemble(
        algorithm,
        4,
        lambda env: equal_network(env, 4, 1e6, 1e6, 0.5, fidelity="latency", header_bytes=7),
        rounds=rounds,
        graph=[()] * 4,
        absences=absences,
        secure=settings,
        **protocol,
    )
    made.run()
    found = {}
    for row in made.transport.contents.rows():
        found[row["content"]] = found.get(row["content"], 0) + row["bytes"]
    return algorithm, made, found


@pytest.mark.parametrize(("users", "values", "factor"), [(2**10, 2**20, 1.73), (2**14, 2**24, 1.98)])
def test_bytes_of_a_user_equal_the_paper(users, values, factor):
    settings = SecureAggregation(value_bits=16)
    sent = sum(answer_bytes(settings, stage, users, users, values) for stage in STAGES)
    received = sum(news_bytes(settings, stage, users) for stage in STAGES)
    bits = {2**10: 26, 2**14: 30}[users]  # of 2^10 or 2^14 times 65535, and 0
    assert 8 * (sent + received) == 2 * users * 256 + (5 * users - 4) * 256 + values * bits
    assert round((sent + received) / (2 * values), 2) == factor


def test_three_users_and_their_bytes_by_hand():
    algorithm, made, found = run()
    assert algorithm.got == [[0, 1, 2]]
    # Eleven values below 3 * 65535 + 1 have 18 bits each: 24.75 bytes.
    assert found == {
        "public_keys": 3 * 64,
        "others_public_keys": 3 * 2 * 64,
        "encrypted_shares": 3 * 2 * 64,
        "others_encrypted_shares": 3 * 2 * 64,
        "masked_input": 3 * 25,
        "users_of_the_sum": 0,
        "unmasking_shares": 3 * 3 * 32,
        "header": 7 * 3 * 7,
    }
    assert made.network.all_bytes_sent() == sum(found.values())
    assert algorithm.ended_s == [3.5]  # seven messages one after the other
    assert made.rows == [(3.5, HERE, 0, "secure_sum", 3)]


def test_encryption_adds_its_bytes_to_each_pair_of_shares():
    _, _, found = run(secure={"encryption_bytes": 28})
    assert found["encrypted_shares"] == found["others_encrypted_shares"] == 3 * 2 * (64 + 28)


def test_node_leaving_before_its_input_arrives_is_left_out_and_unmasked():
    algorithm, made, found = run(absences={0: [(2.2, 1e6)]})
    assert algorithm.got == [[1, 2]]
    assert found["unmasking_shares"] == 2 * 3 * 32  # seeds of two, the mask key of the third
    assert made.rows == [(3.5, HERE, 0, "secure_sum", 2), (3.5, HERE, 0, "secure_dropouts", 1)]


def test_input_of_a_node_leaving_after_its_arrival_is_in_the_sum():
    algorithm, _, found = run(absences={0: [(2.7, 1e6)]})
    assert algorithm.got == [[0, 1, 2]]
    assert found["unmasking_shares"] == 2 * 3 * 32


def test_node_without_a_join_is_not_a_user():
    algorithm, made, found = run(absences={0: [(0.0, 1e6)]})
    assert algorithm.got == [[1, 2]]
    assert found["encrypted_shares"] == 2 * 64
    assert made.rows == [(3.5, HERE, 0, "secure_sum", 2)]


@pytest.mark.parametrize("leaves_s", [0.2, 1.2, 2.2])
def test_below_the_threshold_there_is_no_sum(leaves_s):
    algorithm, made, _ = run(absences={0: [(leaves_s, 1e6)]}, secure={"threshold": 3})
    assert algorithm.got == [[]]
    assert [row[3:] for row in made.rows] == [("secure_sum", 0), ("secure_dropouts", 3)]


def test_stage_continues_without_slow_users_after_its_time_out():
    algorithm, _, _ = run(ToOne((0.0, 0.0, 9.0, 0.0)), secure={"stage_timeout_s": 2.0})
    assert algorithm.got == [[0, 1]]
    assert algorithm.ended_s == [2.0 + 3.0]


def test_at_the_deadline_there_is_no_sum_yet():
    algorithm, made, _ = run(deadline_s=2.9)
    assert algorithm.got == [[]]
    assert made.rows[0] == (2.9, HERE, 0, "secure_sum", 0)


def test_input_arriving_after_its_round_makes_no_second_sum():
    """Node 2 starts each round half a second after the aggregator has abandoned it and continued."""
    algorithm, made, _ = run(ToOne((0.0, 0.0, 3.4, 0.0)), rounds=3, deadline_s=2.9, secure={"threshold": 3})
    assert algorithm.got == [[], [], []]
    assert [row[2] for row in made.rows if row[3] == "secure_sum"] == [0, 1, 2]


def test_offline_aggregator_has_no_sum_at_a_stage_timeout():
    """The aggregator leaves during the wait for node 2, which never answers."""
    absences = {2: [(0.1, 100.0)], HERE: [(1.0, 3.0)]}
    late = ToOne((0.0, 0.0, 50.0, 0.0))
    rows = run(late, absences, secure={"stage_timeout_s": 1.5})[1].rows
    assert not rows


def test_every_byte_of_a_sum_has_exactly_one_fate():
    use = run(absences={0: [(1.2, 3.0)]})[1].network.use()
    of_use = use.push_bytes + use.request_bytes + use.response_bytes + use.ack_bytes
    wasted = use.aborted_bytes + use.lost_bytes + use.unused_bytes
    assert (of_use + wasted + use.in_flight_bytes).tolist() == use.sent_bytes.tolist()
    assert use.push_bytes.sum() > 0 < use.aborted_bytes.sum()


def test_rounds_are_separate_sums():
    algorithm, made, _ = run(rounds=3, absences={0: [(2.2, 3.0)]})
    assert algorithm.got[0] == [1, 2]
    assert algorithm.got[2] == [0, 1, 2]
    assert len(made.rows) == 4


class Neighbors(Plain):
    """Every node sends to all others and sums the received values."""

    def __init__(self, num_nodes):
        self.got = [[] for _ in range(num_nodes)]

    def round(self, node, state, round_num):
        yield node.sleep(0.1 * (1 + node.id))
        node.send(node.others(), round_num, model=np.zeros(5))
        inbox = yield node.receive(round_num, node.others())
        self.got[node.id].append(len(inbox))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("lossy", [False, True])
def test_with_churn_and_losses_a_sum_has_enough_inputs_or_none(seed, lossy):
    rng, algorithm = np.random.default_rng(seed), Neighbors(6)
    starts_s = {int(node): float(rng.uniform(0.2, 4)) for node in rng.choice(6, 3, replace=False)}
    absences = {node: [(start_s, start_s + float(rng.uniform(0.1, 0.8)))] for node, start_s in starts_s.items()}
    made = assemble(
        algorithm,
        6,
        lambda env: equal_network(env, 6, 1e4, 1e4, 0.05, drop_prob=0.02 * lossy, on_drop="drop", seed=seed),
        rounds=6,
        graph=[()] * 6,
        absences=absences,
        secure=SecureAggregation(threshold=3),
    )
    made.run()
    inputs = [count for counts in algorithm.got for count in counts]
    assert set(inputs) <= {0, 3, 4, 5}
    assert max(inputs) == 5
    sums = [row[4] for row in made.rows if row[3] == "secure_sum"]
    assert sorted(count for count in sums if count) == sorted(count for count in inputs if count)


def test_sum_needs_two_users_or_the_requested_share():
    assert [threshold(SecureAggregation(threshold=2 / 3), users) for users in (1, 2, 3, 4, 6, 9)] == [2, 2, 3, 3, 5, 7]
    assert threshold(SecureAggregation(threshold=0.5), 6) == 4
    assert threshold(SecureAggregation(threshold=0.29), 100) == 30
    assert threshold(SecureAggregation(threshold=4), 3) == 4


BASE = {
    "rounds": 2,
    "nodes": {"clusters": [3, 2]},
    "model": {"name": "mlp", "hidden": [8]},
    "data": {"name": "fashion-mnist-mini"},
    "training": {"learning_rate": 0.05, "local_steps": 2},
    "topology": {"name": "complete"},
    "evaluation": {"every": 1},
}
SUMS = ("fedavg", {"name": "scaffold", "sends": "changes"}, "fedsim", "dpsgd", "gtsgd", "sgp")


def scenario(algorithm="dpsgd", **changes):
    part = algorithm if isinstance(algorithm, dict) else {"name": algorithm}
    return from_mapping(BASE | {"algorithm": part} | changes)


@pytest.mark.parametrize("algorithm", SUMS)
def test_secure_aggregation_keeps_the_models_and_takes_longer(tmp_path, algorithm):
    summaries = []
    for name, section in (("clear", None), ("secure", {"threshold": 2, "value_bits": 32})):
        runs.run(scenario(algorithm, secure_aggregation=section), out=tmp_path / name)
        summaries.append(summary_of(read(tmp_path / name)))
    clear, secure = summaries
    assert secure["accuracy"] == clear["accuracy"]
    assert secure["sim_time_s"] > clear["sim_time_s"]
    assert secure["bytes"]["total"] > clear["bytes"]["total"]
    assert secure["secure_aggregation"]["failed"] == secure["secure_aggregation"]["dropouts"] == 0
    assert secure["secure_aggregation"]["sums"] >= 2


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"algorithm": {"name": "facade"}}, "facade, with these options, uses them"),
        ({"algorithm": {"name": "dac"}}, "Use one of: fedavg"),
        ({"algorithm": {"name": "scaffold"}}, "with these options, uses them"),
        ({"algorithm": {"name": "el", "variant": "local"}}, "with these options, uses them"),
        ({"aggregation": {"name": "median"}}, "looks at single models, which secure_aggregation hides"),
        ({"network": {"compression": {"name": "int8"}}}, "secure_aggregation sums masked integers"),
        ({"mode": "async"}, "expected sync"),
        ({"protocol": {"deadline_s": 9.0, "late_messages": "keep"}}, "expected drop"),
        ({"secure_aggregation": {"threshold": 5}}, "expected at most 4 users, got 5"),
        ({"attacks": [{"name": "alie", "nodes": [0], "knowledge": "neighbors"}]}, "expected own or all"),
    ],
)
def test_scenarios_without_sums_of_whole_rounds_are_refused(changes, text):
    with pytest.raises(ScenarioProblems) as caught:
        scenario(**{"secure_aggregation": {}} | changes)
    assert text in str(caught.value)


@pytest.mark.parametrize("name", ["withholding", "dissensus", "flooding"])
def test_attacked_nodes_do_not_stall_a_sum(tmp_path, name):
    attacks = [{"name": name, "nodes": [0]} | ({"probability": 1.0} if name == "withholding" else {})]
    runs.run(scenario("fedavg", secure_aggregation={"threshold": 3}, attacks=attacks), out=tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    sums = [row["value"] for row in rows if row["name"] == "secure_sum"]
    assert sums == [4, 4] if name == "withholding" else sums == [5, 5]


def test_resumed_runs_end_with_the_same_bytes(tmp_path, monkeypatch):
    settings = ("algorithm={name: fedavg}", "secure_aggregation={threshold: 2}", "rounds=4")
    whole = run_whole(tmp_path / "whole", settings)
    run_until(tmp_path / "torn", settings, 3, 2, monkeypatch)
    runs.resume(tmp_path / "torn", checkpoint_every=Every(rounds=1))
    assert outcome(tmp_path / "torn") == whole


def test_early_stopped_nodes_do_not_count_for_the_threshold(tmp_path):
    settings = {
        "validation": {"source": "node", "fraction": 0.2},
        "training": {"learning_rate": 0.5, "batch_size": 8, "local_steps": 3, "early_stopping": {"patience": 1}},
        "partition": {"name": "random", "samples_per_node": 100},
        "rounds": 8,
    }
    runs.run(scenario("fedavg", secure_aggregation={}, **settings), out=tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    stopped = [row["round"] for row in rows if row["name"] == "stopped"]
    users = [sum(last >= number for last in stopped) for number in range(1, max(stopped) + 1)]
    sums = [row["value"] for row in rows if row["name"] == "secure_sum"]
    assert len(stopped) == 5 and 3 in users  # of five users, four must remain
    assert sums[: len(users)] == [count if count >= 2 else 0 for count in users]
