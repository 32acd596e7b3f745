"""Flows and links for comparisons of the simulated network with real TCP."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

import ddlsim
from ddlsim.network.network import Network

Flow = tuple[float, int, int, int]
"""start_s, src, dst, bytes."""

LENET_VALUES = 89_834
SMALL = {"core": LENET_VALUES - 650, "head": 650}


@dataclass(frozen=True)
class Case:
    """Flows over links.

    Args:
        links: per host (uplink Mbit/s, downlink Mbit/s, access latency ms).
        flows: the messages.
        leaves: host -> time of its disconnection.
    """

    links: tuple[tuple[float, float, float], ...]
    flows: tuple[Flow, ...]
    leaves: dict[int, float] = field(default_factory=dict)


def _same(count: int, mbps: float, latency_ms: float) -> tuple[tuple[float, float, float], ...]:
    return ((mbps, mbps, latency_ms),) * count


def _one_by_one(sizes: list[int], mbps: float) -> tuple[Flow, ...]:
    flows, start_s = [], 0.0
    for size in sizes:
        flows.append((start_s, 0, 1, size))
        start_s = round(start_s + 1.2 + 1.2 * size * 8 / (mbps * 1e6), 3)
    return tuple(flows)


def single(latency_ms: float) -> Case:
    """One flow at a time, 1 kB to 10 MB."""
    return Case(_same(2, 20.0, latency_ms), _one_by_one([1000, 10_000, 100_000, 1_000_000, 10_000_000], 20.0))


def single_rtts() -> Case:
    """Eight messages of a model over one connection, alone on its links, at five one-way latencies, 2 to 80 ms."""
    links = tuple((20.0, 20.0, own) for own in (1.0, 5.0, 10.0, 20.0, 40.0) for _ in range(2))
    pairs = [(host, host + 1) for host in range(0, 10, 2)]
    return Case(links, tuple((round(1.2 * turn, 1), *pair, 4 * LENET_VALUES) for turn in range(8) for pair in pairs))


def large() -> Case:
    """One flow of 50 MB."""
    return Case(_same(2, 20.0, 10.0), ((0.0, 0, 1, 50_000_000),))


def uplink() -> Case:
    """Two and four flows out of one uplink."""
    two = [(0.0, 0, dst, 2_500_000) for dst in (1, 2)]
    four = [(3.5, 0, dst, 1_000_000) for dst in (1, 2, 3, 4)]
    return Case(_same(5, 20.0, 5.0), tuple(two + four))


def incast() -> Case:
    """Three and seven senders to one receiver."""
    three = [(0.0, src, 0, 1_000_000) for src in range(1, 4)]
    seven = [(3.0, src, 0, 500_000) for src in range(1, 8)]
    return Case(_same(8, 20.0, 5.0), tuple(three + seven))


def random_flows() -> tuple[Flow, ...]:
    """Eighty flows between random pairs of eight hosts within ten seconds, sizes lognormal."""
    rng = np.random.default_rng(1)
    flows = []
    for _ in range(80):
        src, dst = (int(host) for host in rng.choice(8, 2, replace=False))
        flows.append(
            (round(float(rng.uniform(0, 10)), 4), src, dst, max(1000, int(200_000 * np.exp(rng.normal(0, 1)))))
        )
    return tuple(sorted(flows))


def hetero() -> Case:
    """The random flows over lognormal links."""
    rng = np.random.default_rng(2)
    links = [tuple(round(float(median * np.exp(rng.normal(0, 0.6))), 3) for median in (10, 20, 10)) for _ in range(8)]
    return Case(tuple(links), random_flows())


def churn() -> Case:
    """Host 2 is disconnected during a transfer; flows on its links then have more capacity."""
    flows = [(0.0, 0, 1, 2_500_000), (0.0, 2, 1, 2_500_000), (0.0, 3, 2, 2_500_000), (0.0, 3, 4, 2_500_000)]
    flows += [(0.0, 5, 2, 2_500_000), (0.5, 5, 0, 1_000_000)]
    return Case(_same(6, 20.0, 5.0), tuple(flows), {2: 0.8})


def rounds_of(algorithm: str, nodes: int, rounds: int, seconds: float, seed: int = 0) -> tuple[Flow, ...]:
    """The messages of an algorithm of ddlsim, one round every so many seconds, as flows."""
    found: list[Flow] = []
    sent = Network.send

    def listen(self: Network, messages: list) -> None:
        sent(self, messages)
        for message in messages:
            size = message.payload_bytes + message.header_bytes
            found.extend((message.sent_s, message.src, to, size) for to in message.receivers)

    scenario = {
        "name": "rounds",
        "seed": seed,
        "nodes": {"clusters": [nodes]},
        "rounds": rounds,
        "algorithm": {"name": algorithm, "final_all_reduce": False},
        "learning": "none",
        "model": {"name": "sizes", **SMALL},
        "data": {"name": "fashion-mnist-mini"},
        "training": {"local_steps": 1, "learning_rate": 0.1},
        "devices": {"name": "constant", "step_time_s": seconds},
        "network": {"fidelity": "ideal"},
        "topology": {"name": "random_regular", "degree": 4, "dynamic": True},
    }
    Network.send = listen
    try:
        with tempfile.TemporaryDirectory() as folder:
            ddlsim.run(scenario, out=folder)
    finally:
        Network.send = sent
    number = {sent_s: i for i, sent_s in enumerate(sorted({flow[0] for flow in found}))}
    return tuple(sorted((round(number[sent_s] * seconds, 6), *rest) for sent_s, *rest in found))


def rtts() -> Case:
    """EL rounds of eight nodes whose latencies lie between 1 and 40 ms."""
    latencies_ms = (1.0, 1.0, 5.0, 5.0, 10.0, 20.0, 40.0, 40.0)
    return Case(tuple((20.0, 20.0, own) for own in latencies_ms), rounds_of("el", 8, 8, 1.2))


CASES: dict[str, Callable[[], Case]] = {
    "single_0ms": lambda: single(0.0),
    "single_20ms": lambda: single(10.0),
    "single_rtts": single_rtts,
    "large": large,
    "uplink": uplink,
    "incast": incast,
    "random": lambda: Case(_same(8, 20.0, 5.0), random_flows()),
    "hetero": hetero,
    "churn": churn,
    "el_8": lambda: Case(_same(8, 20.0, 10.0), rounds_of("el", 8, 10, 1.2)),
    "el_8_rtts": rtts,
    "facade_8": lambda: Case(_same(8, 20.0, 10.0), rounds_of("facade", 8, 6, 1.2)),
    "el_32": lambda: Case(_same(32, 8.0, 10.0), rounds_of("el", 32, 4, 2.5)),
    "el_8_other": lambda: Case(_same(8, 20.0, 10.0), rounds_of("el", 8, 10, 1.2, seed=1)),
    "facade_8_other": lambda: Case(_same(8, 20.0, 10.0), rounds_of("facade", 8, 6, 1.2, seed=1)),
    "el_16": lambda: Case(_same(16, 15.0, 10.0), rounds_of("el", 16, 6, 1.5, seed=1)),
}
"""By name; `large` takes 22 s, the others 4 to 16 s. Nothing is fitted to `*_other` and `el_16`: they are there to test
what was fitted to the others."""
