"""From a scenario to a run: the only file that knows all parts."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ddlsim import metrics, rundir
from ddlsim.errors import DataMissing, ScenarioError
from ddlsim.rng import stream_seed

if TYPE_CHECKING:
    from ddlsim.engine.simulation import Simulation
    from ddlsim.evaluation.evaluator import Evaluated
    from ddlsim.scenario import Scenario


@dataclass(frozen=True)
class Loaded:
    """A scenario with the data it will really run on.

    Args:
        scenario: the scenario, or its fallback.
        dataset: what was loaded; for a network-only run its outline.
        missing: why the fallback is used; None when it is not.
    """

    scenario: "Scenario"
    dataset: object
    missing: str | None = None


def load_data(
    scenario: "Scenario", data_dir: Path | None = None, fallback: bool = True, download: bool = True
) -> Loaded:
    """Finds the scenario's data set, or goes over to the scenario's fallback.

    Raises:
        DataMissing: if the data is not there and there is no fallback, or it is not wanted.
    """
    from ddlsim.data import DataSearch, load_dataset, outline

    search = DataSearch(data_dir, download)

    def read(wanted: "Scenario"):
        if wanted.learning == "none":
            return outline(wanted.data, wanted.nodes, wanted.validation, wanted.seed, search)
        return load_dataset(wanted.data, wanted.nodes, wanted.seed, search)

    try:
        return Loaded(scenario, read(scenario))
    except DataMissing as error:
        other = scenario.fallback_scenario() if fallback else None
        if other is None:
            raise
        return Loaded(other, read(other), str(error))


def choose_device(wanted: str) -> str:
    """`auto` takes a GPU when there is one.

    Raises:
        DataMissing: if CUDA is wanted and torch sees none.
    """
    import torch

    if wanted == "cuda" and not torch.cuda.is_available():
        raise DataMissing("device: cuda was asked for, but torch sees no CUDA device. Use --device auto or cpu.")
    return "cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu"


def prepare(loaded: Loaded):
    """The data of every node and cluster; see ddlsim.data.prepare. Of a network-only run: the outline."""
    from ddlsim.data import prepare as prepare_data

    scenario = loaded.scenario
    if scenario.learning == "none":
        return loaded.dataset
    prepared = prepare_data(
        loaded.dataset, scenario.partition, scenario.shift, scenario.validation, scenario.nodes, scenario.seed
    )
    prepared.check_augmentation(scenario.training.augmentation)
    return prepared


def build_learner(scenario: "Scenario", prepared, device: str):
    """Parameters, data and waves of all nodes on a device; for a network-only run what stands in for them."""
    shape, classes, model = prepared.image_shape, prepared.num_classes, scenario.model
    buffers = getattr(model, "buffers", "shared")
    builders, assigned = {type(model).__name__: lambda: model.build(shape, classes)}, None
    if hasattr(model, "assignment"):
        builders, assigned = model.builders(shape, classes), model.assignment(scenario.nodes.count, scenario.seed)
    if scenario.algorithm.has_extra_parts:
        builders = {name: _extended(build, scenario.algorithm, prepared) for name, build in builders.items()}
    if scenario.learning == "none":
        from ddlsim.learning.sizes import SizeLearner, parts_of, parts_of_sizes

        if hasattr(model, "part_sizes"):
            parts = {type(model).__name__: parts_of_sizes(model.part_sizes())}
        else:
            parts = {name: parts_of(name, build, buffers) for name, build in builders.items()}
        _require_core(scenario, {name: own["core"].size for name, own in parts.items()})
        return SizeLearner(parts, classes, prepared.samples, scenario.training.batch_size, assigned)
    import os

    import torch

    from ddlsim.learning.learner import Learner

    if device == "cpu":
        from ddlsim.learning.allocator import keep_freed_memory

        keep_freed_memory()
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    learner = Learner(
        builders,
        prepared,
        scenario.training,
        torch.device(device),
        threads,
        scenario.evaluation.batch_size,
        assigned,
        stream_seed(scenario.seed, "untrained values"),
        buffers,
    )
    _require_core(scenario, {name: found.layout.parts["core"].size for name, found in learner.architectures.items()})
    return learner


def _require_core(scenario: "Scenario", sizes: dict[str, int]) -> None:
    """Whether every architecture has a trained core, if the algorithm keeps core and head apart.

    Raises:
        ScenarioError: if one has none.
    """
    lacking = [name for name, size in sizes.items() if not size]
    if lacking and getattr(scenario.algorithm, "needs_core", False):
        raise ScenarioError(
            f"model: {lacking[0]} has no core that is trained, and {scenario.algorithm_name} keeps core and head "
            "apart. Choose a model with a core, or an algorithm that shares whole models (el, dpsgd, dac, ...)."
        )


def _extended(build, algorithm, prepared):
    """A model with the parts that an algorithm trains beside it."""
    import torch

    from ddlsim.learning.heads import with_extra_parts

    make = lambda latent: algorithm.extra_parts(latent, prepared.num_classes)  # noqa: E731
    return with_extra_parts(build, make, prepared.image_shape, getattr(torch, prepared.dtype))


def build_network(scenario: "Scenario", env, has_server: bool):
    """The links of all nodes, with capacities that follow their traces."""
    from ddlsim.network.capacity_trace import follow
    from ddlsim.network.network import Network
    from ddlsim.network.server import with_server
    from ddlsim.units import mbps_to_bytes_per_s

    num_nodes, network = scenario.nodes.count, scenario.network
    links = network.links.draw(num_nodes, scenario.seed)
    if has_server:
        links = with_server(links, num_nodes, float(mbps_to_bytes_per_s(network.server_mbps)))
    made = Network(
        env,
        num_nodes + has_server,
        links.uplink_bytes_per_s,
        links.downlink_bytes_per_s,
        links.latency_s,
        fidelity=network.fidelity,
        header_bytes=network.header_bytes,
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


def build_run(scenario: "Scenario", prepared):
    """What all nodes know of the run."""
    from functools import partial

    from ddlsim.engine.run_info import Run
    from ddlsim.network.server import star
    from ddlsim.topologies.base import neighbours

    num_nodes, has_server = scenario.nodes.count, scenario.algorithm.has_server
    scenario.topology.check(num_nodes)
    graph = star(num_nodes)
    drawn = partial(neighbours, scenario.topology, num_nodes, seed=scenario.seed)
    return Run(
        seed=scenario.seed,
        rounds=scenario.rounds,
        node_cluster=np.asarray(prepared.node_cluster),
        graph_of=(lambda _: graph) if has_server else (lambda round_num: drawn(round_num=round_num)),
        local_steps=scenario.training.steps,
        synchronous=scenario.mode == "sync",
        staleness=scenario.protocol.staleness,
        has_server=has_server,
    )


def build_monitor(scenario: "Scenario", prepared, learner, recorder, run, members, measurements, on_evaluated):
    """What measures completed rounds: evaluations, or times where nothing is learned."""
    from ddlsim.evaluation.evaluator import Evaluator, Schedule
    from ddlsim.evaluation.oracle_similarities import TrueSimilarities
    from ddlsim.evaluation.round_times import RoundTimes

    if scenario.learning == "none":
        return RoundTimes(recorder)
    algorithm, evaluation = scenario.algorithm, scenario.evaluation

    def compare(node, own, others, rng):
        return algorithm.similarities_of(members[node].node, own, others, learner, rng)

    return Evaluator(
        learner,
        recorder,
        evaluation,
        Schedule(evaluation.every, scenario.rounds, algorithm.has_final_exchange),
        run.node_cluster if prepared.test_set is None else prepared.test_set,
        prepared.task,
        run.rng,
        measurements,
        TrueSimilarities(scenario.records.true_similarities, compare, recorder, run.rng),
        on_evaluated,
    )


def build_simulation(
    scenario: "Scenario",
    prepared,
    learner,
    recorder,
    on_round: Callable[[int, float, int], None] = lambda *_: None,
    on_evaluated: "Callable[[Evaluated], None]" = lambda _: None,
) -> "Simulation":
    """All objects of one run, from the ground up."""
    from functools import partial

    from ddlsim.engine.churn_process import ChurnProcess
    from ddlsim.engine.clock import SimulatedClock
    from ddlsim.engine.membership import Member
    from ddlsim.engine.node_log import NodeLog, SilentLog
    from ddlsim.engine.simulation import Simulation
    from ddlsim.engine.transport import NetworkTransport
    from ddlsim.evaluation.early_stopping import BestModel
    from ddlsim.evaluation.measurements import Measurements
    from ddlsim.messages.quantized import NoCompression
    from ddlsim.network.environment import Environment
    from ddlsim.node.ports import Ports

    num_nodes, churn, learns = scenario.nodes.count, scenario.churn, scenario.learning != "none"
    env = Environment()
    network = build_network(scenario, env, scenario.algorithm.has_server)
    run = build_run(scenario, prepared)
    members = [Member(node, is_server=node == run.server) for node in range(num_nodes + run.has_server)]
    clock = SimulatedClock(env, scenario.devices.draw(num_nodes, scenario.seed))
    codec = None if isinstance(scenario.network.compression, NoCompression) else scenario.network.compression
    transport = NetworkTransport(network, members, run, clock, learner, scenario.protocol, codec)
    measurements = Measurements(learner, recorder)
    log = NodeLog(recorder, measurements) if learns else SilentLog()
    stopping, validated = scenario.training.early_stopping, None
    if stopping is not None or scenario.evaluation.checkpoint == "best":
        # Validation takes its time in a network-only run too, but its values say nothing and stop no node.
        validated = partial(BestModel, stopping.patience if stopping is not None and learns else None)
    absences = churn.absences(num_nodes, scenario.seed) if churn else {}
    return Simulation(
        env,
        scenario.algorithm,
        Ports(clock, transport, learner, run, log),
        transport,
        members,
        ChurnProcess(env, members, absences, churn is not None and churn.state == "lost"),
        build_monitor(scenario, prepared, learner, recorder, run, members, measurements, on_evaluated),
        recorder,
        validated,
        on_round,
    )


def run(
    scenario: "Scenario",
    *,
    out: Path | None = None,
    data_dir: Path | None = None,
    fallback: bool = True,
    download: bool = True,
    device: str | None = None,
    force: bool = False,
    profile: bool = False,
    progress: str = "none",
    command: list[str] | None = None,
) -> dict:
    """Runs a scenario and leaves a run directory.

    Args:
        scenario: what to run.
        out: the run directory; by default runs/<scenario>/<algorithm>-s<seed>-<digest>.
        data_dir: where to look for data first.
        fallback: whether the scenario's fallback may be used when its data is missing.
        download: whether torchvision may download.
        device: auto, cpu or cuda; by default the scenario's.
        force: run again although the directory holds a complete run.
        profile: keep where wall time went (`profile` in the summary).
        progress: auto, plain or none.
        command: for the manifest.
    Returns:
        The summary, as in summary.json.
    Raises:
        ScenarioError, DataMissing: see there; nothing was run.
    """
    from ddlsim.report.console import Progress

    started = time.perf_counter()
    device = "none" if scenario.learning == "none" else choose_device(device or scenario.device)
    data_started = time.perf_counter()
    loaded = load_data(scenario, data_dir, fallback, download)
    scenario = loaded.scenario
    directory = out or rundir.default_path(scenario)
    finished = rundir.complete_summary(directory)
    console = Progress(scenario.name, scenario.rounds, mode=progress)
    try:
        if finished and not force and rundir.same_scenario(directory, scenario):
            console.message(f"{directory} holds this run already; --force runs it again.")
            return finished
        if loaded.missing:
            console.message(f"{loaded.missing}\nFALLBACK: running on {scenario.data_name} instead.")
        prepared = prepare(loaded)
        scenario.model.check(prepared.image_shape)
        data_s = time.perf_counter() - data_started
        learner = build_learner(scenario, prepared, device)  # a model that does not fit leaves no directory behind
        try:
            directory = rundir.prepare(directory)
            manifest = rundir.start_manifest(scenario, prepared, device, loaded.missing, command)
            return _run_in(directory, manifest, scenario, prepared, learner, console, started, data_s, profile)
        finally:
            learner.close()
    finally:
        console.close()


def _run_in(directory, manifest, scenario, prepared, learner, console, started, data_s, profile) -> dict:
    """Runs with the directory's files open; whatever happens, what was computed is kept and summarised."""
    from ddlsim.report.summary import summarise
    from ddlsim.runs.recorder import Recorder, write_communication, write_contents, write_links

    rundir.write_scenario(directory, scenario)
    rundir.write_manifest(directory, manifest)
    if scenario.records.detail == "full":
        rundir.write_samples(directory, prepared)
    recorder = Recorder(directory / "metrics.jsonl")
    node_cluster = np.asarray(prepared.node_cluster)

    def on_evaluated(outcome: "Evaluated") -> None:
        completed = min(outcome.completed, scenario.rounds)  # the last exchange is no round of its own to a reader
        console.evaluation(
            completed,
            outcome.time_s,
            outcome.bytes_sent,
            float(metrics.over_nodes(outcome.values)),
            metrics.over_clusters(outcome.values, node_cluster).tolist(),
            outcome.metric,
        )

    simulation = build_simulation(scenario, prepared, learner, recorder, console.round, on_evaluated)
    if scenario.learning != "none":
        prepared.release()
    status = "failed"
    setup_s = time.perf_counter() - started - data_s
    try:
        simulation.run()
        status = "done"
    except KeyboardInterrupt:
        status = "interrupted"
        console.message(f"Interrupted. What has been computed is in {directory}.")
    except Exception as error:
        error.run_dir = directory  # type: ignore[attr-defined]  # where the command line puts the traceback
        raise
    finally:
        closing = time.perf_counter()
        recorder.close()
        network, detail = simulation.network, scenario.records.detail
        write_communication(directory / "communication.jsonl", network.traffic, detail)
        write_links(directory / "links.jsonl", network.use(), detail)
        write_contents(directory / "contents.jsonl", simulation.transport.contents)
        recording_s = recorder.wall_s + time.perf_counter() - closing
        rundir.finish_manifest(manifest, status, started, simulation.env.now)
        if profile:
            manifest["profile"] = rundir.wall_profile(learner.jobs.wall_s, setup_s, data_s, recording_s, manifest)
            manifest["through_pytorch"], manifest["one_by_one"] = learner.through_pytorch, learner.one_by_one
        rundir.write_manifest(directory, manifest)
        summary = summarise(directory)
        rundir.write_json(directory / "summary.json", summary)
    return summary
