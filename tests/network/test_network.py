"""Messages through SimPy: deliveries, their times and counts. Capacities in bytes/s."""

import re

import numpy as np
import pytest
from small_network import SmallNetwork

from ddlsim.foundation.errors import ScenarioError
from ddlsim.network.link_table import latencies
from ddlsim.network.messages.message import Message


def test_flow_latency_and_ideal_differ_only_in_time():
    times = {}
    for fidelity in ("flow", "latency", "ideal"):
        net = SmallNetwork(latency_s=0.5, fidelity=fidelity)
        net.network.send([Message(0, peer, 0, "push", None, 990, 10) for peer in (1, 2)])
        net.env.run()
        times[fidelity] = [time for _, time, *_ in net.log]
        rows = [list(row.values()) for row in net.network.traffic.rows()]
        assert rows == [[0, 1, 1, 990, 10, 0, 0], [0, 2, 1, 990, 10, 0, 0]]
        assert net.network.bytes_sent(0) == 2000
    assert times == {"flow": [2.5, 2.5], "latency": [0.5, 0.5], "ideal": [0.0, 0.0]}


def test_ideal_delivery_uses_the_event_queue():
    net = SmallNetwork(fidelity="ideal")
    net.send(0, 1)
    assert net.log == []
    net.env.run()
    assert net.log == [("arrived", 0, 0, 1)]


def test_simultaneous_messages_are_delivered_in_order_of_sending():
    net = SmallNetwork(num_nodes=6)
    for src in (5, 3, 4):
        net.send(src, src - 3)
    net.env.run()
    assert [src for _, _, src, _ in net.log] == [5, 3, 4]


@pytest.mark.parametrize(
    "latency_s",
    [
        np.array([0.1, 0.2, 0.4]),
        np.array([[0, 0.3, 0.5], [0.3, 0, 0.6], [0.5, 0.6, 0]]),
        lambda src, dst: {1: 0.3, 2: 0.5}[dst],
    ],
)
def test_latency_may_be_per_access_link_per_pair_or_a_function(latency_s):
    net = SmallNetwork(latency_s=latency_s, fidelity="latency")
    net.send(0, 1)
    net.send(0, 2)
    net.env.run()
    assert [time for _, time, *_ in net.log] == [0.3, 0.5]


@pytest.mark.parametrize(("said", "got"), [(None, "nothing (None)"), ("x", "a str"), (-1.0, "-1.0")])
def test_result_of_a_latency_function_must_be_a_time(said, got):
    expected = re.escape(f"links: latency_s(0, 1): expected seconds of 0 or more, got {got}.")
    with pytest.raises(ScenarioError, match=expected):
        latencies(lambda src, dst: said, 2).of(0, 1)


def test_latency_table_of_the_wrong_shape_is_an_error():
    with pytest.raises(ValueError, match=r"\[3\] or \[3, 3\], got \[2\]"):
        SmallNetwork(latency_s=[0.1, 0.2])


def test_offline_node_receives_nothing_and_its_partial_bytes_are_wasted():
    net = SmallNetwork()
    net.send(0, 1)
    net.send(1, 2)
    net.at(0.25, lambda: net.network.remove_node(1))
    net.at(0.5, lambda: net.send(2, 1))
    net.at(0.75, lambda: net.network.return_node(1))
    net.at(0.75, lambda: net.send(2, 1, 500))
    net.env.run()
    assert net.log == [
        ("aborted", 0.25, 0, 1),
        ("aborted", 0.25, 1, 2),
        ("aborted", 0.5, 2, 1),
        ("arrived", 1.25, 2, 1),
    ]
    assert [row["wasted_bytes"] for row in net.network.traffic.rows()] == [250, 250, 0]
    assert [net.network.bytes_sent(node) for node in range(3)] == [250, 250, 500]


def test_leaving_node_gets_no_later_delivery_of_its_instant():
    net = SmallNetwork(num_nodes=4, on_delivery=lambda message: leave(message))

    def leave(message):
        net.note("arrived")(message)
        net.network.remove_node(3)

    net.send(0, 1)
    net.send(2, 3)
    net.env.run()
    assert net.log == [("arrived", 1.0, 0, 1), ("aborted", 1.0, 2, 3)]
    assert [row["wasted_bytes"] for row in net.network.traffic.rows()] == [0, 1000]


def test_bytes_sent_counts_current_transfers():
    net = SmallNetwork()
    net.send(0, 1, 1000)
    seen = []
    net.at(0.3, lambda: seen.append(net.network.bytes_sent(0)))
    net.env.run()
    assert seen == [300]


def test_messages_share_the_links_on_their_route():
    net = SmallNetwork(num_nodes=4, shared_bytes_per_s=[800.0], route=lambda src, dst: [0] if src < 2 <= dst else [])
    net.send(0, 2, 400)
    net.send(1, 3, 400)
    net.send(2, 1, 500)
    net.env.run()
    assert net.log == [("arrived", 0.5, 2, 1), ("arrived", 1.0, 0, 2), ("arrived", 1.0, 1, 3)]


def test_capacity_zero_stalls_a_message_until_it_returns():
    net = SmallNetwork()
    net.send(0, 1)
    net.at(0.5, lambda: net.network.set_capacity(0, 0, 1000))
    net.at(7.5, lambda: net.network.set_capacity(0, 500, 1000))
    net.env.run()
    assert net.log == [("arrived", 8.5, 0, 1)]


def test_a_dropped_message_is_wasted_and_reported_when_it_should_have_arrived():
    net = SmallNetwork(drop_prob=1.0, on_drop="drop")
    net.send(0, 1)
    net.env.run()
    assert net.log == [("aborted", 1.0, 0, 1)]
    assert [row["wasted_bytes"] for row in net.network.traffic.rows()] == [1000]


def test_retransmission_repeats_the_whole_message_until_it_arrives():
    net = SmallNetwork(drop_prob=0.5, seed=3)
    for _ in range(200):
        net.send(0, 1, 10)
    net.env.run()
    row = next(net.network.traffic.rows())
    assert row["messages"] == len(net.log) == 200
    # attempts are geometric: 200 expected losses, standard deviation 20
    assert 100 < row["wasted_bytes"] / 10 < 300
    assert net.network.bytes_sent(0) == 2000 + row["wasted_bytes"]


def test_timed_out_message_frees_its_links():
    net = SmallNetwork(num_nodes=4, timeout_s=2.5)
    net.send(0, 1, 4000)
    net.send(2, 1, 1000)
    net.at(2.5, lambda: net.send(3, 1, 1000))
    net.env.run()
    assert net.log == [("arrived", 2.0, 2, 1), ("aborted", 2.5, 0, 1), ("arrived", 3.5, 3, 1)]
    assert [row["wasted_bytes"] for row in net.network.traffic.rows()] == [1500, 0, 0]


def test_message_arriving_at_its_timeout_is_delivered():
    net = SmallNetwork(timeout_s=1.0)
    net.send(0, 1, 1000)
    net.send(2, 2, 1000)
    net.env.run()
    assert net.log == [("arrived", 0, 2, 2), ("arrived", 1.0, 0, 1)]


@pytest.mark.parametrize("options", [{"capacity": 0.0}, {"latency_s": 4.0}, {"latency_s": 4.0, "fidelity": "latency"}])
def test_timed_out_message_is_not_sent_again(options):
    net = SmallNetwork(timeout_s=2.5, on_drop="retransmit", drop_prob=0.9, seed=1, **options)
    net.send(0, 1)
    net.env.run()
    assert net.log == [("aborted", 2.5, 0, 1)]


def test_retransmissions_share_the_time_of_their_message():
    net = SmallNetwork(num_nodes=2, timeout_s=2.5, on_drop="retransmit", drop_prob=1.0)
    net.send(0, 1)  # lost at 1 s and 2 s, timed out in the middle of the third try
    net.env.run()
    assert net.log == [("aborted", 2.5, 0, 1)]
    assert net.network.bytes_sent(0) == 2500


def test_a_message_lost_at_the_end_of_its_time_is_not_sent_again():
    net = SmallNetwork(num_nodes=2, timeout_s=2.0, on_drop="retransmit", drop_prob=1.0)
    net.at(0.1, lambda: net.send(0, 1))
    net.env.run()
    assert net.log == [("aborted", 2.1, 0, 1)]
    assert net.network.bytes_sent(0) == 2000


def test_losses_of_one_sender_do_not_depend_on_other_senders():
    lost = []
    for others in ((), (1,)):
        net = SmallNetwork(drop_prob=0.5, on_drop="drop", fidelity="latency", latency_s=0.1)
        for _ in range(40):
            for src in (0, *others):
                net.send(src, 2)
        net.env.run()
        lost.append([what for what, _, src, _ in net.log if src == 0])
    assert lost[0] == lost[1]
    assert len(set(lost[0])) == 2


def test_times_return_to_the_same_nanosecond():
    net = SmallNetwork(fidelity="latency", latency_s=0.1)
    chain = []

    def answer(message):
        chain.append(net.env.now)
        if len(chain) < 1000:
            net.send(message.dst, message.src)

    net.network._on_delivery = answer
    net.send(0, 1)
    net.env.run()
    assert [round(time_s * 1e9) for time_s in chain] == [10**8 * (i + 1) for i in range(1000)]


def test_after_years_of_simulated_time_events_still_keep_their_order():
    net = SmallNetwork(latency_s=1e-9)
    net.at(3e8, lambda: (net.send(0, 1, 1), net.send(1, 2, 0)))
    net.env.run()
    assert [(what, src) for what, _, src, _ in net.log] == [("arrived", 1), ("arrived", 0)]
    assert net.log[-1][1] == pytest.approx(3e8 + 1e-3, abs=1e-6)


def test_time_does_not_depend_on_earlier_clock_reads():
    for looked_at_s in np.random.default_rng(0).uniform(0, 18, 300):
        net = SmallNetwork(capacity=50.0)
        net.send(0, 1, 549)
        net.at(looked_at_s * 0.6, lambda net=net: net.send(1, 2, 0))
        net.env.run()
        assert net.log[-1][1] == 549 / 50
