"""The contract in csrc/flow/flow_network.h. Capacities in bytes/s, times in ns."""

import numpy as np
import pytest
from small_network import flow_network

from ddlsim.foundation.native import extension

S = 10**9


def pairs(network):
    columns = network.traffic()
    rows = zip(*(columns[name].tolist() for name in columns), strict=True)
    return {(src, dst): counters for src, dst, *counters in rows}


def test_zero_bytes_arrive_after_the_latency_even_where_capacity_is_zero():
    network = flow_network((0, 0), (0, 0))
    slot = network.send(0, 0, 1, 0, latency_ns=5)
    times, slots = network.run()
    assert (times.tolist(), slots.tolist()) == ([5], [slot])
    assert pairs(network) == {(0, 1): [1, 0, 0, 0]}


def test_message_from_a_node_to_itself_arrives_at_once_and_is_not_counted():
    network = flow_network((1, 1))
    network.send(0, 0, 0, 10**6, latency_ns=S)
    assert network.run()[0].tolist() == [0]
    assert pairs(network) == {}
    assert network.bytes_sent(0, 0) == 0


def test_equal_finish_times_are_one_batch_in_the_order_of_sending():
    network = flow_network(*[(100, 100)] * 6)
    slots = [network.send(0, src, src - 3, 100) for src in (5, 3, 4)]
    assert network.step(2 * S) == slots
    assert network.now == S


def test_a_slot_is_used_again_only_after_its_flow_ended():
    network = flow_network((100, 100), (100, 100))
    first = network.send(0, 0, 1, 100)
    assert network.send(0, 0, 1, 100) != first
    network.run()
    assert network.send(2 * S, 0, 1, 1) in (0, 1)


def test_flow_stalls_at_capacity_zero_and_continues_when_it_returns():
    network = flow_network((100, 100), (100, 100))
    network.send(0, 0, 1, 100)
    network.set_capacity(S // 4, 0, 0, 100)
    assert network.next_time() == extension().NEVER_NS
    assert network.step(10 * S) == []
    network.set_capacity(10 * S, 0, 50, 100)
    assert network.run()[0].tolist() == [10 * S + S * 3 // 2]


def test_a_new_capacity_of_a_shared_link_counts_from_its_instant():
    network = flow_network((1e9, 1e9), (1e9, 1e9))
    link = network.add_link(100)
    network.send(0, 0, 1, 100, links=[link])
    network.set_link_capacity(S // 2, link, 25)
    assert network.run()[0].tolist() == [S // 2 + 2 * S]


def test_leaving_node_aborts_its_flows_both_ways_and_flows_in_latency():
    network = flow_network(*[(100, 100)] * 4)
    out, into = network.send(0, 1, 0, 100), network.send(0, 2, 1, 100)
    waiting, other = network.send(0, 3, 1, 100, latency_ns=S), network.send(0, 2, 3, 100)
    assert network.remove_node(S // 2, 1) == [(out, 50), (into, 25), (waiting, 0)]
    network.check()
    assert network.run()[1].tolist() == [other]
    assert network.now == S * 5 // 4  # 25 bytes in the first half second, then alone
    assert pairs(network) == {(1, 0): [0, 0, 0, 50], (2, 1): [0, 0, 0, 25], (2, 3): [1, 100, 0, 0]}


def test_bytes_sent_counts_parts_of_messages():
    network = flow_network((100, 100), (100, 100))
    network.send(0, 0, 1, 1000, 24)
    assert [network.bytes_sent(now, 0) for now in (0, S, 3 * S)] == [0, 100, 300]
    network.remove_node(4 * S, 1)
    assert network.bytes_sent(5 * S, 0) == 400


def test_a_lost_message_takes_its_time_and_counts_as_wasted():
    network = flow_network((100, 100), (100, 100))
    network.send(0, 0, 1, 90, 10, lost=True)
    assert network.run()[0].tolist() == [S]
    assert pairs(network) == {(0, 1): [0, 0, 0, 100]}


def test_without_bandwidth_only_latency_takes_time_and_bytes_still_count():
    network = flow_network((0, 0), (0, 0), bandwidth=False)
    network.send(0, 0, 1, 1000, 24, latency_ns=7)
    assert network.bytes_sent(0, 0) == 1024
    assert network.run()[0].tolist() == [7]
    assert pairs(network) == {(0, 1): [1, 1000, 24, 0]}
    assert network.bytes_sent(7, 0) == 1024


@pytest.mark.parametrize("capacity", [2**-16, 1e-3, 1.0, 1e15])
def test_very_small_and_very_large_rates_end_when_they_should(capacity):
    network = flow_network((capacity, 1e18), (1, 1e18))
    network.send(0, 0, 1, 1000)
    units = round(capacity * 2**16)
    assert network.run()[0].tolist() == [-(-1000 * 2**16 * 10**9 // units)]


def test_flow_ending_beyond_the_clock_never_ends():
    network = flow_network((2**-16, 1), (1, 1))
    network.send(0, 0, 1, 2**40)
    assert network.next_time() == extension().NEVER_NS


def test_a_hundred_thousand_flows_on_one_link_end_together():
    count = 100_000
    network = flow_network((1e9, 0), (0, 1e18))
    network.send_many(0, 0, 1, 500, 0, 0 * np.arange(count))
    times, slots = network.run()
    assert np.unique(times).tolist() == [S * count * 500 // 10**9]
    assert slots.tolist() == list(range(count))


def test_time_does_not_run_backwards_and_no_event_is_jumped_over():
    network = flow_network((100, 100), (100, 100))
    network.send(S, 0, 1, 100)
    with pytest.raises(ValueError, match="backwards"):
        network.send(S - 1, 0, 1, 100)
    with pytest.raises(ValueError, match="not been stepped"):
        network.send(3 * S, 0, 1, 100)


def test_wrong_arguments_are_refused_by_name():
    network = flow_network((100, 100), (100, 100))
    with pytest.raises(IndexError, match="no node 2"):
        network.send(0, 0, 2, 1)
    with pytest.raises(ValueError, match="zero or more bytes"):
        network.send(0, 0, 1, -1)
    with pytest.raises(ValueError, match="capacity"):
        network.set_capacity(0, 0, -1.0, 1.0)
    with pytest.raises(IndexError, match="no link 99"):
        network.send(0, 0, 1, 1, links=[99])
    with pytest.raises(ValueError, match="twice"):
        network.send(0, 0, 1, 1, links=[0, 0])


@pytest.mark.parametrize(
    ("payload", "header"), [(2**62, 0), (2**62, 2**62), (0, 2**62), (2**61, 2**61), (2**63 - 1, 1)]
)
def test_message_with_too_many_bytes_is_an_error(payload, header):
    network = flow_network((100, 100), (100, 100))
    with pytest.raises(ValueError, match=r"less than 2\^62 bytes, its header included"):
        network.send_many(0, [0], [1], [payload], [header], [0])
    assert network.num_slots == 0


def test_messages_with_too_many_bytes_together_are_an_error():
    network = flow_network((100, 100), (100, 100))
    network.send_many(0, [0, 0], [1, 1], 2**62 - 1, 0, 0)
    network.send(0, 1, 0, 1)
    with pytest.raises(OverflowError, match=r"less than 2\^63 bytes together"):
        network.send(0, 0, 1, 1)
    network.check()


@pytest.mark.parametrize(
    "refused",
    [
        lambda network: network.send(5, 0, 2, 1),
        lambda network: network.send(5, 0, 1, 1, links=[99]),
        lambda network: network.send_many(5, [0, 0], [1, 2], 1, 0, 0),
        lambda network: network.set_capacity(5, 0, 1.0, -1.0),
        lambda network: network.set_link_capacity(5, 99, 1.0),
        lambda network: network.remove_node(5, 2),
        lambda network: network.bytes_sent(5, 2),
    ],
)
def test_invalid_arguments_change_nothing(refused):
    network = flow_network((100, 100), (100, 100))
    with pytest.raises((ValueError, IndexError)):
        refused(network)
    assert (network.now, network.num_slots) == (0, 0)
