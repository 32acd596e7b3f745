"""Finish times that can be computed by hand. Capacities in bytes/s, times in ns."""

import pytest
from small_network import flow_network

from ddlsim.foundation.native import extension

S = 10**9


def finish_times(network):
    times, slots = network.run()
    return dict(zip(slots.tolist(), times.tolist(), strict=True))


@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_equal_flows_on_one_uplink_end_together(count):
    network = flow_network((1000, 1e9), *[(0, 1e9)] * count)
    slots = [network.send(0, 0, 1 + i, 500) for i in range(count)]
    ends = finish_times(network)
    assert len(set(ends.values())) == 1
    # the share is rounded down to whole units: at most one unit of 2^-16 byte/s is lost per flow
    assert ends[slots[0]] == pytest.approx(count * S // 2, rel=1e-6)


def test_flows_of_growing_size_end_at_the_sums_of_their_shares():
    network = flow_network((1200, 1e9), *[(0, 1e9)] * 3)
    slots = [network.send(0, 0, 1 + i, size) for i, size in enumerate((400, 800, 1600))]
    # 400 each: 1 s; then 600 each, 400 more: 5/3 s; then 1200 alone, the last 800: 7/3 s
    ends = finish_times(network)
    assert [ends[slot] for slot in slots] == pytest.approx([S, S * 5 / 3, S * 7 / 3], abs=2)


def test_a_parking_lot_gives_the_long_flow_the_share_of_its_narrowest_link():
    network = flow_network(*[(1e9, 1e9)] * 8)
    hops = [network.add_link(capacity) for capacity in (1000, 800, 1200)]
    long = network.send(0, 0, 1, 10**6, links=hops)
    short = [network.send(0, 2 + 2 * i, 3 + 2 * i, 10**6, links=[hop]) for i, hop in enumerate(hops)]
    slots, rates, _ = network.rates()
    rate = dict(zip(slots.tolist(), (rates / 2**16).tolist(), strict=True))
    assert rate == {long: 400, short[0]: 600, short[1]: 400, short[2]: 800}
    network.check()


def test_a_wide_uplink_is_held_by_narrow_downlinks_and_gives_the_rest_to_others():
    network = flow_network((1000, 0), (0, 100), (0, 250), (0, 1e6))
    for receiver in (1, 2, 3):
        network.send(0, 0, receiver, 1000)
    assert (network.rates()[1] / 2**16).tolist() == [100, 250, 650]


def test_several_senders_share_one_downlink():
    network = flow_network((1000, 0), (50, 0), (1000, 0), (0, 450))
    for sender in (0, 1, 2):
        network.send(0, sender, 3, 1000)
    assert (network.rates()[1] / 2**16).tolist() == [200, 50, 200]


def test_an_ended_flow_frees_its_share_at_once():
    network = flow_network((1000, 0), (0, 1000), (0, 1000))
    short, long = network.send(0, 0, 1, 100), network.send(0, 0, 2, 500)
    assert finish_times(network) == {short: S // 5, long: S * 6 // 10}


def test_a_message_waits_for_the_latency_of_both_ends_before_its_first_byte():
    network = extension().FlowNetwork()
    network.add_nodes([1000, 1000], [1000, 1000], [3 * S, 4 * S])
    slot = network.send(0, 0, 1, 1000)
    assert finish_times(network) == {slot: 8 * S}


def test_latency_takes_no_share_of_the_links():
    network = flow_network((1000, 0), (0, 1000), (0, 1000))
    first, late = network.send(0, 0, 1, 1000), network.send(0, 0, 2, 500, latency_ns=S // 2)
    # 500 bytes alone, then halves: both have 500 left at 0.5 s
    assert finish_times(network) == {first: S * 3 // 2, late: S * 3 // 2}


def test_payload_and_header_travel_together():
    network = flow_network((100, 0), (0, 100))
    slot = network.send(0, 0, 1, 150, 50)
    assert finish_times(network) == {slot: 2 * S}
