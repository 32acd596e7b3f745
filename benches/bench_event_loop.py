"""Simulated rounds without learning: nodes, verbs, mailboxes, network and records of 1,000 nodes.

Every node trains 10 steps, sends its model to four peers and waits for theirs. The alternative is the same protocol in
plain SimPy: one process per node and one per message, with links that are held first come first
served, no mailboxes, no records, no traffic counters.
"""

from pathlib import Path

import pytest
import simpy

from ddlsim import assembly, runs
from ddlsim.runs.recorder import Recorder
from ddlsim.scenario import load
from ddlsim.topologies.base import neighbors

SMOKE = Path(__file__).parents[1] / "scenarios" / "smoke.yaml"
NODES, DEGREE, ROUNDS, SIZE = 1_000, 4, 5, 4 * 89_834
STEP_S, LATENCY_S, RATE = 0.05, 0.02, 12.5e6


@pytest.fixture(scope="module")
def scenario():
    return load(
        SMOKE,
        (
            "learning=none",
            f"nodes={{clusters: [{NODES}]}}",
            f"rounds={ROUNDS}",
            "algorithm={name: el, final_all_reduce: false}",
            "model={name: sizes}",
            f"topology={{name: random_regular, degree: {DEGREE}, dynamic: true}}",
            "training.local_steps=10",
        ),
    )


def simulated(scenario, tmp_path):
    """Run a simulation in this process, from built objects; return it."""
    prepared = runs.prepare(runs.load_data(scenario, None, True, False))
    recorder = Recorder(tmp_path / "metrics.jsonl")
    learner = assembly.build_learner(scenario, prepared, "none")
    simulation = assembly.build_simulation(scenario, prepared, learner, recorder)
    simulation.run()
    recorder.close()
    return simulation


def plain_simpy(peers: list[list[list[int]]]) -> int:
    """Simulate messages to the peers of each round and node; return the number that arrived."""
    env = simpy.Environment()
    uplinks = [simpy.Resource(env) for _ in range(NODES)]
    downlinks = [simpy.Resource(env) for _ in range(NODES)]
    inboxes = [[simpy.Store(env) for _ in range(NODES)] for _ in peers]
    arrived = 0

    def message(src: int, dst: int, inbox: simpy.Store):
        for link in (uplinks[src], downlinks[dst]):
            with link.request() as request:
                yield request
                yield env.timeout(SIZE / RATE)
        yield env.timeout(LATENCY_S)
        yield inbox.put(src)

    def live(node: int):
        nonlocal arrived
        for graph, inbox in zip(peers, inboxes, strict=True):
            yield env.timeout(10 * STEP_S)
            for peer in graph[node]:
                env.process(message(node, peer, inbox[peer]))
            for _ in graph[node]:
                yield inbox[node].get()
                arrived += 1

    for node in range(NODES):
        env.process(live(node))
    env.run()
    return arrived


def test_rounds_of_a_thousand_nodes(ratio, benchmark, scenario, tmp_path):
    simulation = simulated(scenario, tmp_path)
    graphs = [neighbors(scenario.topology, NODES, number, scenario.seed) for number in range(ROUNDS)]
    peers = [[list(its) for its in graph] for graph in graphs]
    messages = NODES * DEGREE * ROUNDS
    assert {len(its) for graph in peers for its in graph} == {DEGREE}
    assert simulation.network.traffic.total()["messages"] == messages == plain_simpy(peers)
    ratio(lambda: simulated(scenario, tmp_path), lambda: plain_simpy(peers), "a plain SimPy process per message", 5)
    benchmark.extra_info["messages"] = messages
