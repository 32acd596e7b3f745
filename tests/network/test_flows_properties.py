"""Random sequences of events: the core against the plain reference and invariants."""

from collections import Counter

import numpy as np
import pytest
from flow_reference import NEVER_NS, ReferenceNetwork
from hypothesis import given, settings
from hypothesis import strategies as st

from ddlsim.foundation.native import extension

NODES = 5
SHARED = (0, 1)

capacity = st.sampled_from([0, 0.001, 3, 100, 100, 101.7, 1000, 1e7])
node = st.integers(0, NODES - 1)
# Few values of each kind, so that ties and shared bottlenecks are common.
send = st.tuples(
    st.just("send"),
    node,
    node,
    st.sampled_from([0, 1, 100, 100, 999, 10**6]),
    st.sampled_from([0, 0, 1, 10**8]),
    st.sampled_from([(), (), (0,), (0, 1)]),
)
hurried = st.tuples(send, st.sampled_from([0, 10**8, 10**9, 10**10])).map(lambda sent: (*sent[0], sent[1]))
event = st.one_of(
    send,
    send,
    hurried,
    st.tuples(st.just("wait"), st.sampled_from([1, 10**8, 10**9, 10**10])),
    st.tuples(st.just("capacity"), st.integers(0, 2 * NODES + len(SHARED) - 1), capacity),
    st.tuples(st.just("leave"), node),
)
events = st.lists(event, min_size=1, max_size=25)
capacities = st.lists(capacity, min_size=2 * NODES + len(SHARED), max_size=2 * NODES + len(SHARED))


class Core:
    """The native core with the reference's interface: flows are numbered in the order of sending."""

    def __init__(self, capacities, scale=1, **options):
        self.core = extension().FlowNetwork(**options)
        self.capacities = [scale * value for value in capacities]
        self.scale = scale
        nodes = np.array(self.capacities[: 2 * NODES], dtype=float).reshape(NODES, 2)
        self.core.add_nodes(nodes[:, 0], nodes[:, 1], [0] * NODES)
        self.shared = [self.core.add_link(value) for value in self.capacities[2 * NODES :]]
        self.number, self.slot, self.sent = {}, {}, 0

    @property
    def now(self):
        return self.core.now

    def send(self, src, dst, num_bytes, latency_ns, links, patience_ns=None):
        shared = [self.shared[link] for link in links]
        slot = self.core.send(self.now, src, dst, self.scale * num_bytes, 0, latency_ns, links=shared)
        if patience_ns is not None:
            self.core.set_deadline(slot, self.now + patience_ns)
        self.number[slot], self.slot[self.sent] = self.sent, slot
        self.sent += 1

    def set_capacity(self, link, value):
        self.capacities[link] = self.scale * value
        if link >= 2 * NODES:
            self.core.set_link_capacity(self.now, self.shared[link - 2 * NODES], self.scale * value)
        else:
            first = link - link % 2
            self.core.set_capacity(self.now, first // 2, *self.capacities[first : first + 2])

    def step(self, until_ns):
        ended = [self._end(slot) for slot in self.core.step(until_ns)]
        return ended, [(self._end(slot), sent) for slot, sent in self.core.overdue()]

    def remove_node(self, node):
        return [(self._end(slot), sent) for slot, sent in self.core.remove_node(self.now, node)]

    def rates(self):
        slots, rates, _ = self.core.rates()
        return {self.number[slot]: rate for slot, rate in zip(slots.tolist(), rates.tolist(), strict=True)}

    def _end(self, slot):
        number = self.number.pop(slot)
        del self.slot[number]
        return number


class Reference(ReferenceNetwork):
    def __init__(self, capacities):
        super().__init__()
        for i in range(NODES):
            self.add_node(*capacities[2 * i : 2 * i + 2])
        self.shared = [self.add_link(value) for value in capacities[2 * NODES :]]

    def send(self, src, dst, num_bytes, latency_ns, links, patience_ns=None):
        deadline_ns = NEVER_NS if patience_ns is None else self.now + patience_ns
        super().send(src, dst, num_bytes, latency_ns, [self.shared[link] for link in links], deadline_ns)


def play(network, events, after_event=lambda: None):
    """Return all observable events in order."""
    log, flying = [], []

    def wait(until_ns):
        while any(now := network.step(until_ns)):
            ended, overdue = now
            log.append((network.now, ended))
            log.append((network.now, overdue))
            for number in ended + [number for number, _ in overdue]:
                flying.remove(number)

    for sequence, (kind, *values) in enumerate(events):
        if kind == "send":
            flying.append(sum(1 for other, *_ in events[:sequence] if other == "send"))
            network.send(*values)
        elif kind == "wait":
            wait(network.now + values[0])
        elif kind == "capacity":
            network.set_capacity(*values)
        elif kind == "leave":
            aborted = network.remove_node(*values)
            log.append((network.now, aborted))
            for number, _ in aborted:
                flying.remove(number)
        after_event()
        log.append(sorted(network.rates().items()))
    wait(network.now + 10**15)
    return log


@given(capacities, events)
def test_native_solver_equals_the_plain_reference(capacities, events):
    assert play(Core(capacities), events) == play(Reference(capacities), events)


@settings(max_examples=4 * settings.default.max_examples)  # 600 by default, 1,000 in CI
@given(capacities, events)
def test_repair_equals_filling_from_scratch_and_no_invariant_breaks(capacities, events):
    repaired, filled = Core(capacities), Core(capacities, incremental=False)
    log = play(repaired, events, repaired.core.check)  # capacities, bottlenecks of all flows: flow_check.cpp
    assert log == play(filled, events, filled.core.check)
    times_ns = [row[0] for row in log if is_batch(row)]
    assert times_ns == sorted(times_ns)


@given(capacities, events)
def test_bytes_sent_are_delivered_wasted_or_in_flight(capacities, events):
    network = Core(capacities)
    play(network, events)
    traffic = network.core.traffic()
    out = Counter()
    columns = (traffic[name].tolist() for name in ("src", "payload_bytes", "wasted_bytes"))
    for src, *counted in zip(*columns, strict=True):
        out[src] += sum(counted)
    slots, _, sent = network.core.rates()
    sends = [values for kind, *values in events if kind == "send"]
    for slot, sent_bytes in zip(slots.tolist(), sent.tolist(), strict=True):
        src, _, num_bytes, *_ = sends[network.number[slot]]
        assert 0 <= sent_bytes <= num_bytes
        out[src] += sent_bytes
    assert [network.core.bytes_sent(network.now, i) for i in range(NODES)] == [out[i] for i in range(NODES)]
    offered = Counter()
    for src, _, num_bytes, *_ in sends:
        offered[src] += num_bytes
    assert all(out[i] <= offered[i] for i in range(NODES))


@given(st.lists(st.sampled_from([3, 100, 100, 101.7, 1e7]), min_size=12, max_size=12), st.lists(send, max_size=15))
def test_ten_times_the_bytes_over_ten_times_the_capacity_take_the_same_time(capacities, sends):
    plain, scaled = (finish_times(play(Core(capacities, scale), sends)) for scale in (1, 10))
    assert plain.keys() == scaled.keys()
    for number, time in plain.items():
        # shares are whole units of 2^-16 byte/s, so they differ by less than one unit in 3 x 2^16 / 15
        assert scaled[number] == pytest.approx(time, rel=1e-3, abs=20)


def finish_times(log):
    return {number: time for time, batch in filter(is_batch, log) for number in batch}


def is_batch(row):
    return len(row) == 2 and isinstance(row[1], list) and all(isinstance(number, int) for number in row[1])


@given(capacities, st.lists(send, min_size=2, max_size=15), st.randoms(use_true_random=False))
def test_the_order_of_sending_at_one_instant_changes_no_finish_time(capacities, sends, random):
    order = list(range(len(sends)))
    random.shuffle(order)
    plain, shuffled = play(Core(capacities), sends), play(Core(capacities), [sends[i] for i in order])
    ends = finish_times(plain)
    other_ends = {order[number]: time for number, time in finish_times(shuffled).items()}
    assert ends == other_ends


@pytest.mark.parametrize("seed", range(6))
def test_repair_equals_filling_from_scratch_on_a_network_of_two_hundred_nodes(seed):
    random = np.random.default_rng(seed)
    count = 200
    up, down = random.lognormal(0, 1, (2, count)) * 1e6
    src = np.repeat(np.arange(count), 4)
    dst = (src + random.integers(1, count, 4 * count)) % count
    latency_ns = random.integers(0, 3 * 10**8, 4 * count)
    finished = []
    for incremental in (True, False):
        network = extension().FlowNetwork(incremental=incremental)
        network.add_nodes(up, down, np.zeros(count))
        network.send_many(0, src, dst, random.bit_generator.seed_seq.entropy + 500_000, 64, latency_ns)
        network.check()
        finished.append([column.tolist() for column in network.run()])
        work = network.work()
        assert (work["repairs"] > 1000) == incremental
    assert finished[0] == finished[1]
