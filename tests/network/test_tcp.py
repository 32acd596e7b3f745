import math
import random

import pytest
import simpy
from small_network import equal_network

from ddlsim.foundation import native
from ddlsim.foundation.errors import ScenarioError
from ddlsim.network.link_table import CapacityChange
from ddlsim.network.messages.message import Message
from ddlsim.network.replay import finish_times
from ddlsim.network.tcp import TcpPaths
from ddlsim.scenario import from_mapping
from ddlsim.scenario.network_sections import Tcp

LINKS = dict.fromkeys(range(4), (8.0, 8.0, 10.0))  # 1 MB/s, 20 ms one-way
NO_EXTRAS = Tcp(segment_header_bytes=0, acks_per_segment=0, initial_window=0)


def flow(src, dst, size, start_s=0.0):
    return {"start_s": start_s, "src": src, "dst": dst, "bytes": size}


def test_headers_are_per_segment():
    assert [Tcp().headers(size) for size in (0, 1, 1448, 1449)] == [0, 66, 66, 132]


def test_one_of_two_segments_is_acknowledged():
    assert [Tcp().acks(segments * 1514) for segments in (0, 1, 2, 3)] == [0, 66, 66, 132]


def test_without_extras_tcp_is_flow():
    flows = [flow(0, 1, 1_000_000), flow(0, 2, 500_000, 0.1), flow(3, 1, 10)]
    assert finish_times(flows, LINKS, tcp=NO_EXTRAS) == finish_times(flows, LINKS)


def test_a_long_flow_takes_its_headers_longer():
    (alone_s,) = finish_times([flow(0, 1, 1448 * 1000)], LINKS, tcp=Tcp(acks_per_segment=0, initial_window=0))
    assert alone_s == pytest.approx(0.02 + 1000 * 1514 / 1e6)


SEGMENTS_OF_1_KB = Tcp(segment_bytes=1000, segment_header_bytes=0, acks_per_segment=0)


@pytest.mark.parametrize(("segments", "taken_s"), [(10, 0.03), (11, 0.061), (30, 0.08), (31, 0.101), (500, 0.57)])
def test_slow_start_holds_a_flow_to_its_window_until_it_fills_the_path(segments, taken_s):
    # 20 ms; windows of 10 and 20 in 40 ms each; the rest fits into the next window, or that window fills the path
    assert finish_times([flow(0, 1, segments * 1000)], LINKS, tcp=SEGMENTS_OF_1_KB) == pytest.approx([taken_s])


def test_idle_window_is_halved_for_each_timeout():
    # 30 segments give a window of 40, which fills the path; 30 more give 70, and 35 after 0.37 s (a timeout of 0.24 s):
    # 40 segments wait for 40 ms; 5 s later it is 10
    sent = [flow(0, 1, size, at) for size, at in ((30_000, 0), (30_000, 0.2), (40_000, 0.6), (30_000, 5))]
    ends_s = finish_times(sent, LINKS, tcp=SEGMENTS_OF_1_KB)
    taken_s = [end_s - each["start_s"] for end_s, each in zip(ends_s, sent, strict=True)]
    assert taken_s == pytest.approx([0.08, 0.05, 0.065, 0.08])


def end_s(size, start_s, *changes):
    """Return the end of a message sent at a time, with these capacities (from, bytes/s) of node 0."""
    env, arrived = simpy.Environment(), []
    options = {"fidelity": "tcp", "tcp": SEGMENTS_OF_1_KB, "on_delivery": lambda _: arrived.append(env.now)}
    network = equal_network(env, 2, 1e6, 1e6, 0.02, **options)
    network.follow([CapacityChange(at_s, 0, capacity, 1e6) for at_s, capacity in changes])

    def send():
        yield env.timeout(start_s)
        network.send([Message(0, 1, 0, "flow", None, size)])

    env.process(send())
    env.run()
    return arrived[0]


def test_message_started_during_an_outage_starts_slowly_afterwards():
    # from 1 s on its window of 10 kB in 40 ms, then the rest in a burst of 20 ms
    assert end_s(30_000, 0.9, (0, 0), (1, 1e6)) == pytest.approx(1.06)


def test_window_grows_with_sent_bytes_before_a_path_gets_faster():
    # from 0.975 s on 5 kB at 200 kB/s; then windows of 15 and 30 kB in 40 ms each, and 10 kB at 1 MB/s
    assert end_s(60_000, 0.955, (0, 2e5), (1, 1e6)) == pytest.approx(1.09)


def test_full_window_still_fills_its_path_after_a_break():
    # 80 ms of slow start send 30 kB, 20 ms more 20 kB, and 1 s later the rest continues at 1 MB/s
    assert end_s(130_000, 0, (0.12, 0), (1.12, 1e6)) == pytest.approx(1.2)


def test_window_does_not_grow_during_an_outage():
    # 5 kB of a window of 10 kB until 0.04 s: 15 kB in 40 ms from 1 s on, and 10 kB at 1 MB/s
    assert end_s(30_000, 0, (0.04, 0), (1, 1e6)) == pytest.approx(1.05)


def test_faster_shared_link_puts_its_flows_into_slow_start():
    network = native.extension().FlowNetwork()
    network.add_nodes([1e6] * 2, [1e6] * 2, [0] * 2)
    network.use_windows(10_000, 200_000_000)
    shared = network.add_link(0.0)
    network.send(0, 0, 1, 10**6, links=[shared], round_trip_ns=100_000_000)
    network.set_link_capacity(10**9, shared, 5e5)
    assert network.rates()[1].tolist() == [10**5 * 2**16]
    network.check()


@pytest.mark.parametrize("leaves", [0, 1])
def test_returning_node_has_new_connections(leaves):
    env, arrived = simpy.Environment(), []
    options = {"fidelity": "tcp", "tcp": SEGMENTS_OF_1_KB, "on_delivery": lambda _: arrived.append(env.now)}
    network = equal_network(env, 2, 1e6, 1e6, 0.02, **options)

    def sent_twice():
        network.send([Message(0, 1, 0, "flow", None, 30_000)])
        yield env.timeout(0.1)
        network.remove_node(leaves)
        network.return_node(leaves)
        network.send([Message(0, 1, 0, "flow", None, 30_000)])

    env.process(sent_twice())
    env.run()
    assert arrived == pytest.approx([0.08, 0.18])


def test_a_flow_in_slow_start_leaves_the_rest_of_its_link_to_others():
    links = {0: (8.0, 8.0, 0.0), 1: (8.0, 8.0, 0.0), 2: (8.0, 8.0, 100.0)}
    sent = [flow(0, 2, 200_000), flow(0, 1, 95_000, 0.1)]
    # from 0.1 s on the distant node sends its window of 10 kB in 0.2 s: 50 kB/s of 1 MB/s
    assert finish_times(sent, links, tcp=SEGMENTS_OF_1_KB)[1] == pytest.approx(0.2)


def test_window_does_not_limit_a_flow_with_a_smaller_share():
    three = finish_times([flow(0, dst, 40_000) for dst in (1, 2, 3)], LINKS, tcp=SEGMENTS_OF_1_KB)
    # 250 kB/s of slow start each for 40 ms; then windows of 500 kB/s are more than a third of 1 MB/s
    assert three == pytest.approx([0.02 + 0.04 + 0.09] * 3)


def test_a_connection_per_message_costs_a_round_trip():
    persistent_s, new_s = (
        finish_times([flow(0, 1, 1448)], LINKS, tcp=Tcp(connections=kind))[0] for kind in ("persistent", "per_message")
    )
    assert new_s - persistent_s == pytest.approx(0.04)


IN_ORDER = Tcp(segment_header_bytes=0, acks_per_segment=0, initial_window=0)


def test_messages_of_a_pair_go_one_after_the_other_over_one_connection():
    sent = [flow(0, 1, 1_000_000), flow(0, 1, 500_000, 0.1), flow(0, 1, 0, 0.2), flow(0, 2, 250_000)]
    # until 0.52 s the flow to node 2 has half of the uplink; the first of node 1 continues alone, then the second
    assert finish_times(sent, LINKS, tcp=IN_ORDER) == pytest.approx([1.27, 1.77, 0.22, 0.52])


def test_messages_on_separate_connections_share_the_link():
    tcp = Tcp(segment_header_bytes=0, acks_per_segment=0, initial_window=0, connections="per_message")
    assert finish_times([flow(0, 1, 500_000)] * 2, LINKS, tcp=tcp) == pytest.approx([0.02 + 0.04 + 1.0] * 2)


def test_timed_out_message_releases_its_connection():
    env, arrived = simpy.Environment(), []
    settings = {"fidelity": "tcp", "tcp": IN_ORDER, "timeout_s": 1.0}
    network = equal_network(env, 2, 1e6, 1e6, on_delivery=lambda _: arrived.append(env.now), **settings)

    def send():
        for size in (10_000_000, 10_000_000, 100_000):  # timeouts at 1 s and at 1.5 s
            network.send([Message(0, 1, 0, "flow", None, size)])
            yield env.timeout(0.5)

    env.process(send())
    env.run()
    assert arrived == pytest.approx([1.6])


def test_acknowledgements_take_bandwidth_on_the_way_back():
    tcp = Tcp(segment_bytes=1000, segment_header_bytes=100, acks_per_segment=0.5, initial_window=0)
    both = finish_times([flow(0, 1, 1_000_000), flow(1, 0, 1_000_000)], LINKS, tcp=tcp)
    assert both == pytest.approx([0.02 + 1.1 + 0.05] * 2)


def test_shares_go_by_round_trip_times():
    links = {0: (8.0, 8.0, 0.0), 1: (8.0, 8.0, 20.0), 2: (8.0, 8.0, 40.0)}
    tcp = Tcp(segment_header_bytes=0, acks_per_segment=0, initial_window=0, shares="rtt")
    near_s, far_s = finish_times([flow(0, 1, 600_000), flow(0, 2, 600_000)], links, tcp=tcp)
    # the distant node starts 20 ms later; then the near node has two thirds: 580 kB left at 2/3 MB/s
    assert near_s == pytest.approx(0.04 + 0.58 * 1.5)
    assert far_s == pytest.approx(0.02 + 1.2, abs=1e-6)  # the uplink is never idle


def test_utilization_limits_the_rate_of_tcp():
    tcp = Tcp(segment_header_bytes=0, acks_per_segment=0, initial_window=0, utilization=0.8)
    assert finish_times([flow(0, 1, 1_000_000)], LINKS, tcp=tcp) == pytest.approx([0.02 + 1.25])


def test_random_shares_differ_by_their_spread():
    paths = TcpPaths(Tcp(shares="random", share_spread=0.5), lambda *_: 0, seed=3)
    logs = [math.log(paths.weight(0, 1) / 1024) for _ in range(4000)]
    assert sum(logs) / 4000 == pytest.approx(0, abs=0.03)
    assert math.sqrt(sum(each * each for each in logs) / 4000) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("incremental", [True, False])
def test_weighted_shares_with_windows_equal_progressive_filling(incremental):
    # check() compares with filling from scratch, capacities, and a bottleneck for every flow
    drawn = random.Random(1)
    network = native.extension().FlowNetwork(incremental=incremental)
    network.add_nodes([1e6 * (1 + node % 3) for node in range(12)], [2e6] * 12, [0] * 12)
    network.use_windows(15_140, 200_000_000)
    shared = [network.add_link(1.5e6) for _ in range(2)]
    for step in range(150):
        src, dst = drawn.sample(range(12), 2)
        network.send(
            step * 10**7,
            src,
            dst,
            drawn.randrange(1, 10**6),
            weight=drawn.randrange(1, 4096),
            ack_bytes=1000,
            in_order=drawn.random() < 0.5,
            links=drawn.choice([[], [], [shared[0]], shared]),
            round_trip_ns=drawn.choice([0, 30_000_000, 200_000_000]),
        )
        network.check()
        network.set_capacity(step * 10**7, drawn.randrange(12), *drawn.choices([0, 1e5, 1e6, 4e6], k=2))
        network.check()
        network.step((step + 1) * 10**7 - 1)
        while network.next_time() < (step + 1) * 10**7:
            network.step((step + 1) * 10**7 - 1)
        network.check()


def test_weights_share_a_link_in_proportion():
    network = native.extension().FlowNetwork()
    network.add_nodes([3e6, 1e9, 1e9], [1e9] * 3, [0] * 3)
    network.send(0, 0, 1, 10**6, weight=2)
    network.send(0, 0, 2, 10**6, weight=1)
    assert network.rates()[1].tolist() == [2 * 10**6 * 2**16, 10**6 * 2**16]


def test_an_aborted_message_takes_its_acknowledgements_along():
    env, aborted = simpy.Environment(), []
    network = equal_network(env, 2, 1e6, 1e6, fidelity="tcp", on_abort=aborted.append)
    messages = [Message(0, 1, 0, "push", {}, 1_000_000)]
    network.add_headers(messages)
    network.send(messages)
    env.run(until=0.5)
    assert network.num_sending == 1  # the acknowledgements, 46 kB at half the rate, are complete
    assert network.remove_node(1) == 1
    assert len(aborted) == 1
    assert network.num_sending == 0


def test_queued_message_is_not_acknowledged():
    env = simpy.Environment()
    network = equal_network(env, 2, 1e6, 1e6, fidelity="tcp", tcp=Tcp(initial_window=0))
    messages = [Message(0, 1, 0, "push", {}, 1448 * 500, 0) for _ in range(3)]
    network.add_headers(messages)
    network.send(messages)
    env.run(until=0.5)  # of the first 757 kB at 1 MB/s
    assert network.use().ack_bytes.tolist() == [0, 250 * 66]
    assert network.remove_node(1) == 3
    assert network.use().aborted_bytes.tolist() == [500_000, 0]


def test_acknowledgements_count_as_headers_of_the_way_back():
    env = simpy.Environment()
    network = equal_network(env, 2, 1e6, 1e6, fidelity="tcp")
    messages = [Message(0, 1, 0, "push", {}, 2 * 1448, 0)]
    network.add_headers(messages)
    network.send(messages)
    env.run()
    assert [
        (row["src"], row["messages"], row["payload_bytes"], row["header_bytes"]) for row in network.traffic.rows()
    ] == [(0, 1, 2896, 132), (1, 0, 0, 66)]


SCENARIO = {
    "name": "tcp",
    "rounds": 2,
    "nodes": {"clusters": [4]},
    "algorithm": {"name": "el"},
    "learning": "none",
    "model": {"name": "sizes", "core": 90_000, "head": 10},
    "data": {"name": "fashion-mnist-mini"},
    "training": {"learning_rate": 0.1},
    "topology": {"name": "ring"},
}


def test_the_section_needs_its_fidelity():
    with pytest.raises(ScenarioError, match=r"network\.tcp: needs network\.fidelity tcp, which is flow"):
        from_mapping({**SCENARIO, "network": {"tcp": {"initial_window": 4}}})


def test_a_run_over_tcp_takes_longer_and_sends_more(tmp_path):
    import ddlsim

    sent, time_s = [], []
    for fidelity in ("flow", "tcp"):
        run = ddlsim.run({**SCENARIO, "network": {"fidelity": fidelity}}, out=tmp_path / fidelity)
        sent.append(run.summary["bytes"]["total"])
        time_s.append(run.summary["sim_time_s"])
    assert 1.06 < sent[1] / sent[0] < 1.08  # headers 4.6 %, acknowledgements 2.3 % of that
    assert time_s[1] > time_s[0]
