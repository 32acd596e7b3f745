"""Bytes by cause, utilization and queueing, computed by hand; capacities in bytes/s."""

import numpy as np
import pytest
from small_network import SmallNetwork

from ddlsim.scenario.network_sections import Tcp


def test_a_message_alone_does_not_queue():
    net = SmallNetwork(latency_s=0.25)
    net.send(0, 1, 900, header_bytes=100)
    use = net.use()
    assert use.messages_received.tolist() == [0, 1, 0]
    assert use.queueing_s[1] == 0
    assert np.isnan(use.queueing_s[[0, 2]]).all()


def test_queueing_is_the_time_that_sharing_adds():
    net = SmallNetwork(latency_s=0.5)
    net.send(0, 1, 1000)
    net.send(0, 2, 1000)  # shares the uplink: 2 s each instead of 1 s
    net.send(0, 2, 500, at_s=10)
    use = net.use()
    assert use.queueing_s[1:] == pytest.approx([1.0, 0.5])
    assert use.max_queueing_s.tolist() == pytest.approx([0, 1.0, 1.0])


@pytest.mark.parametrize("latency_s", [0.5, np.full(3, 0.25), np.full((3, 3), 0.5), lambda src, dst: 0.5])
@pytest.mark.parametrize("fidelity", ["flow", "latency"])
def test_latency_does_not_count_as_queueing(latency_s, fidelity):
    net = SmallNetwork(latency_s=latency_s, fidelity=fidelity)
    net.send(0, 1)
    assert net.use().queueing_s[1] == 0


def test_the_slowest_link_on_the_way_counts():
    net = SmallNetwork(
        capacity=np.array([1000.0, 250.0, 1000.0]),
        shared_bytes_per_s=[100.0],
        route=lambda src, dst: [0] if dst == 2 else [],
    )
    net.send(0, 1)
    net.send(1, 2, at_s=20)
    assert net.use().max_queueing_s.tolist() == [0, 0, 0]


def test_a_retransmission_queues_and_its_first_try_is_lost():
    net = SmallNetwork(drop_prob=0.9, seed=1)
    net.send(0, 1)
    use = net.use()
    tries = use.sent_bytes[0] // 1000
    assert tries > 1
    assert use.lost_bytes[0] == 1000 * (tries - 1)
    assert use.queueing_s[1] == pytest.approx(tries - 1)


def test_utilization_is_carried_over_capacity_times_time():
    net = SmallNetwork(capacity=np.array([1000.0, 500.0, 0.0]))
    net.send(0, 1, 1000)  # 2 s at the downlink's 500 bytes/s
    use = net.use(until_s=8)
    assert use.uplink_utilization[:2] == pytest.approx([1000 / 8000, 0])
    assert use.downlink_utilization[:2] == pytest.approx([0, 1000 / 4000])
    assert np.isnan(use.uplink_utilization[2])


def test_capacity_that_tcp_cannot_fill_counts_as_capacity():
    tcp = Tcp(utilization=0.5, acks_per_segment=0, initial_window=0)
    net = SmallNetwork(fidelity="tcp", tcp=tcp)
    net.send(0, 1, 1000)  # 2 s at 500 bytes/s
    use = net.use(until_s=4)
    assert use.uplink_utilization[0] == pytest.approx(1000 / 4000)


def test_utilization_follows_changing_capacities():
    net = SmallNetwork()
    net.send(0, 1, 4000)
    net.at(2, lambda: net.network.set_capacity(0, 500, 0))
    use = net.use(until_s=4)  # 2 s at 1000 and 2 s at 500 bytes/s: full all the time
    assert use.uplink_utilization[0] == pytest.approx(1)
    assert use.downlink_utilization.tolist() == pytest.approx([0, 3 / 4, 0])


def test_links_that_take_no_time_have_no_utilization():
    net = SmallNetwork(fidelity="latency", latency_s=1.0)
    net.send(0, 1)
    assert np.isnan(net.use().uplink_utilization).all()


def test_bytes_are_counted_by_kind_and_cause():
    net = SmallNetwork(num_nodes=5)
    net.send(0, 1, 100, "push")
    net.send(0, 1, 10, "request", at_s=1)
    net.send(1, 0, 200, "response", at_s=2)
    late = net.send(2, 1, 300, at_s=3)
    net.send(3, 4, 5000, at_s=4)
    net.at(3.5, lambda: net.network.unused(late))
    net.at(6, lambda: net.network.remove_node(4))
    net.send(2, 0, 5000, at_s=7)
    use = net.use(until_s=10)
    assert (use.push_bytes[0], use.request_bytes[0], use.response_bytes[1]) == (100, 10, 200)
    assert (use.unused_bytes[2], use.push_bytes[2]) == (300, 0)
    assert use.aborted_bytes[3] == 2000
    assert use.in_flight_bytes.tolist() == [0, 0, 3000, 0, 0]
    assert use.sent_bytes.tolist() == [110, 200, 3300, 2000, 0]
    assert use.received_bytes.tolist() == [3200, 410, 0, 0, 2000]
    total = use.total()
    assert (total["nodes"], total["sent_bytes"], total["aborted_bytes"]) == (5, 5610, 2000)


@pytest.mark.parametrize("fidelity", ["flow", "tcp", "latency"])
@pytest.mark.parametrize("on_drop", ["retransmit", "drop"])
@pytest.mark.parametrize("timeout_s", [None, 5.0])
def test_every_byte_sent_has_exactly_one_fate(fidelity, on_drop, timeout_s):
    rng = np.random.default_rng(0)
    losses = {"drop_prob": 0.2, "on_drop": on_drop, "timeout_s": timeout_s}
    net = SmallNetwork(num_nodes=6, latency_s=0.1, fidelity=fidelity, header_bytes=7, **losses)
    kinds = ("push", "request", "response")
    sent = [
        net.send(*rng.integers(0, 6, 2), int(rng.integers(0, 900)), kinds[rng.integers(0, 3)], at_s=rng.uniform(0, 20))
        for _ in range(300)
    ]
    arrived = []
    net.network._on_delivery = arrived.append
    for node in (1, 4):
        net.at(5.0 + node, lambda node=node: net.network.remove_node(node))
        net.at(12.0, lambda node=node: net.network.return_node(node))
    net.at(15, lambda: [net.network.unused(message) for message in arrived[::7]])
    seen = 0
    for now_s in (3, 7, 15.5, 20, 300):
        use = net.use(until_s=now_s)
        parts = [
            use.push_bytes,
            use.request_bytes,
            use.response_bytes,
            use.ack_bytes,
            use.aborted_bytes,
            use.lost_bytes,
            use.unused_bytes,
            use.in_flight_bytes,
        ]
        assert sum(parts).tolist() == use.sent_bytes.tolist()
        assert use.sent_bytes.tolist() == [net.network.bytes_sent(node) for node in range(6)]
        assert use.received_bytes.sum() == use.sent_bytes.sum() == net.network.traffic.on_the_wire.sum()
        seen += use.in_flight_bytes.sum() > 0
    assert seen >= 3
    assert use.in_flight_bytes.sum() == 0
    assert all(part.sum() > 0 for part in parts[:7] if part is not use.ack_bytes)
    assert (use.ack_bytes.sum() > 0) == (fidelity == "tcp")
    assert len(arrived) < len(sent)


def test_rows_hold_plain_numbers_and_nothing_for_unknown():
    net = SmallNetwork()
    net.send(0, 1)
    row = next(net.use().rows())
    assert (row["node"], row["sent_bytes"], row["queueing_s"]) == (0, 1000, None)
    assert all(value is None or type(value) in (int, float) for value in row.values())
