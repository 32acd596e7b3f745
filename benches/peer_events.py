"""Messages per CPU second of network-only runs: ddlsim and two other simulators.

    python benches/peer_events.py ddlsim NODES ROUNDS [flow|latency] [gossip]
    PYTHONPATH=GOSSIPY_CHECKOUT python benches/peer_events.py gossipy NODES ROUNDS
    PYTHONPATH=DASKLEARN_CHECKOUT python benches/peer_events.py dasklearn NODES ROUNDS

Runs do not learn. ddlsim and dasklearn (decentralized-learning-simulator; run in its checkout's folder) do rounds of
Epidemic Learning on a new random 4-regular graph per round. gossipy, and ddlsim with `gossip`, push to one random
neighbor per node and round on one such graph, gossipy with handlers that do nothing. The figure is the processor
time of the simulation, without imports and creation of nodes. The networks differ: ddlsim shares links
max-min fairly (`flow`) or delays messages (`latency`), dasklearn queues transfers on links of 1 MB/s, gossipy delays
by a random whole number of its 100 time steps per round.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

DEGREE, STEPS_PER_ROUND = 4, 100


def ddlsim(nodes: int, rounds: int, fidelity: str = "flow", algorithm: str = "el") -> tuple[int, float]:
    """Return messages and CPU seconds."""
    from ddlsim import assembly, runs
    from ddlsim.runs.recorder import Recorder
    from ddlsim.scenario import load

    changes = (f"nodes.clusters=[{nodes}]", f"rounds={rounds}", f"network.fidelity={fidelity}")
    if algorithm != "el":
        changes += (f"algorithm={{name: {algorithm}}}", "mode=async", "topology.dynamic=false")
    scenario = load(Path(__file__).parents[1] / "scenarios" / "million_network_only.yaml", changes)
    prepared = runs.prepare(runs.load_data(scenario, None, True, False))
    recorder = Recorder(Path(tempfile.mkdtemp()) / "metrics.jsonl")
    learner = assembly.build_learner(scenario, prepared, "none")
    simulation = assembly.build_simulation(scenario, prepared, learner, recorder)
    cpu_s = timed(simulation.run)
    return simulation.network.traffic.total()["messages"], cpu_s


def gossipy(nodes: int, rounds: int) -> tuple[int, float]:
    """Return messages and CPU seconds."""
    import networkx as nx
    from gossipy import CACHE, CacheKey
    from gossipy.core import AntiEntropyProtocol, StaticP2PNetwork, UniformDelay
    from gossipy.model.handler import ModelHandler
    from gossipy.node import GossipNode
    from gossipy.simul import GossipSimulator, SimulationReport

    class NoWork(ModelHandler):
        def init(self) -> None: ...
        def _update(self, data) -> None: ...
        def _merge(self, other) -> None: ...
        def __call__(self, received, data) -> None: ...
        def evaluate(self) -> dict:
            return {}

        def caching(self, owner: int) -> CacheKey:
            key = CacheKey(owner, self.n_updates)
            self.n_updates += 1
            CACHE.push(key, self)
            return key

    class NoData:
        def has_test(self) -> bool:
            return False

    graph = StaticP2PNetwork(nodes, nx.to_numpy_array(nx.random_regular_graph(DEGREE, nodes, seed=0)))
    members = {i: GossipNode(i, (None, None), STEPS_PER_ROUND, NoWork(), graph) for i in range(nodes)}
    delay = UniformDelay(0, 10)
    simulator = GossipSimulator(members, NoData(), STEPS_PER_ROUND, AntiEntropyProtocol.PUSH, delay=delay)
    report = SimulationReport()
    simulator.add_receiver(report)
    simulator.init_nodes()
    cpu_s = timed(lambda: simulator.start(rounds))
    return report._sent_messages, cpu_s


def dasklearn(nodes: int, rounds: int) -> tuple[int, float]:
    """Return messages and CPU seconds, including the creation of nodes."""
    from dasklearn.session_settings import LearningSettings
    from dasklearn.simulation.dpsgd.settings import DPSGDSettings
    from dasklearn.simulation.dpsgd.simulation import DPSGDSimulation

    settings = DPSGDSettings(
        algorithm="epidemic",
        el="oracle",
        topology="kreg",
        k=DEGREE,
        synchronous=True,
        participants=nodes,
        rounds=rounds,
        seed=0,
        work_dir=tempfile.mkdtemp(),
        dataset="cifar10",
        learning=LearningSettings(batch_size=8, learning_rate=0, momentum=0, weight_decay=0, local_steps=10),
        brokers=1,
        dry_run=True,
        unit_testing=True,
        profile=False,
        duration=10**15,
    )

    async def run() -> float:
        simulation = DPSGDSimulation(settings)
        start = time.process_time()
        await simulation.run()
        sent = sum(client.bw_scheduler.total_bytes_sent for client in simulation.clients)
        assert sent == nodes * rounds * DEGREE * simulation.model_size
        return time.process_time() - start

    return nodes * rounds * DEGREE, asyncio.run(run())


def timed(call: Callable[[], object]) -> float:
    """Return the CPU seconds of a call."""
    start = time.process_time()
    call()
    return time.process_time() - start


if __name__ == "__main__":
    peer, nodes, rounds, *options = sys.argv[1:]
    messages, cpu_s = {"ddlsim": ddlsim, "gossipy": gossipy, "dasklearn": dasklearn}[peer](
        int(nodes), int(rounds), *options
    )
    print(f"{peer}, {nodes} x {rounds}: {messages:,} messages, {cpu_s:.2f} CPU s, {messages / cpu_s:,.0f} a CPU second")
