"""Closing of rounds and late messages: three nodes, of which node 2 is ten times slower.

A step takes 0.1 s on nodes 0 and 1 and 1 s on node 2, a message 0.01 s. With a deadline of 0.5 s the rounds of nodes 0
and 1 close at 0.6, 1.2 and 1.8 s; node 2's messages of rounds 0, 1 and 2 arrive at 1.01, 2.01 and 3.01 s.
"""

import re
from functools import partialmethod

import numpy as np
import pytest
from small_network import equal_network
from small_simulation import Plain, assemble

from ddlsim.algorithms.decentralized.gossip import GossipLearning
from ddlsim.devices.base import StepTimeTrace
from ddlsim.foundation.errors import ScenarioError


class Exchange(Plain):
    """Records per (node, round) the senders and rounds of received messages, and the time.

    Args:
        how: push: send and receive; pull: publish and pull; look: send and read without waiting; wait: send and wait in
            either mode.
    """

    def __init__(self, how="push"):
        self.how = how
        self.got: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.at_s: dict[tuple[int, int], float] = {}

    def round(self, node, state, round_num):
        yield node.train((None,))
        if self.how == "pull":
            node.publish(round_num, number=round_num)
            inbox = yield node.pull(node.peers(round_num), round_num)
        else:
            node.send(node.peers(round_num), round_num, number=round_num)
            inbox = yield node.receive(round_num, wait={"push": None, "wait": True, "look": False}[self.how])
        self.got[node.id, round_num] = [(message.src, message.round_num) for message in inbox]
        self.at_s[node.id, round_num] = node.now_s


def simulate(algorithm, rounds=3, drop_prob=0.0, on_drop="drop", header_bytes=0, network=None, **settings):
    def fast(env):
        losses = {"drop_prob": drop_prob, "on_drop": on_drop}
        return equal_network(env, 3, 1e9, 1e9, 0.01, fidelity="latency", header_bytes=header_bytes, **losses)

    settings.setdefault("step_time_s", np.array([0.1, 0.1, 1.0]))
    graph = ((1, 2), (0, 2), (0, 1))
    made = assemble(algorithm, 3, network or fast, rounds=rounds, graph=graph, **settings)
    made.run()
    return made


class Wrapped(Exchange):
    """Its round is a function without a name, and its verbs are lists."""

    def _steps(self, node, state, round_num, seconds):
        yield list(node.sleep(seconds))
        yield from Exchange.round(self, node, state, round_num)

    round = partialmethod(_steps, seconds=0.5)


def test_algorithm_may_wrap_the_round_of_another():
    exchange = Wrapped()
    simulate(exchange)
    assert exchange.at_s[0, 0] == pytest.approx(1.51)


def test_without_a_deadline_a_round_waits_for_the_slowest():
    exchange = Exchange()
    simulate(exchange)
    assert [exchange.got[0, r] for r in range(3)] == [[(1, r), (2, r)] for r in range(3)]
    assert exchange.at_s[0, 0] == pytest.approx(1.01)


@pytest.mark.parametrize("how", ["push", "pull"])
def test_round_closes_at_its_deadline_and_drops_late_messages(how):
    exchange = Exchange(how)
    simulate(exchange, deadline_s=0.5)
    assert [exchange.got[0, r] for r in range(3)] == [[(1, 0)], [(1, 1)], [(1, 2)]]
    assert [exchange.at_s[0, r] for r in range(3)] == pytest.approx([0.6, 1.2, 1.8])


@pytest.mark.parametrize("late", ["drop", "keep"])
@pytest.mark.parametrize("how", ["push", "wait"])
def test_message_that_arrives_at_the_deadline_counts(how, late):
    exchange = Exchange(how)
    simulate(exchange, rounds=30, deadline_s=0.01, late_messages=late, step_time_s=np.array([0.1, 0.1, 0.1]))
    assert exchange.got == {
        (node, r): [(peer, r) for peer in range(3) if peer != node] for node in range(3) for r in range(30)
    }


@pytest.mark.parametrize("how", ["push", "pull"])
def test_kept_late_message_is_merged_one_round_later(how):
    exchange = Exchange(how)
    simulate(exchange, deadline_s=0.5, late_messages="keep")
    assert [exchange.got[0, r] for r in range(3)] == [[(1, 0)], [(1, 1), (2, 0)], [(1, 2)]]


def test_late_message_does_not_close_the_round_of_its_arrival():
    exchange = Exchange()
    simulate(exchange, deadline_s=0.5, late_messages="keep")
    assert exchange.at_s[0, 1] == pytest.approx(1.2)  # and not 1.01


def test_slow_node_receives_the_messages_of_its_rounds():
    exchange = Exchange()
    simulation = simulate(exchange, deadline_s=0.5)
    assert [exchange.got[2, r] for r in range(3)] == [[(0, r), (1, r)] for r in range(3)]
    assert simulation.env.now == pytest.approx(3.0)


def test_a_generous_deadline_changes_nothing():
    runs = [Exchange(), Exchange()]
    simulate(runs[0])
    simulate(runs[1], deadline_s=10.0)
    assert (runs[0].got, runs[0].at_s) == (runs[1].got, runs[1].at_s)


@pytest.mark.parametrize("how", ["push", "pull"])
def test_waits_end_when_nodes_leave_before_the_deadline(how):
    exchange = Exchange(how)
    simulation = simulate(exchange, deadline_s=0.5, absences={0: [(0.3, 0.55)], 2: [(0.5, 1e9)]})
    assert [member.finished for member in simulation.members] == [True, True, False]
    assert exchange.at_s[1, 0] == pytest.approx(0.5)  # node 0 has sent, node 2 has left: no more messages can arrive


@pytest.mark.parametrize("staleness_s", [None, 0.15])
def test_a_lasting_difference_in_speed_silences_no_asynchronous_node(staleness_s):
    exchange = Exchange()
    simulate(exchange, rounds=30, synchronous=False, staleness_s=staleness_s)
    # Every message waits at most 0.1 s, although node 2 is in round 0 while the others are in rounds 0 to 10.
    assert [exchange.got[0, r] for r in range(1, 10)] == [[(1, r - 1)] for r in range(1, 10)]
    assert exchange.got[0, 10] == [(1, 9), (2, 0)] and exchange.got[0, 20] == [(1, 19), (2, 1)]
    assert exchange.got[2, 0] == [(0, 8), (1, 8)]


def test_messages_sent_longer_ago_than_the_staleness_limit_are_unused():
    limited, unlimited = Exchange(), Exchange()
    simulation = simulate(limited, rounds=5, synchronous=False, staleness_s=0.49, header_bytes=8)
    simulate(unlimited, rounds=5, synchronous=False)
    # Nodes 0 and 1 send their last messages at 0.5 s; node 2 looks at 1 s.
    assert unlimited.got[2, 0] == [(0, 4), (1, 4)] and limited.got[2, 0] == []
    assert simulation.network.use().unused_bytes[:2].tolist() == [5 * 16 + 16] * 2


def test_node_waiting_in_either_mode_gets_every_message_of_the_round():
    exchange = Exchange("wait")
    simulate(exchange, rounds=3, synchronous=False)
    assert exchange.got[0, 2] == [(1, 2), (2, 2)]


def test_reading_without_waiting_does_not_wait_in_synchronous_mode():
    exchange = Exchange("look")
    simulate(exchange)
    assert exchange.at_s[0, 2] == pytest.approx(0.3)
    assert exchange.got[0, 2] == [(1, 1)]


@pytest.mark.parametrize("synchronous", [True, False])
def test_nodes_of_gossip_end_independently(synchronous):
    simulation = simulate(GossipLearning(), synchronous=synchronous, evaluated=True)
    ended = {row["node"]: row["time_s"] for row in simulation.records.rows if row["name"] == "accuracy"}
    assert ended == pytest.approx({0: 0.3, 1: 0.3, 2: 3.0})


@pytest.mark.parametrize("how", ["push", "pull"])
def test_round_closes_without_dropped_messages(how):
    exchange = Exchange(how)
    simulate(exchange, drop_prob=1.0)
    assert set(exchange.got) == {(node, r) for node in range(3) for r in range(3)}
    assert not any(exchange.got.values())
    # a push, or the unanswered request of a pull, is abandoned at its expected arrival
    assert exchange.at_s[2, 2] == pytest.approx(3.0 if how == "push" else 3.03)


def test_some_dropped_messages_are_missing_and_the_others_merged():
    exchange = Exchange()
    simulate(exchange, drop_prob=0.5, rounds=30)
    heard = [len(got) for got in exchange.got.values()]
    assert set(heard) == {0, 1, 2}
    assert 60 < sum(heard) < 120  # of 180 messages each is lost with probability 1/2: 90, standard deviation 7


@pytest.mark.parametrize("how", ["push", "pull"])
def test_retransmission_delays_a_round_until_all_messages_arrive(how):
    exchange = Exchange(how)
    simulation = simulate(exchange, drop_prob=0.5, on_drop="retransmit", rounds=30, step_time_s=np.full(3, 0.1))
    assert all(len(got) == 2 for got in exchange.got.values())
    # without losses 30 x (0.1 + 0.01) s; the last of the two messages that a node waits for needs 2.67 tries on average
    assert simulation.env.now > 3.3 + 30 * 0.01


def test_speed_follows_a_trace():
    exchange = Exchange("look")
    trace = StepTimeTrace(((0.0, 0.15), (0.0,), (0.0,)), ((0.1, 0.4), (1.0,), (1.0,)))
    simulate(exchange, step_time_s=trace)
    assert [exchange.at_s[0, r] for r in range(3)] == pytest.approx([0.1, 0.15 + 0.2, 0.15 + 0.2 + 0.4])


@pytest.mark.parametrize(("late", "wasted"), [(False, 2), (True, 0)])
def test_dropped_late_messages_count_as_wasted(late, wasted):
    simulation = simulate(Exchange(), deadline_s=0.5, late_messages="keep" if late else "drop", rounds=2)
    # node 2's messages of round 0 come to nodes 0 and 1 in their round 1: of use there, or of none; those of round 1
    # come when the two are through
    use = simulation.network.use()
    assert use.unused_bytes.tolist() == [0, 0, 8 * wasted]
    assert simulation.network.traffic.wasted_bytes.sum() == 8 * wasted
    assert use.in_flight_bytes.tolist() == [0, 0, 16]


@pytest.mark.parametrize("timeout_s", [None, 2.5])
def test_late_message_uses_bandwidth_until_its_timeout(timeout_s):
    def network(env):
        made = equal_network(env, 3, 1000.0, 1000.0, 0.0, header_bytes=992, timeout_s=timeout_s)

        def slow_at_first():
            made.set_capacity(2, 100.0, 1000.0)
            yield env.timeout(2.5)
            made.set_capacity(2, 1000.0, 1000.0)

        env.process(slow_at_first())
        return made

    # Two messages of 1000 bytes share an uplink, 2 s if it is otherwise idle. Messages of node 2 miss round 0, which
    # closes at 2.5 s. If they continue, they halve the rate of round 1's messages, which then also miss their round.
    exchange = Exchange()
    simulation = simulate(exchange, step_time_s=np.zeros(3), deadline_s=2.5, network=network)
    of_round_1 = [(1, 1), (2, 1)] if timeout_s else [(1, 1)]
    assert [exchange.got[0, r] for r in range(2)] == [[(1, 0)], of_round_1]
    use = simulation.network.use()
    assert use.unused_bytes[2] == (0 if timeout_s else 4000)  # of both rounds, to the last byte
    assert use.aborted_bytes[2] == (pytest.approx(225, abs=2) if timeout_s else 0)


class NoSteps(Plain):
    def round(self, node, state, round_num):
        return 3


class NoVerb(Plain):
    def round(self, node, state, round_num):
        yield node.train((None,))
        yield 5


class NoCandidates(Plain):
    def round(self, node, state, round_num):
        yield node.train((None,))

    def serving(self, node, state):
        return None


@pytest.mark.parametrize(
    ("algorithm", "text"),
    [
        (NoSteps, "algorithm: round of NoSteps returns a int, expected a generator"),
        (NoVerb, "yields a int, expected a verb of the node that takes simulated time, such as `yield node.receive("),
        (NoCandidates, "algorithm: serving of NoCandidates returns nothing (None), expected ddlsim.node.candid"),
    ],
)
def test_returned_and_yielded_values_of_an_algorithm_are_checked(algorithm, text):
    with pytest.raises(ScenarioError, match=re.escape(text)) as raised:
        simulate(algorithm(), rounds=1, evaluated=True)
    if algorithm is NoVerb:
        assert re.match(r"\S*test_rounds.py:\d+: round of NoVerb yields", str(raised.value))
