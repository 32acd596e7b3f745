"""What becomes of bytes, how full links are, how long messages queue; capacities in bytes/s, numbers by hand."""

import numpy as np
import pytest
from simpy import Environment

from ddlsim.messages.message import Message
from ddlsim.network.network import Network


class Post:
    """Three nodes with links of 1000 bytes/s."""

    def __init__(self, num_nodes=3, capacity=1000.0, latency_s=0.0, **options):
        self.env = Environment()
        options.setdefault("on_delivery", lambda message: None)
        self.network = Network(self.env, num_nodes, capacity, capacity, latency_s, **options)

    def send(self, src, dst, num_bytes=1000, kind="push", at_s=0.0, **keys):
        message = Message(src, dst, 0, kind, None, num_bytes, **keys)
        self.at(at_s, lambda: self.network.send([message]))
        return message

    def at(self, time_s, call):
        def later():
            yield self.env.timeout(time_s)
            call()

        self.env.process(later())

    def use(self, until_s=None):
        self.env.run(until=until_s)
        return self.network.use()


def test_a_message_alone_does_not_queue():
    post = Post(latency_s=0.25)
    post.send(0, 1, 900, header_bytes=100)
    use = post.use()
    assert use.messages_received.tolist() == [0, 1, 0]
    assert use.queueing_s[1] == 0
    assert np.isnan(use.queueing_s[[0, 2]]).all()


def test_queueing_is_what_sharing_adds():
    post = Post(latency_s=0.5)
    post.send(0, 1, 1000)
    post.send(0, 2, 1000)  # shares the uplink: 2 s each instead of 1 s
    post.send(0, 2, 500, at_s=10)
    use = post.use()
    assert use.queueing_s[1:] == pytest.approx([1.0, 0.5])
    assert use.max_queueing_s.tolist() == pytest.approx([0, 1.0, 1.0])


@pytest.mark.parametrize("latency_s", [0.5, np.full(3, 0.25), np.full((3, 3), 0.5), lambda src, dst: 0.5])
@pytest.mark.parametrize("fidelity", ["flow", "latency"])
def test_latency_is_no_queueing(latency_s, fidelity):
    post = Post(latency_s=latency_s, fidelity=fidelity)
    post.send(0, 1)
    assert post.use().queueing_s[1] == 0


def test_the_slowest_link_on_the_way_counts():
    post = Post(
        capacity=np.array([1000.0, 250.0, 1000.0]),
        shared_bytes_per_s=[100.0],
        route=lambda src, dst: [0] if dst == 2 else [],
    )
    post.send(0, 1)
    post.send(1, 2, at_s=20)
    assert post.use().max_queueing_s.tolist() == [0, 0, 0]


def test_a_retransmission_queues_and_its_first_try_is_lost():
    post = Post(drop_prob=0.9, seed=1)
    post.send(0, 1)
    use = post.use()
    tries = use.sent_bytes[0] // 1000
    assert tries > 1
    assert use.lost_bytes[0] == 1000 * (tries - 1)
    assert use.queueing_s[1] == pytest.approx(tries - 1)


def test_utilization_is_carried_over_capacity_times_time():
    post = Post(capacity=np.array([1000.0, 500.0, 0.0]))
    post.send(0, 1, 1000)  # 2 s at the downlink's 500 bytes/s
    use = post.use(until_s=8)
    assert use.uplink_utilization[:2] == pytest.approx([1000 / 8000, 0])
    assert use.downlink_utilization[:2] == pytest.approx([0, 1000 / 4000])
    assert np.isnan(use.uplink_utilization[2])


def test_utilization_follows_capacities_that_change():
    post = Post()
    post.send(0, 1, 4000)
    post.at(2, lambda: post.network.set_capacity(0, 500, 0))
    use = post.use(until_s=4)  # 2 s at 1000 and 2 s at 500 bytes/s: full all the time
    assert use.uplink_utilization[0] == pytest.approx(1)
    assert use.downlink_utilization.tolist() == pytest.approx([0, 3 / 4, 0])


def test_links_that_take_no_time_have_no_utilization():
    post = Post(fidelity="latency", latency_s=1.0)
    post.send(0, 1)
    assert np.isnan(post.use().uplink_utilization).all()


def test_bytes_are_told_apart_by_kind_and_cause():
    post = Post(num_nodes=5)
    post.send(0, 1, 100, "push")
    post.send(0, 1, 10, "request", at_s=1)
    post.send(1, 0, 200, "response", at_s=2)
    late = post.send(2, 1, 300, at_s=3)
    post.send(3, 4, 5000, at_s=4)
    post.at(3.5, lambda: post.network.unused(late))
    post.at(6, lambda: post.network.remove_node(4))
    post.send(2, 0, 5000, at_s=7)
    use = post.use(until_s=10)
    assert (use.push_bytes[0], use.request_bytes[0], use.response_bytes[1]) == (100, 10, 200)
    assert (use.unused_bytes[2], use.push_bytes[2]) == (300, 0)
    assert use.aborted_bytes[3] == 2000
    assert use.in_flight_bytes.tolist() == [0, 0, 3000, 0, 0]
    assert use.sent_bytes.tolist() == [110, 200, 3300, 2000, 0]
    assert use.received_bytes.tolist() == [3200, 410, 0, 0, 2000]
    total = use.total()
    assert (total["nodes"], total["sent_bytes"], total["aborted_bytes"]) == (5, 5610, 2000)


@pytest.mark.parametrize("fidelity", ["flow", "latency"])
@pytest.mark.parametrize("on_drop", ["retransmit", "drop"])
@pytest.mark.parametrize("timeout_s", [None, 5.0])
def test_every_byte_sent_has_exactly_one_fate(fidelity, on_drop, timeout_s):
    rng = np.random.default_rng(0)
    losses = {"drop_prob": 0.2, "on_drop": on_drop, "timeout_s": timeout_s}
    post = Post(num_nodes=6, latency_s=0.1, fidelity=fidelity, header_bytes=7, **losses)
    kinds = ("push", "request", "response")
    sent = [
        post.send(*rng.integers(0, 6, 2), int(rng.integers(0, 900)), kinds[rng.integers(0, 3)], at_s=rng.uniform(0, 20))
        for _ in range(300)
    ]
    arrived = []
    post.network._on_delivery = arrived.append
    for node in (1, 4):
        post.at(5.0 + node, lambda node=node: post.network.remove_node(node))
        post.at(12.0, lambda node=node: post.network.return_node(node))
    post.at(15, lambda: [post.network.unused(message) for message in arrived[::7]])
    seen = 0
    for now_s in (3, 7, 15.5, 20, 300):
        use = post.use(until_s=now_s)
        parts = [
            use.push_bytes,
            use.request_bytes,
            use.response_bytes,
            use.aborted_bytes,
            use.lost_bytes,
            use.unused_bytes,
            use.in_flight_bytes,
        ]
        assert sum(parts).tolist() == use.sent_bytes.tolist()
        assert use.sent_bytes.tolist() == [post.network.bytes_sent(node) for node in range(6)]
        assert use.received_bytes.sum() == use.sent_bytes.sum() == post.network.traffic.on_the_wire.sum()
        seen += use.in_flight_bytes.sum() > 0
    assert seen >= 3
    assert use.in_flight_bytes.sum() == 0
    assert min(part.sum() for part in parts[:6]) > 0
    assert len(arrived) < len(sent)


def test_rows_hold_plain_numbers_and_nothing_for_unknown():
    post = Post()
    post.send(0, 1)
    row = next(post.use().rows())
    assert (row["node"], row["sent_bytes"], row["queueing_s"]) == (0, 1000, None)
    assert all(value is None or type(value) in (int, float) for value in row.values())
