"""Checks of `ddlsim check` beyond a scenario's text: plug-ins that break their contract, links without capacity.

Plug-ins are tried in two real rounds of a few nodes, on samples of zeros in the shape of the scenario's data, so the
checks of a run find their faults: the algorithm's steps, messages and candidates, the model, the optimizer, attacks and
aggregation. Parts whose faults show only later or with more nodes are called with the scenario's own sizes as well:
graphs, schedules, absences, step times and links. An algorithm also runs two rounds with all nodes without learning,
since a small graph can hide a deadlock.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, permutations
from pathlib import Path
from typing import Any, cast

import numpy as np

from ddlsim.assembly import build_learner, build_simulation
from ddlsim.assembly.draws import absences_drawn, links_drawn, step_times_drawn
from ddlsim.data.dataset import Dataset
from ddlsim.data.dataset_spec import DatasetSpec
from ddlsim.data.partitions import Random
from ddlsim.data.prepared import PreparedData
from ddlsim.devices.step_times import Estimated
from ddlsim.engine.steps import forgotten_yields
from ddlsim.foundation import own_code
from ddlsim.foundation.errors import DataMissing, DdlsimError, ScenarioError, kind_of, listing
from ddlsim.learning.optimizing.schedules import no_factor
from ddlsim.learning.size_learner import SizeLearner
from ddlsim.models.base import Sizes
from ddlsim.network.access_links import Uniform
from ddlsim.network.link_table import LinkTable
from ddlsim.node.ports import Compute
from ddlsim.runs.loading import Loaded, load_data, prepare
from ddlsim.runs.recorder import Recorder
from ddlsim.scenario import Scenario, parts
from ddlsim.scenario.crosscheck import cross_problems
from ddlsim.scenario.parts import named_parts
from ddlsim.scenario.per_node import of_node
from ddlsim.tasks import as_task

ROUNDS, SAMPLES, MAX_STEPS = 2, 4, 2
"""Rounds of a trial, samples per node, and local steps."""
MAX_SMALL_NODES, MAX_NODES = 64, 256
"""Maximum nodes of a small trial, and of a trial of the algorithm with all nodes."""
FIRST_ABSENCES = 20
PACKAGE = str(Path(__file__).parents[1])
SEED_BYTES = 8
MAX_ROUTED = 64
"""Nodes between which all routes are checked for links without capacity."""


def plugin_problems(scenario: Scenario, notify: Callable[[str], None] = lambda _: None) -> list[str]:
    """Return the faults of a scenario's plug-ins, each with the line in its file.

    Args:
        scenario: a checked scenario.
        notify: receives sentences on trials that are impossible here.
    """
    plugins = {key: part for key, part in named_parts(scenario) if parts.table(key).about(part) is not None}
    if not plugins:
        return []
    found = list(_start_problems(plugins["algorithm"])) if "algorithm" in plugins else []
    small = _smallest(scenario, plugins)
    for problems in (_draw_problems(scenario, plugins), _round_problems(scenario, small, plugins, notify)):
        try:
            found += [] if found else problems
        except Exception as error:
            found.append(_with_place(error, plugins, small.nodes.count))
    return found


def _start_problems(algorithm: Any) -> Iterator[str]:
    """Yield the faults in an algorithm's source."""
    yield from forgotten_yields(type(algorithm))
    if inspect.isgeneratorfunction(type(algorithm).start):
        yield f"{_method(algorithm, 'start')} has a yield, but takes no simulated time; expected the node's state"


def _draw_problems(scenario: Scenario, plugins: Mapping[str, Any]) -> Iterator[str]:
    """Call plug-ins that are functions of the scenario's sizes as a run calls them."""
    count, seed, length = scenario.nodes.count, scenario.seed, max(1, scenario.rounds)
    if "topology" in plugins:
        first, second = (scenario.topology.neighbors(count, 0, seed) for _ in range(2))
        if first != second:
            yield f"{_method(scenario.topology, 'graph')} returns another graph for the same round and seed"
    if (schedule := plugins.get("schedule")) is not None:
        beyond = [length] if schedule.per == "step" or scenario.algorithm.has_final_exchange else []
        for position in sorted({0, length - 1, *beyond}):
            if wrong := no_factor(schedule.factor(position, length), position, length):
                yield f"{_method(schedule, 'factor')} returns {wrong}"
                break
    if "churn" in plugins:
        for absences in absences_drawn(scenario.churn, count, seed).values():
            list(islice(absences, FIRST_ABSENCES))
    if "devices" in plugins:
        step_times_drawn(scenario.devices, count, seed)
    if "links" in plugins:
        links_drawn(scenario.links, count, seed)
    if "compression" in plugins:
        yield from _codec_problems(plugins["compression"])


def _codec_problems(codec: Any) -> Iterator[str]:
    """Compare the size of a codec's output with the size that it counts."""
    import torch

    sizes, seeds = (4, 2), (1, 2)
    values = torch.linspace(-1, 1, 2 * sum(sizes)).reshape(2, sum(sizes))
    encoded = codec.encode(values, torch.zeros_like(values) if codec.keeps_copies else None, sizes, seeds)
    counted, stored = codec.num_bytes(sizes), sum(each.nbytes for each in encoded) / 2
    if counted not in (stored, stored + SEED_BYTES):  # the receiver may need a seed, which is not a tensor
        yield f"{_method(codec, 'num_bytes')} returns {counted}, but encode returns {stored:g} bytes a row"


def _round_problems(
    scenario: Scenario, small: Scenario, plugins: Mapping[str, Any], notify: Callable[[str], None]
) -> Iterator[str]:
    """Run two rounds of a few nodes; with a plug-in algorithm, also two rounds of all nodes without learning."""
    try:
        yield from _data_problems(small, plugins)
        prepared = _trial_data(small, plugins)
    except DataMissing as error:
        notify(f"The data is not available, so plug-ins could not be tried in rounds: {error}")
        return
    learner = build_learner(small, prepared, "none" if small.learning == "none" else "cpu", notify, threads=1)
    try:
        simulation = build_simulation(small, prepared, learner, Recorder())
        simulation.run()
    finally:
        learner.close()
    if "algorithm" not in plugins:
        return
    states = [member.state for member in simulation.members if not member.is_server][:2]
    if len(states) == 2 and states[0] is states[1] and not isinstance(states[0], str | int | float | tuple | None):
        yield f"{_method(small.algorithm, 'start')} returns the same object for two nodes, expected one for each"
    if scenario.nodes.count > MAX_NODES:
        notify(f"algorithm: tried with {small.nodes.count} of {scenario.nodes.count} nodes; deadlocks may be missed.")
    elif scenario.nodes.count > small.nodes.count:
        _run_all_nodes(_trial(scenario, scenario.nodes.clusters, plugins), learner)


def _run_all_nodes(whole: Scenario, learner: Compute) -> None:
    """Run two rounds without learning, with parameters of the sizes that a learner found."""
    whole = whole.model_copy(update={"learning": "none"})
    if not isinstance(learner, SizeLearner) and len(learner.architectures) == 1:
        (architecture,) = learner.architectures.values()
        sizes = {name: part.size for name, part in architecture.layout.parts.items()}
        if sizes.keys() == {"core", "head"}:
            whole = whole.model_copy(update={"model": Sizes(core=sizes["core"], head=sizes["head"])})
    outline = _outline(whole)
    build_simulation(whole, outline, build_learner(whole, outline, "none"), Recorder()).run()


DEALING = ("data", "partition", "shift")
"""Keys of plug-ins that need the real data."""


def _data_problems(small: Scenario, plugins: Mapping[str, Any]) -> Iterator[str]:
    """Compare the data set of a plug-in with the constants of its class."""
    data = plugins.get("data")
    if data is None:
        return
    dataset = load_data(small.model_copy(update={"learning": "real"}), download=False).dataset
    place = _method(data, "generate" if data.generated else "load")
    if not isinstance(dataset, Dataset):
        yield f"{place} returns {kind_of(dataset)}, expected a ddlsim.data.Dataset"
        return
    found = {
        "num_samples": tuple(len(dataset.samples(split)[1]) for split in dataset.splits),
        "image_shape": tuple(dataset.sample_shape),
        "num_classes": dataset.num_classes,
        "sample_dtype": dataset.sample_dtype,
    }
    for key, value in found.items() if data.num_samples is not None else ():
        stated = getattr(data, key)
        if stated is not None and (tuple(stated) if isinstance(value, tuple) else stated) != value:
            yield f"{place} returns data whose {key} is {value}, but the class says {stated}"


def _trial_data(small: Scenario, plugins: Mapping[str, Any]) -> PreparedData | DatasetSpec:
    """Return the samples of a trial: real ones if a plug-in provides or deals them, else zeros of their shape."""
    if plugins.keys() & DEALING:
        real = small.model_copy(update={"learning": "real"})
        prepared = prepare(Loaded(real, load_data(real, download=False).dataset))
        if small.learning != "none":
            return prepared
    outline = _outline(small)
    return outline if small.learning == "none" else _zeros(small, outline)


def _outline(small: Scenario) -> DatasetSpec:
    """Return the shape of the samples; how many each node has does not matter."""
    sized = small.model_copy(update={"learning": "none"})
    try:
        return cast("DatasetSpec", load_data(sized, download=False).dataset)
    except ScenarioError:  # the partition may need the scenario's number of nodes
        return cast("DatasetSpec", load_data(sized.model_copy(update={"partition": Random()}), download=False).dataset)


def _zeros(small: Scenario, outline: DatasetSpec) -> PreparedData:
    """Return a few samples of zeros for every node, with labels 0 and 1."""
    task = as_task(outline.task)
    labels = (np.arange(SAMPLES) % 2).reshape(SAMPLES, *[1] * len(outline.label_shape)).astype(task.label_dtype)
    labels = np.broadcast_to(labels, (SAMPLES, *outline.label_shape)).copy()
    samples = np.zeros((SAMPLES, *outline.image_shape), outline.dtype), labels
    clusters, source = len(small.nodes.clusters), small.validation.source
    channels = outline.image_shape[0] if len(outline.image_shape) == 3 else 1
    return PreparedData(
        node_train=[samples] * small.nodes.count,
        cluster_test=[samples] * clusters,
        cluster_validation=[samples] * clusters if source in ("train", "test", "own") else None,
        node_validation=[samples] * small.nodes.count if source == "node" else None,
        node_cluster=outline.node_cluster,
        num_classes=outline.num_classes,
        image_shape=outline.image_shape,
        mean=np.zeros(channels, np.float32),
        std=np.ones(channels, np.float32),
        test_set=outline.node_cluster,
        task=task,
        dtype=outline.dtype,
        num_tokens=outline.num_tokens,
        label_shape=outline.label_shape,
    )


def _smallest(scenario: Scenario, plugins: Mapping[str, Any]) -> Scenario:
    """Return the trial with the fewest nodes that the scenario's parts accept; all nodes for an aggregation rule."""
    clusters, most = len(scenario.nodes.clusters), min(MAX_SMALL_NODES, scenario.nodes.count)
    for count in range(most if "aggregation" in plugins else max(2, clusters), most + 1):
        sizes = [count // clusters + (cluster < count % clusters) for cluster in range(clusters)]
        small = _trial(scenario, sizes, plugins)
        try:
            if not list(cross_problems(small)):
                small.topology.graph(count, 0, small.seed)
                return small
        except Exception:  # a part may need more nodes
            continue
    return _trial(scenario, scenario.nodes.clusters, plugins)


def _trial(scenario: Scenario, clusters: Sequence[int], plugins: Mapping[str, Any]) -> Scenario:
    """Return a scenario of two rounds, with default devices and links in place of plug-ins, which are drawn
    separately.
    """
    training = scenario.node_training
    steps = {
        "accumulate": 1,
        "learning_rate": of_node(training.learning_rate, 0),
        "batch_size": of_node(training.batch_size, 0),
        "local_steps": training.local_steps and min(of_node(training.local_steps, 0), MAX_STEPS),
        "epochs": training.epochs and 1,
    }
    changes: dict[str, Any] = {
        "rounds": ROUNDS,
        "nodes": scenario.nodes.model_copy(update={"clusters": tuple(clusters)}),
        "training": training.model_copy(update=steps),
        "evaluation": scenario.evaluation.model_copy(update={"every": 1}),
        "records": scenario.records.model_copy(update={"true_similarities": (), "models": None}),
        "attacks": tuple(replace(attack, start_round=0) for attack in scenario.attacks),
        **dict.fromkeys(("churn", "privacy", "fallback", "paper")),
    }
    if "devices" in plugins or scenario.devices.measures:
        changes["devices"] = Estimated()
    if "links" in plugins:
        changes["network"] = scenario.network.model_copy(update={"links": Uniform()})
    return scenario.model_copy(update=changes)


def _with_place(error: Exception, plugins: Mapping[str, Any], nodes: int) -> str:
    """Return an error's text with the user's line that raised it, or the plug-in class that it concerns."""
    bases = [cls for part in plugins.values() for cls in type(part).__mro__]
    custom = [cls for cls in bases if cls.__module__.split(".")[0] not in ("ddlsim", "builtins", "abc", "torch")]
    files = {file for cls in custom if (file := own_code.source_file(cls)) and not file.startswith(PACKAGE)}
    frame = own_code.user_frame(error, files)
    key = str(error).partition(":")[0].partition(".")[0]
    classes = [type(part) for part in ([plugins[key]] if key in plugins else plugins.values())]
    written = ", ".join(filter(None, (_written_at(cls, str(error)) for cls in classes)))
    place = frame.split(": ")[0] if frame else written
    if isinstance(error, DdlsimError):
        return str(error) if re.match(r"\S+\.py:\d+: ", str(error)) or not place else f"{place}: {error}"
    text = " ".join(f"{type(error).__name__}: {error}".split())
    trial = f"a trial ({nodes} nodes, {ROUNDS} rounds) raises {text:.500}"
    return frame or (f"{place}: {trial}" if place else trial)


def _written_at(cls: type, text: str) -> str | None:
    """Return file and line of a user's class, or of its method that a text names as "graph of Mine"."""
    named = re.search(rf"(\w+) of {re.escape(cls.__qualname__)}\b", text)
    found = getattr(cls, named[1], cls) if named else cls
    file = own_code.source_file(found) or ""
    return None if file.startswith(PACKAGE) or "site-packages" in file else own_code.where(found)


def _method(part: Any, name: str) -> str:
    """Return the place of a method, "mine.py:12: round of Mine"."""
    place = own_code.where(getattr(type(part), name))
    return f"{f'{place}: ' if place else ''}{name} of {type(part).__qualname__}"


def dead_links(scenario: Scenario) -> list[str]:
    """Return a sentence per kind of link that never has capacity, so that nodes would wait forever."""
    network, algorithm = scenario.network, scenario.algorithm
    waits = algorithm.waits and (algorithm.has_server or scenario.mode == "sync")
    ends = scenario.protocol.deadline_s is not None or network.timeout_s is not None
    if not waits or ends or algorithm.exchanges == "nothing" or network.fidelity not in ("flow", "tcp"):
        return []
    drawn = links_drawn(scenario.links, scenario.nodes.count, scenario.seed)
    found = []
    for name, capacities in (("uplink", drawn.uplink_bytes_per_s), ("downlink", drawn.downlink_bytes_per_s)):
        opened = {change.node for change in drawn.changes if getattr(change, f"{name}_bytes_per_s", 0) > 0}
        dead = [node for node in np.flatnonzero(np.asarray(capacities) == 0).tolist() if node not in opened]
        if dead:
            found.append(f"the {name} of node{'s' * (len(dead) > 1)} {listing(dead)} has 0 Mbit/s at all times")
    pair = _dead_route(drawn, scenario.nodes.count)
    if pair:
        found.append(f"the route from node {pair[0]} to node {pair[1]} crosses a link of 0 Mbit/s")
    cure = "set protocol.deadline_s or network.timeout_s" + (", or mode: async" if not algorithm.has_server else "")
    return [
        f"network.links: {what}, so rounds wait forever for messages that never arrive. Give it capacity, or {cure}."
        for what in found
    ]


def _dead_route(drawn: LinkTable, num_nodes: int) -> tuple[int, int] | None:
    """The first two nodes whose route crosses a shared link without capacity."""
    dead = {link for link, capacity in enumerate(drawn.shared_bytes_per_s) if capacity == 0}
    if drawn.route is None or not dead:
        return None
    return next(
        (pair for pair in permutations(range(min(num_nodes, MAX_ROUTED)), 2) if dead & {*drawn.route(*pair)}), None
    )
