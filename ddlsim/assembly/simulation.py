"""Build the simulation of a scenario from its Compute port; the only file that knows all other parts.

It also changes a running simulation to another scenario, at the branching point of a branched run. Network, churn,
devices, protocol, evaluations and training settings change at once. Messages in flight and started
trainings end with the old settings: nodes that complete the branching round at one instant are in the next round then.
The algorithm's options change from the first round that no node has started, so that all nodes run a round alike.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import simpy

from ddlsim.assembly.draws import absences_drawn, links_drawn, step_times_of
from ddlsim.assembly.learner import attackers_of
from ddlsim.attacks.node_attacks import Attackers
from ddlsim.churn.schedule import Absences
from ddlsim.data.dataset_spec import DatasetSpec
from ddlsim.data.prepared import PreparedData
from ddlsim.engine.attacked_transport import AttackedTransport
from ddlsim.engine.clock import RunParts, SimulatedClock
from ddlsim.engine.evaluator import Evaluated, Evaluator, Measurements, Monitor
from ddlsim.engine.forging import ForgingPacker
from ddlsim.engine.gc_tuning import free_earlier_runs
from ddlsim.engine.membership import Member
from ddlsim.engine.meters import EnergyMeter, PrivacyMeter
from ddlsim.engine.monitor import OracleSimilarities, Records, RoundTimes
from ddlsim.engine.packing import MessagePacker
from ddlsim.engine.simulation import Simulation
from ddlsim.engine.time_use import Timeline, TimeUse
from ddlsim.engine.transport import EnginePorts, NetworkTransport
from ddlsim.foundation.accounting import Releases
from ddlsim.foundation.units import mbps_to_bytes_per_s
from ddlsim.network.link_settings import Bursts, Losses
from ddlsim.network.link_table import LinkTable, star, with_server
from ddlsim.network.messages.compression import Codec, NoCompression
from ddlsim.network.messages.message import MOST_NODES
from ddlsim.network.network import Network
from ddlsim.node.candidates import BestModel, Snapshot
from ddlsim.node.parameters import Deferred
from ddlsim.node.ports import Compute, Log, Model
from ddlsim.node.run import Run
from ddlsim.scenario import Scenario
from ddlsim.tasks.base import rows_of
from ddlsim.topologies.base import forget, neighbors

if TYPE_CHECKING:
    from ddlsim.learning.learner import Learner


def links_of(scenario: Scenario, has_server: bool) -> LinkTable:
    """Return the links of all nodes, the server's last."""
    links = links_drawn(scenario.links, scenario.nodes.count, scenario.seed)
    if not has_server:
        return links
    return with_server(links, float(mbps_to_bytes_per_s(scenario.network.server_mbps)))


def codec_of(scenario: Scenario) -> Codec | None:
    """Return the compression of parameters in messages, or None."""
    codec = scenario.network.compression
    return None if isinstance(codec, NoCompression) else codec


def absences_of(scenario: Scenario) -> Absences:
    """Return the absences of each node."""
    return absences_drawn(scenario.churn, scenario.nodes.count, scenario.seed)


def losses_of(scenario: Scenario) -> Losses:
    """Return the losses of messages."""
    network = scenario.network
    bursts = None if network.loss_bursts is None else Bursts(**network.loss_bursts.model_dump(), seed=scenario.seed)
    return Losses(network.drop_probability, bursts, network.on_drop, network.timeout_s)


def build_network(scenario: Scenario, env: simpy.Environment, has_server: bool) -> Network:
    """Build the network with the links of all nodes."""
    network = scenario.network
    return Network(
        env,
        links_of(scenario, has_server),
        fidelity=network.fidelity,
        header_bytes=network.header_bytes,
        losses=losses_of(scenario),
        seed=scenario.seed,
        tcp=network.tcp,
    )


def build_run(scenario: Scenario, prepared: PreparedData | DatasetSpec) -> Run:
    """Build the facts on the run that all nodes know."""
    num_nodes, has_server = scenario.nodes.count, scenario.algorithm.has_server
    if scenario.algorithm.uses_topology:
        scenario.topology.check(num_nodes)
    forget()
    graph = star(num_nodes)
    drawn = partial(neighbors, scenario.topology, num_nodes, seed=scenario.seed)
    return Run(
        seed=scenario.seed,
        rounds=scenario.rounds,
        node_cluster=np.asarray(prepared.node_cluster),
        graph_of=(lambda _: graph) if has_server else (lambda round_num: drawn(round_num=round_num)),
        local_steps=scenario.node_training.steps,
        synchronous=scenario.mode == "sync",
        participation=scenario.participation,
        has_server=has_server,
        uses_topology=scenario.algorithm.uses_topology,
        has_final_exchange=scenario.algorithm.has_final_exchange,
        own_starts=scenario.init == "own" and not scenario.algorithm.one_start,
        waits=scenario.algorithm.waits,
        collective=scenario.algorithm.collective,
    )


def build_members(scenario: Scenario, run: Run) -> list[Member]:
    """Build all nodes, the server last, each with the tracker of its best model if models are validated."""
    stopping, learns = scenario.training.early_stopping, scenario.learning != "none"
    validated = stopping is not None or scenario.evaluation.evaluated_model == "best"
    # In a network-only run validation takes time, but its values stop no node.
    patience = stopping.patience if stopping is not None and learns else None
    return [
        Member(node, is_server=node == run.server, best=BestModel(patience) if validated else None)
        for node in range(run.num_nodes + run.has_server)
    ]


def build_transport(
    scenario: Scenario,
    parts: RunParts,
    recorder: Records,
    attackers: Attackers | None,
    privacy_meter: PrivacyMeter | None,
) -> NetworkTransport:
    """Build the transport of messages, including forged ones."""
    private = scenario.privacy if scenario.privacy is not None and scenario.privacy.kind == "message" else None

    def record(node: int, round_num: int, name: str, value: int) -> None:
        recorder.row(parts.clock.now_s, node, round_num + 1, name, value)

    released = (lambda *_: None) if privacy_meter is None else privacy_meter.released
    packed = parts, codec_of(scenario), private, released
    carried = scenario.protocol, scenario.secure_aggregation, record
    if attackers is None:
        return NetworkTransport(parts, MessagePacker(*packed), *carried)

    return AttackedTransport(parts, ForgingPacker(attackers, *packed), *carried)


def meter_of(scenario: Scenario, env: simpy.Environment, network: Network, server: int | None) -> EnergyMeter | None:
    """Build the meter of the nodes' energy, or None if the scenario has no section energy."""
    if scenario.energy is None:
        return None
    costs, watts = scenario.energy.costs, scenario.devices.watts
    if costs.watts is None and costs.j_per_step is None and watts is not None:
        costs = replace(costs, watts=watts)
    return EnergyMeter(network.num_nodes, server, costs, lambda: env.now, network)


def privacy_meter_of(
    scenario: Scenario, env: simpy.Environment, learner: Compute, sent_in_clear: Callable[[int], bool]
) -> PrivacyMeter | None:
    """Build the meter of every node's epsilon, or None without privacy."""
    privacy = scenario.privacy
    if privacy is None:
        return None

    def one_release(node: int) -> Releases | None:
        if privacy.kind == "dp_sgd":
            return cast("Learner", learner).private_step(node)
        return None if sent_in_clear(node) else Releases(privacy.noise_of_message, 1.0, 1)

    return PrivacyMeter(scenario.nodes.count, one_release, privacy.delta, privacy.accountant, lambda: env.now)


def build_monitor(
    scenario: Scenario,
    prepared: PreparedData | DatasetSpec,
    parts: RunParts,
    recorder: Records,
    measurements: Measurements,
    attackers: Attackers | None,
    on_evaluated: Callable[[Evaluated], None],
    on_model: Callable[[int, Snapshot, Model, Any], None],
) -> Monitor:
    """Build the monitor of completed rounds: evaluations, or only times in a network-only run."""
    if scenario.learning == "none":
        return RoundTimes(recorder, parts.run.num_nodes)
    return Evaluator(
        cast("Learner", parts.compute),
        recorder,
        scenario.evaluation,
        scenario.rounds,
        cast("PreparedData", prepared).test_set,
        scenario.learned,
        parts.run.rng_after,
        measurements,
        oracle_of(scenario, parts.compute, recorder, parts.run, parts.members),
        on_evaluated,
        on_model,
        attackers,
        scenario.training.early_stopping is not None,
    )


def oracle_of(
    scenario: Scenario, learner: Compute, recorder: Records, run: Run, members: Sequence[Member]
) -> OracleSimilarities:
    """Return the true similarities of chosen nodes to all others, computed at every evaluation."""
    algorithm = scenario.algorithm

    def compare(node: int, own: Any, others: Mapping[int, Any], rng: np.random.Generator) -> Deferred:
        return algorithm.similarities_of(members[node].node, own, others, learner, rng)

    return OracleSimilarities(scenario.records.true_similarities, compare, recorder, run.rng_after)


def build_simulation(
    scenario: Scenario,
    prepared: PreparedData | DatasetSpec,
    learner: Compute,
    recorder: Records,
    on_round: Callable[[int, float, int], None] = lambda *_: None,
    on_evaluated: Callable[[Evaluated], None] = lambda _: None,
    on_model: Callable[[int, Snapshot, Model, Any], None] = lambda *_: None,
) -> Simulation:
    """Build the simulation of one run with all its objects."""
    rule, churn, learns = scenario.aggregation, scenario.churn, scenario.learning != "none"
    free_earlier_runs(scenario.nodes.count)
    env = simpy.Environment()
    network = build_network(scenario, env, scenario.algorithm.has_server)
    run = build_run(scenario, prepared)
    members = build_members(scenario, run)
    meter = meter_of(scenario, env, network, run.server)
    times = step_times_of(scenario, learner)
    window_s = scenario.records.timeline
    has_timeline = window_s is not None or network.num_nodes <= MOST_NODES
    use = TimeUse(network.num_nodes, env, Timeline(env, window_s) if has_timeline else None)
    clock = SimulatedClock(env, times.seconds, meter, times.forward_share, times.about, use)
    attackers = attackers_of(scenario, run.node_cluster)
    privacy_meter = privacy_meter_of(scenario, env, learner, lambda node: transport.packer.sent_in_clear(node))
    parts = RunParts(network, members, run, clock, learner)
    transport = build_transport(scenario, parts, recorder, attackers, privacy_meter)
    trains_privately = scenario.privacy is not None and scenario.privacy.kind == "dp_sgd"
    ended = privacy_meter.released if privacy_meter is not None and trains_privately else None
    aggregation = None if rule is None or rule.is_plain else rule
    measurements = Measurements(cast("Learner", learner), recorder, scenario.learned.judged_by)
    rows = recorder.row, measurements.take, rows_of(scenario.learned.metrics), measurements.losses.take
    log = Log(*rows) if learns else Log()

    def on_outcome(outcome: Evaluated) -> None:
        for own in (meter, privacy_meter):
            if own is not None:
                own.write(recorder, outcome.round)
        on_evaluated(outcome)

    return Simulation(
        env,
        scenario.algorithm,
        EnginePorts(clock, transport, learner, run, log, aggregation, attackers, ended),
        members,
        absences_of(scenario),
        churn is not None and churn.state == "lost",
        build_monitor(scenario, prepared, parts, recorder, measurements, attackers, on_outcome, on_model),
        recorder,
        on_round,
    )


def change_at_once(
    simulation: Simulation, before: Scenario, after: Scenario, learner: Compute, recorder: Records
) -> None:
    """Change the simulation to the other scenario at this instant, after the events that are due now.

    Args:
        simulation: a running simulation.
        before: its current scenario.
        after: its new scenario; may differ in the keys that runs/branch.py allows.
        learner: learner of the simulation.
        recorder: recorder of the simulation.
    """

    def change() -> Generator[Any, Any, None]:
        _change_surroundings(simulation, before, after, learner)
        run, monitor = simulation.ports.run, simulation.monitor
        if before.training != after.training:
            if after.learning != "none":
                cast("Learner", learner).use_training(after.node_training)
            run.local_steps = after.node_training.steps
            for member in simulation.members:
                member.node.settings_changed()
        if before.algorithm != after.algorithm:
            simulation.use_algorithm(after.algorithm)
        changed = any(getattr(before, key) != getattr(after, key) for key in ("evaluation", "records", "algorithm"))
        if changed and isinstance(monitor, Evaluator):
            oracle = oracle_of(after, learner, recorder, run, simulation.members)
            monitor.use(after.evaluation, after.rounds, simulation.furthest, oracle)
        return
        yield

    simulation.env.process(change())


def _change_surroundings(simulation: Simulation, before: Scenario, after: Scenario, learner: Compute) -> None:
    was, now = before.network, after.network
    network, transport = simulation.network, simulation.transport
    clock = simulation.ports.clock
    if (was.links, was.server_mbps) != (now.links, now.server_mbps):
        network.use_links(links_of(after, after.algorithm.has_server))
    network.header_bytes = now.header_bytes
    network.use_losses(losses_of(after))
    if was.compression != now.compression:
        transport.packer.use_codec(codec_of(after))
    transport.use_protocol(after.protocol)
    if before.devices != after.devices:
        times = step_times_of(after, learner)
        clock.use(times.seconds, times.forward_share, times.about)
    if before.churn != after.churn:
        simulation.presence.replace(absences_of(after), after.churn is not None and after.churn.state == "lost")
