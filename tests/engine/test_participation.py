"""Nodes that do not join a round: three connected nodes, of which node 2 is ten times slower.

A step takes 0.1 s on nodes 0 and 1 and 1 s on node 2, a message 0.01 s. Node 2 does not join round 0, node 1 not round
1; all join round 2.
"""

import json

import numpy as np
import pytest
from small_network import equal_network
from small_simulation import Plain, assemble

import ddlsim
from ddlsim.foundation.errors import ScenarioError
from ddlsim.node.run import Run
from ddlsim.scenario import load

JOINS = [[True, True, False], [True, False, True], [True, True, True]]
ALL = [[1, 2], [0, 2], [0, 1]]


class Exchange(Plain):
    """Stores the senders and times of the messages that a node has received in a round.

    Args:
        how: push: send to the peers and receive; others: send to all other nodes and wait for them; pull: pull from all
            other nodes.
    """

    def __init__(self, how):
        self.how, self.got, self.at_s = how, {}, {}

    def round(self, node, state, round_num):
        yield node.train((None,))
        if self.how == "pull":
            node.publish(round_num, number=1)
            inbox = yield node.pull(node.others(), round_num)
        elif self.how == "push":
            node.send(node.peers(round_num), round_num, number=1)
            inbox = yield node.receive(round_num)
        else:
            node.send(node.others(), round_num, number=1)
            inbox = yield node.receive(round_num, node.others())
        self.got[round_num, node.id] = [message.src for message in inbox]
        self.at_s[round_num, node.id] = round(node.now_s, 6)


def simulate(how, **settings):
    exchange = Exchange(how)
    simulation = assemble(
        exchange,
        3,
        lambda env: equal_network(env, 3, 1e9, 1e9, 0.01, fidelity="latency", header_bytes=1),
        rounds=3,
        step_time_s=np.array([0.1, 0.1, 1.0]),
        graph=ALL,
        joins=JOINS,
        **settings,
    )
    simulation.run()
    return exchange, simulation


@pytest.mark.parametrize("how", ["push", "others"])
def test_absent_node_neither_sends_nor_delays_its_neighbors(how):
    exchange, simulation = simulate(how)
    assert exchange.got == {
        **{(0, 0): [1], (0, 1): [0]},
        **{(1, 0): [2], (1, 2): [0]},
        **{(2, 0): [1, 2], (2, 1): [0, 2], (2, 2): [0, 1]},
    }
    # Node 2 is idle until 1 s and trains until 2 s and 3 s; node 1 is idle from 0.11 s to 0.21 s.
    assert exchange.at_s == {
        **{(0, 0): 0.11, (0, 1): 0.11},
        **{(1, 0): 2.01, (1, 2): 2.0},
        **{(2, 0): 3.01, (2, 1): 3.01, (2, 2): 3.0},
    }
    assert simulation.network.all_bytes_sent() == 10 * 9  # 2, 2 and 6 messages of a header and a number
    rows = [(row["node"], row["round"], row["time_s"]) for row in simulation.records.rows if row["name"] == "sits_out"]
    assert rows == [(2, 1, 0.0), (1, 2, pytest.approx(0.11))]


def test_absent_node_answers_no_pulls():
    exchange, _ = simulate("pull")
    assert [exchange.got[0, node] for node in (0, 1)] == [[1], [0]]
    assert [exchange.got[1, node] for node in (0, 2)] == [[2], [0]]


def test_absent_node_of_an_asynchronous_run_is_idle_in_its_rounds():
    exchange, _ = simulate("pull", synchronous=False)
    # Node 2 is idle in its round 0, until 1 s: all rounds of nodes 0 and 1 are over by then.
    assert [exchange.got[round_num, 0] for round_num in range(3)] == [[1], [], [1]]
    assert exchange.at_s[2, 2] == 3.04 and exchange.got[1, 2] == [0, 1]


def test_participants_follow_the_probability_and_the_seed():
    def joined(num_nodes, seed):
        run = Run(seed, 300, np.zeros(num_nodes, int), lambda _: [], lambda *_: 1, participation=0.8)
        return np.array([[run.takes_part(node, round_num) for node in range(num_nodes)] for round_num in range(300)])

    drawn = joined(50, seed=1)
    assert drawn.mean() == pytest.approx(0.8, abs=0.01)
    assert np.abs(drawn.mean(axis=0) - 0.8).max() < 0.1 and np.abs(drawn.mean(axis=1) - 0.8).max() < 0.25
    assert (joined(60, seed=1)[:, :50] == drawn).all() and (joined(50, seed=2) != drawn).any()


@pytest.mark.parametrize("algorithm", ["dpsgd", "fedavg"])
def test_absent_node_keeps_its_model(algorithm, tmp_path):
    settings = {"algorithm": {"name": algorithm}, "participation": 0.5, "evaluation.every": 1}
    ddlsim.run("smoke", set=settings, out=tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    loss = {(row["round"], row["node"]): row["value"] for row in rows if row["name"] == "test_loss"}
    absent = {(row["round"], row["node"]) for row in rows if row["name"] == "sits_out"}
    same = {key for key in loss if key[0] > 1 and loss[key] == loss[key[0] - 1, key[1]]}
    assert same == {key for key in absent if key[0] > 1} and len(loss) == 6 * 8 and len(absent) > 10


@pytest.mark.parametrize(
    ("value", "text"), [("0", "a number above 0, got 0"), ("1.2", "a number of at most 1, got 1.2")]
)
def test_invalid_participation_is_an_error(value, text):
    with pytest.raises(ScenarioError, match=f"participation: expected {text}") as error:
        load("smoke", [f"participation={value}"])
    assert len(str(error.value).splitlines()) == 1
