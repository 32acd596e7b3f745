"""From a scenario to a simulation: the only file that knows all parts."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ddlsim.engine.evaluation import Evaluated
    from ddlsim.engine.simulation import Simulation
    from ddlsim.scenario import Scenario


def build_learner(scenario: "Scenario", prepared, device: str):
    """Parameters, data and waves of all nodes on a device; for a network-only run what stands in for them."""
    shape, classes, model = prepared.image_shape, prepared.num_classes, scenario.model
    builders, assigned = {type(model).__name__: lambda: model.build(shape, classes)}, None
    if hasattr(model, "assignment"):
        builders, assigned = model.builders(shape, classes), model.assignment(scenario.nodes.count, scenario.seed)
    if hasattr(scenario.algorithm, "extra_parts"):
        builders = {name: _extended(build, scenario.algorithm, shape, classes) for name, build in builders.items()}
    if scenario.learning == "none":
        from ddlsim.learning.sizes import SizeLearner, parts_of, parts_of_sizes

        if hasattr(model, "part_sizes"):
            parts = {type(model).__name__: parts_of_sizes(model.part_sizes())}
        else:
            parts = {name: parts_of(name, build) for name, build in builders.items()}
        return SizeLearner(parts, classes, prepared.samples, scenario.training.batch_size, assigned)
    import os

    import torch

    from ddlsim.learning.learner import Learner

    if device == "cpu":
        from ddlsim.learning.allocator import keep_freed_memory

        keep_freed_memory()
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Learner(
        builders, prepared, scenario.training, torch.device(device), threads, scenario.evaluation.batch_size, assigned
    )


def _extended(build, algorithm, image_shape, num_classes: int):
    """A model with the parts that an algorithm trains beside it."""
    from ddlsim.learning.heads import with_extra_parts

    return with_extra_parts(build, lambda latent: algorithm.extra_parts(latent, num_classes), image_shape)


def build_simulation(
    scenario: "Scenario",
    prepared,
    learner,
    recorder,
    on_round: Callable[[int, float, int], None] = lambda *_: None,
    on_evaluated: "Callable[[Evaluated], None]" = lambda _: None,
) -> "Simulation":
    """All objects of one run."""
    from ddlsim.compression.quantised import NoCompression
    from ddlsim.engine.capacity_trace import follow
    from ddlsim.engine.network import Network
    from ddlsim.engine.server import star, with_server
    from ddlsim.engine.simulation import Simulation
    from ddlsim.topologies import neighbours
    from ddlsim.units import mbps_to_bytes_per_s

    num_nodes, network = scenario.nodes.count, scenario.network
    scenario.topology.check(num_nodes)
    links = network.links.draw(num_nodes, scenario.seed)
    has_server = getattr(scenario.algorithm, "has_server", False)
    if has_server:
        links = with_server(links, num_nodes, float(mbps_to_bytes_per_s(network.server_mbps)))
    evaluation, stopping = scenario.evaluation, scenario.training.early_stopping

    def make_network(env, on_delivery, on_abort) -> Network:
        made = Network(
            env,
            num_nodes + has_server,
            links.uplink_bytes_per_s,
            links.downlink_bytes_per_s,
            links.latency_s,
            fidelity=network.fidelity,
            on_delivery=on_delivery,
            on_abort=on_abort,
            drop_prob=network.drop_probability,
            on_drop=network.on_drop,
            timeout_s=network.timeout_s,
            seed=scenario.seed,
            shared_bytes_per_s=links.shared_bytes_per_s,
            route=links.route,
        )
        if links.changes:
            env.process(follow(env, made, links.changes))
        return made

    return Simulation(
        algorithm=scenario.algorithm,
        learner=learner,
        make_network=make_network,
        neighbours=(lambda _: star(num_nodes))
        if has_server
        else (lambda round_num: neighbours(scenario.topology, num_nodes, round_num, scenario.seed)),
        has_server=has_server,
        step_time_s=scenario.devices.draw(num_nodes, scenario.seed),
        absences=scenario.churn.absences(num_nodes, scenario.seed) if scenario.churn else {},
        state_lost=getattr(scenario.churn, "state", "kept") == "lost",
        node_cluster=np.asarray(prepared.node_cluster),
        test_set=getattr(prepared, "test_set", None),
        recorder=recorder,
        seed=scenario.seed,
        rounds=scenario.rounds,
        steps_of=scenario.training.steps,
        evaluate_every=evaluation.every,
        header_bytes=network.header_bytes,
        synchronous=scenario.mode == "sync",
        deadline_s=scenario.protocol.deadline_s,
        keep_late=scenario.protocol.late == "keep",
        staleness=scenario.protocol.staleness,
        stop_at=evaluation.target if evaluation.stop_at_target else None,
        task=prepared.task,
        codec=None if isinstance(network.compression, NoCompression) else network.compression,
        network_only=scenario.learning == "none",
        patience=stopping.patience if stopping else None,
        best_model=evaluation.checkpoint == "best",
        true_similarities=scenario.records.true_similarities,
        on_round=on_round,
        on_evaluated=on_evaluated,
    )
