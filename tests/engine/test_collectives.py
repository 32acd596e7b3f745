"""Collective operations in whole simulations: times by closed forms, bytes, values, and members that leave."""

import numpy as np
import pytest
from small_network import equal_network
from small_simulation import Plain, assemble
from small_vectors import VALUES, Vectors, filled, mean_of

from ddlsim.foundation.errors import DdlsimError
from ddlsim.network.collective_schedules import SCHEDULES
from ddlsim.network.link_table import LinkTable
from ddlsim.network.network import Network

BANDWIDTH, LATENCY_S = 1000.0, 0.25
BYTES = 4 * VALUES


class OneCollective(Plain):
    """Each node calls one collective at its time; `outcomes` and `ended_s` are by node."""

    def __init__(self, verb, algorithm, starts_s=(), **options):
        self.verb, self.algorithm, self.starts_s, self.options = verb, algorithm, starts_s, options
        self.outcomes, self.ended_s = {}, {}

    def round(self, node, state, round_num):
        if self.starts_s:
            yield node.sleep(self.starts_s[node.id])
        arguments = dict(self.options)
        group = arguments.pop("group", range(node.num_nodes))
        if node.id not in group:
            return
        arguments |= {"group": group, "round_num": round_num, "algorithm": self.algorithm}
        self.outcomes[node.id] = yield getattr(node, self.verb)(filled(node.id), **arguments)
        self.ended_s[node.id] = node.now_s


def simulated(algorithm, num_nodes, absences=(), network=None, **settings):
    def make(env):
        return network(env) if network else equal_network(env, num_nodes, BANDWIDTH, BANDWIDTH, LATENCY_S)

    made = assemble(algorithm, num_nodes, make, rounds=1, absences=absences, compute=Vectors(), **settings)
    made.run()
    return made


B, L = BYTES / BANDWIDTH, LATENCY_S
CLOSED_FORMS = [
    ("all_reduce", "ring", 6, 10 * (B / 6 + L)),
    ("all_reduce", "direct", 6, 2 * (5 * B / 6 + L)),
    ("all_reduce", "halving_doubling", 8, 14 * B / 8 + 6 * L),
    ("all_reduce", "halving_doubling", 6, 6 * B / 4 + 4 * L + 2 * (B + L)),
    ("all_reduce", "tree", 6, 6 * (B + L)),
    ("all_reduce", "server", 6, 2 * (5 * B + L)),
    ("reduce_scatter", "ring", 6, 5 * (B / 6 + L)),
    ("reduce_scatter", "direct", 6, 5 * B / 6 + L),
    ("all_gather", "ring", 6, 5 * (B + L)),
    ("all_gather", "direct", 6, 5 * B + L),
    ("broadcast", "tree", 6, 3 * (B + L)),
    ("broadcast", "ring", 6, 5 * B / 6 + L + 5 * (B / 6 + L)),
    ("broadcast", "direct", 6, 5 * B + L),
]


@pytest.mark.parametrize(("verb", "algorithm", "num_nodes", "expected_s"), CLOSED_FORMS)
def test_collectives_take_the_time_of_the_closed_form(verb, algorithm, num_nodes, expected_s):
    one = OneCollective(verb, algorithm, **({"root": 2} if verb == "broadcast" else {}))
    made = simulated(one, num_nodes)
    assert max(one.ended_s.values()) == pytest.approx(expected_s, rel=1e-6)
    everyone = range(num_nodes)
    for node, outcome in one.outcomes.items():
        if verb == "all_reduce":
            np.testing.assert_allclose(outcome.value, mean_of(*everyone), rtol=1e-12)
        elif verb == "reduce_scatter":
            part = slice(VALUES * node // num_nodes, VALUES * (node + 1) // num_nodes)
            np.testing.assert_allclose(outcome.value, mean_of(*everyone)[part], rtol=1e-12)
        elif verb == "all_gather":
            assert list(outcome) == list(everyone)
            assert all((outcome[each].value == mean_of(each)).all() for each in everyone)
        else:
            assert (outcome.value == mean_of(2)).all()
    assert made.network.all_bytes_sent() == sum(
        size for step in SCHEDULES[verb][algorithm](num_nodes, BYTES, ()) for _, _, size in step
    )


def test_hierarchical_all_reduce_crosses_sites_in_one_ring():
    one = OneCollective("all_reduce", "hierarchical", sites=[[4, 0, 1, 2], [3, 5]])
    simulated(one, 6)
    assert max(one.ended_s.values()) == pytest.approx(2 * 2 * (B + L) + 2 * (B / 2 + L), rel=1e-6)
    np.testing.assert_allclose(one.outcomes[5].value, mean_of(*range(6)), rtol=1e-12)


UP, DOWN = np.array([900.0, 300.0, 2000.0, 700.0]), np.array([500.0, 1500.0, 400.0, 1000.0])
LATENCIES_S = np.array([[0, 0.3, 0.1, 0.7], [0.2, 0, 0.9, 0.1], [0.4, 0.6, 0, 0.2], [1.1, 0.05, 0.3, 0]])
STARTS_S = (0.0, 2.5, 0.3, 11.0)


def exchanges(order):
    """Return the end of each node for sends (sender, receiver, bytes) in order, one per link at a time."""
    ready = dict(enumerate(STARTS_S))
    for step in order:
        ends = [
            (src, dst, max(ready[src], ready[dst]) + LATENCIES_S[src, dst] + size / min(UP[src], DOWN[dst]))
            for src, dst, size in step
        ]
        for node in ready:
            ready[node] = max([ready[node], *(end for src, dst, end in ends if node in (src, dst))])
    return ready


QUARTER, HALF = BYTES / 4, BYTES / 2
RING = [[(i, (i + 1) % 4, QUARTER) for i in range(4)]] * 6
HALVINGS = [[(0, 2, HALF), (2, 0, HALF), (1, 3, HALF), (3, 1, HALF)]]
HALVINGS += [[(0, 1, QUARTER), (1, 0, QUARTER), (2, 3, QUARTER), (3, 2, QUARTER)]]


@pytest.mark.parametrize(("algorithm", "order"), [("ring", RING), ("halving_doubling", HALVINGS + HALVINGS[::-1])])
def test_stragglers_on_unequal_links_delay_their_dependents(algorithm, order):
    one = OneCollective("all_reduce", algorithm, STARTS_S)
    simulated(one, 4, network=lambda env: Network(env, LinkTable(UP, DOWN, LATENCIES_S)))
    assert one.ended_s == pytest.approx(exchanges(order), rel=1e-6)


@pytest.mark.parametrize(("fidelity", "expected_s"), [("ideal", 0), ("latency", 6 * LATENCY_S)])
def test_collectives_run_at_every_fidelity(fidelity, expected_s):
    one = OneCollective("all_reduce", "ring")
    simulated(one, 4, network=lambda env: equal_network(env, 4, 1e3, 1e3, LATENCY_S, fidelity=fidelity))
    assert one.ended_s == pytest.approx(dict.fromkeys(range(4), expected_s))
    slower = OneCollective("all_reduce", "ring")
    simulated(slower, 4, network=lambda env: equal_network(env, 4, 1e3, 1e3, LATENCY_S, fidelity="tcp"))
    assert slower.ended_s[0] > 6 * (B / 4 + L)


GONE_S = 1e12


def plain_network(env):
    return equal_network(env, 4, 1e3, 1e3)


@pytest.mark.parametrize(("on_leave", "end_s", "wasted"), [("rebuild", 7.04, 6 * 960 + 1080), ("continue", 6.3, 1080)])
def test_other_members_finish_after_a_departure(on_leave, end_s, wasted):
    """Parts of 960 bytes: node 3 leaves in the second of six steps, of 0.96 s each.

    Rebuilt, the parts have 1280 bytes; 420 bytes of the parts that are on their way to nodes 1 and 2 share their links
    with the first of them. In place of node 3, node 2 sends to node 0 from 1.5 s on, five times.
    """
    one = OneCollective("all_reduce", "ring", on_leave=on_leave)
    made = simulated(one, 4, network=plain_network, absences={3: [(1.5, GONE_S)]})
    assert one.ended_s == pytest.approx(dict.fromkeys(range(3), end_s))
    assert made.network.traffic.wasted_bytes.sum() == wasted
    for outcome in one.outcomes.values():
        np.testing.assert_allclose(outcome.value, mean_of(0, 1, 2), rtol=1e-12)


@pytest.mark.parametrize(("left_s", "end_s"), [(0.5, 1 + 4 * 1.28), (3.0, 3 + 4 * 1.28)])
def test_members_do_not_wait_for_a_member_that_never_returns(left_s, end_s):
    one = OneCollective("all_reduce", "ring", starts_s=(1.0, 1.0, 1.0, 10.0))
    simulated(one, 4, network=plain_network, absences={3: [(left_s, GONE_S)]})
    assert one.ended_s == pytest.approx(dict.fromkeys(range(3), end_s))
    np.testing.assert_allclose(one.outcomes[0].value, mean_of(0, 1, 2), rtol=1e-12)


def test_returning_member_does_not_rejoin_its_collective():
    one = OneCollective("all_reduce", "ring")
    simulated(one, 4, network=plain_network, absences={3: [(1.5, 2.0)]}, synchronous=False)
    assert one.ended_s == pytest.approx({**dict.fromkeys(range(3), 7.04), 3: 2.0})
    np.testing.assert_allclose(one.outcomes[3].value, mean_of(3))


def test_broadcast_without_its_root_is_none():
    one = OneCollective("broadcast", "tree", starts_s=(1.0, 1.0, 1.0, 1.0), root=2)
    simulated(one, 4, network=plain_network, absences={2: [(1.5, GONE_S)]})
    assert one.outcomes == {0: None, 1: None, 3: None} and set(one.ended_s.values()) == {1.5}


def test_contributions_are_final_once_a_member_has_the_mean():
    """Node 3 has sent its content, and receives the mean at half the speed of nodes 1 and 2."""
    links = LinkTable(np.array([3e3, 1e3, 1e3, 1e3]), np.array([3e3, 1e3, 1e3, 500.0]), 0.0)
    one = OneCollective("all_reduce", "server")
    simulated(one, 4, network=lambda env: Network(env, links), absences={3: [(2.5 * B, GONE_S)]})
    assert one.ended_s == pytest.approx({1: 2 * B, 2: 2 * B, 0: 2.5 * B})
    for outcome in one.outcomes.values():
        np.testing.assert_allclose(outcome.value, mean_of(*range(4)), rtol=1e-12)


def test_lost_messages_are_sent_again():
    one = OneCollective("all_reduce", "ring")
    simulated(one, 4, network=lambda env: equal_network(env, 4, 1e3, 1e3, drop_prob=0.4, on_drop="drop"))
    assert one.ended_s[0] > 6 * 0.96 + 0.9
    np.testing.assert_allclose(one.outcomes[0].value, mean_of(*range(4)), rtol=1e-12)


class Deadlock(OneCollective):
    """Node 2 waits for a message before it calls."""

    def round(self, node, state, round_num):
        if node.id == 2:
            yield node.receive(round_num, [0])
        yield from super().round(node, state, round_num)


def test_error_names_the_member_that_never_calls():
    with pytest.raises(DdlsimError, match=r"node 0 waits for node.all_reduce of round 0 from 2 \(open waits: 4\)"):
        simulated(Deadlock("all_reduce", "ring"), 4)


def test_group_of_one_ends_at_once_without_bytes():
    for verb, options in (("all_reduce", {}), ("reduce_scatter", {}), ("broadcast", {"root": 0})):
        one = OneCollective(verb, "direct", group=(0,), **options)
        made = simulated(one, 3)
        assert one.ended_s == {0: 0} and made.network.all_bytes_sent() == 0
        assert (one.outcomes[0].value == mean_of(0)).all()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"group": (0, 1, 1, 2)},
            r"node.all_reduce: expected different nodes as group, node 0 among them, got 0, 1, 1",
        ),
        ({"group": (0, 7)}, r"node.all_reduce: expected ids of nodes, 0 to 2, got \[0, 7\]"),
        ({"deadline_s": 3}, r"expected the options on_leave and wire_bytes, got deadline_s"),
        ({"on_leave": "wait"}, r"expected on_leave rebuild or continue, got 'wait'"),
        (
            {"sites": [[0, 1]], "algorithm": "hierarchical"},
            r"sites with each member of the group once, got \[\[0, 1\]\]",
        ),
        ({"algorithm": "rings"}, r"expected the algorithm ring, direct, .*, got 'rings'"),
    ],
)
def test_invalid_arguments_of_collectives_are_errors(options, text):
    with pytest.raises(DdlsimError, match=text):
        simulated(OneCollective("all_reduce", **{"algorithm": "ring", **options}), 3)


class Unequal(OneCollective):
    """Node 1 has chosen another algorithm."""

    def round(self, node, state, round_num):
        self.algorithm = "tree" if node.id == 1 else "ring"
        yield from super().round(node, state, round_num)


def test_error_names_members_with_unequal_arguments():
    with pytest.raises(
        DdlsimError, match=r"equal arguments from all members, got algorithm=ring.* from node 1 algorithm=tree"
    ):
        simulated(Unequal("all_reduce", ""), 3)
