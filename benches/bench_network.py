"""Messages per second of the network: the core alone and through SimPy, against filling from scratch and plain SimPy.

Every node sends 4 messages of 0.5 MB. `sync`: all at once; `async`: each at its own time, about four times the bytes
that the uplinks could carry in between; links all equal or log-normal. extra_info: `messages`, `messages_per_s` (best
round), `events` (of SimPy), and `alternative`, `ratio` (ours / theirs, both timed in this run).

The plain SimPy model has one process per message, which holds the sender's uplink, then the receiver's downlink,
first come first served: a simpler network than ddlsim's, without sharing and changing rates.

    pytest benches/bench_network.py             1,000 and 10,000 nodes, 100,000 for the core
    pytest benches/bench_network.py -m slow     a million nodes, 100,000 through SimPy and by filling from scratch

Whole runs without learning: bench_event_loop.py; their time and memory by nodes: network_scale.py.
"""

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import simpy

from ddlsim.engine.gc_tuning import relaxed_gc
from ddlsim.foundation.native import extension
from ddlsim.network.link_table import LinkTable
from ddlsim.network.messages.message import PUSH, Message
from ddlsim.network.network import Network

PEERS, SIZE, LATENCY_S = 4, 500_000, 0.02


@dataclass(frozen=True)
class Workload:
    """uplink, downlink in bytes/s [N]; peers [N, PEERS]; start_ns [N]: when a node sends."""

    uplink: np.ndarray
    downlink: np.ndarray
    peers: np.ndarray
    start_ns: np.ndarray


def draw(nodes: int, links: str, starts: str) -> Workload:
    rng = np.random.default_rng(nodes)
    up = down = np.full(nodes, 12.5e6)
    if links == "lognormal":
        up, down = rng.lognormal(np.log(5e6), 1, nodes), rng.lognormal(np.log(2e7), 1, nodes)
    peers = (np.arange(nodes)[:, None] + rng.integers(1, nodes, (nodes, PEERS))) % nodes
    spread_ns = int(4 * PEERS * SIZE / up.mean() * 1e9) if starts == "async" else 1
    return Workload(up, down, peers, rng.integers(0, spread_ns, nodes))


def set_up(work: Workload, incremental: bool = True):
    """Return the core with all messages; a start is a latency."""
    nodes = len(work.uplink)
    network = extension().FlowNetwork(incremental=incremental)
    network.add_nodes(work.uplink, work.downlink, np.zeros(nodes))
    src, latency_ns = np.repeat(np.arange(nodes), PEERS), np.repeat(work.start_ns, PEERS)
    network.send_many(0, src, work.peers.ravel(), SIZE, 0, latency_ns)
    return network


def core_alone(work: Workload, incremental: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Return times and messages of all ends."""
    ends = set_up(work, incremental).run()
    assert len(ends[0]) == work.peers.size
    return ends


def state_at(work: Workload, incremental: bool, until_ns: int) -> list[np.ndarray]:
    """Return times and messages of all ends until a time, and every flow's rate."""
    network = set_up(work, incremental)
    return [*network.run(until_ns), np.array(network.rates())]


def through_simpy(work: Workload, rounds: int, synchronous: bool, run: Callable = simpy.Environment.run) -> None:
    """Run node processes in Python, like the engine; a synchronous node waits for all its messages."""
    env = simpy.Environment()
    nodes = len(work.uplink)
    network = Network(env, LinkTable(work.uplink, work.downlink, LATENCY_S), on_delivery=lambda _: None)
    mailboxes = network.use_mailboxes()
    peers = [tuple(peers) for peers in work.peers.tolist()]
    senders = [[] for _ in range(nodes)]
    for node, receivers in enumerate(peers):
        for receiver in receivers:
            senders[receiver].append(node)

    def live(node: int):
        yield env.timeout(int(work.start_ns[node]) / 1e9)
        for round_num in range(rounds):
            network.send([Message(node, peers[node], round_num, PUSH, None, SIZE, 64)])
            if synchronous:
                yield mailboxes.wait(node, PUSH, round_num, senders[node])
                mailboxes.take(node, PUSH, round_num)
            else:
                yield env.timeout(LATENCY_S)
                mailboxes.take_all(node, PUSH, 0)
            mailboxes.closed(node, round_num + 1)

    with relaxed_gc(nodes):  # as a simulation does
        for node in range(nodes):
            env.process(live(node))
        run(env)
    assert network.use().messages_received.tolist() == [len(its) * rounds for its in senders]


def plain_simpy(work: Workload, rounds: int, run: Callable = simpy.Environment.run) -> None:
    env = simpy.Environment()
    uplinks = [simpy.Resource(env) for _ in work.uplink]
    downlinks = [simpy.Resource(env) for _ in work.uplink]
    up, down = work.uplink.tolist(), work.downlink.tolist()
    arrived = []

    def message(src: int, dst: int):
        yield env.timeout(LATENCY_S)
        for link, capacity in ((uplinks[src], up[src]), (downlinks[dst], down[dst])):
            with link.request() as request:
                yield request
                yield env.timeout(SIZE / capacity)
        arrived.append(dst)

    def live(node: int, peers: list[int]):
        yield env.timeout(int(work.start_ns[node]) / 1e9)
        for _ in range(rounds):
            yield env.all_of([env.process(message(node, peer)) for peer in peers])

    for node, peers in enumerate(work.peers.tolist()):
        env.process(live(node, peers))
    run(env)
    assert len(arrived) == work.peers.size * rounds


def count_steps(env: simpy.Environment) -> int:
    """Run to the end, event by event; return the number of events."""
    steps = 0
    try:
        while True:
            env.step()
            steps += 1
    except simpy.core.EmptySchedule:
        return steps


def skip_if_large_and_untimed(benchmark, nodes: int) -> None:
    if benchmark.disabled and nodes > 1_000:
        pytest.skip("not timed, and 1,000 nodes have the same results")


def note_rate(benchmark, messages: int) -> None:
    benchmark.extra_info["messages"] = messages
    if not benchmark.disabled:
        benchmark.extra_info["messages_per_s"] = round(messages / benchmark.stats.stats.min)


CASES = [("sync", "equal"), ("sync", "lognormal"), ("async", "equal"), ("async", "lognormal")]


@pytest.mark.parametrize(("starts", "links"), CASES)
@pytest.mark.parametrize("nodes", [1_000, 10_000, 100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_core_alone(benchmark, nodes, starts, links):
    skip_if_large_and_untimed(benchmark, nodes)
    work = draw(nodes, links, starts)
    benchmark.pedantic(lambda: core_alone(work), rounds=1 if nodes > 10_000 else 5)
    benchmark.extra_info["peak_rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    note_rate(benchmark, nodes * PEERS)


@pytest.mark.parametrize(("starts", "links"), CASES)
def test_repair_against_filling_from_scratch(ratio, benchmark, starts, links):
    work = draw(1_000, links, starts)
    for ours, theirs in zip(core_alone(work), core_alone(work, incremental=False), strict=True):
        assert np.array_equal(ours, theirs)
    ratio(lambda: core_alone(work), lambda: core_alone(work, incremental=False), "all rates at every event", 3)
    note_rate(benchmark, work.peers.size)


@pytest.mark.parametrize(("starts", "links"), CASES)
@pytest.mark.parametrize("nodes", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_repair_against_filling_from_scratch_at_the_beginning(ratio, benchmark, nodes, starts, links):
    """Filling from scratch takes hours for so many nodes, so it ends at the 100th end or the 1,000th start."""
    skip_if_large_and_untimed(benchmark, nodes)
    work = draw(nodes, links, starts)
    until_ns = int(core_alone(work)[0][100] if starts == "sync" else np.sort(work.start_ns)[1_000])
    for ours, theirs in zip(state_at(work, True, until_ns), state_at(work, False, until_ns), strict=True):
        assert np.array_equal(ours, theirs)
    ratio(
        lambda: state_at(work, True, until_ns),
        lambda: state_at(work, False, until_ns),
        "all rates at every event, up to the 100th end or 1,000th start",
        1,
    )
    benchmark.extra_info["gated"] = False  # some milliseconds, once: it varies by 1.4 on a quiet machine


@pytest.mark.parametrize(
    ("nodes", "rounds", "starts"),
    [
        (1_000, 10, "sync"),
        (1_000, 10, "async"),
        (10_000, 4, "sync"),
        (10_000, 4, "async"),
        (10_000, 10, "sync"),
        pytest.param(100_000, 1, "sync", marks=pytest.mark.slow),
        pytest.param(100_000, 1, "async", marks=pytest.mark.slow),
    ],
)
def test_through_simpy_against_a_process_per_message(ratio, benchmark, nodes, rounds, starts):
    """Includes set-up and the report of link use: a tenth of the time for four rounds."""
    skip_if_large_and_untimed(benchmark, nodes)
    work = draw(nodes, "lognormal", starts)
    messages, steps, plain_steps = work.peers.size * rounds, [], []

    def counted_plain_simpy() -> None:
        plain_simpy(work, rounds, run=lambda env: plain_steps.append(count_steps(env)))

    through_simpy(work, rounds, starts == "sync", run=lambda env: steps.append(count_steps(env)))
    # If plain SimPy takes a minute, it is timed once, with its steps counted.
    once = messages > 200_000
    if not once:
        counted_plain_simpy()
    ratio(
        lambda: through_simpy(work, rounds, starts == "sync"),
        counted_plain_simpy if once else lambda: plain_simpy(work, rounds),
        "one SimPy process per message, links first come first served",
        1 if once else 3,
        warm=nodes <= 10_000,
    )
    assert steps[0] < 2 * messages < plain_steps[0]
    # Only small sizes are gated: plain SimPy needs a minute for the others.
    benchmark.extra_info.update(events=steps[0], plain_events=plain_steps[0], gated=nodes == 1_000)
    note_rate(benchmark, messages)


@pytest.mark.slow
def test_ten_rounds_of_a_hundred_thousand_nodes(benchmark):
    work = draw(100_000, "lognormal", "sync")
    start = time.perf_counter()
    benchmark.pedantic(lambda: through_simpy(work, 10, synchronous=True), rounds=1)
    benchmark.extra_info["peak_rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    assert time.perf_counter() - start < 600
    note_rate(benchmark, work.peers.size * 10)
