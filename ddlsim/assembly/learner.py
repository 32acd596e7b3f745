"""From a scenario to the Compute port: models, data and waves of all nodes.

What a scenario's links, devices and churn have drawn, looked at before time runs by it: a user's may be anything.

NaN would come out of all that follows as a number, such as a latency of 0, and what is too short as another's.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ddlsim.churn.schedule import Absences, Churn
from ddlsim.devices.base import Devices, StepTimeTrace
from ddlsim.foundation.environment import num_cores
from ddlsim.foundation.errors import ScenarioError, kind_of
from ddlsim.foundation.rng import stream_seed
from ddlsim.network.access_links import Links
from ddlsim.network.link_table import LinkTable

if TYPE_CHECKING:
    from torch import nn

    from ddlsim.algorithms.base import Algorithm
    from ddlsim.attacks.node_attacks import Attackers
    from ddlsim.data import DatasetSpec, PreparedData
    from ddlsim.devices.base import StepWork
    from ddlsim.learning.architecture import Build
    from ddlsim.learning.layout import Layout
    from ddlsim.learning.learner import Learner
    from ddlsim.learning.remote.waves import RemoteWaves
    from ddlsim.learning.size_learner import SizeLearner
    from ddlsim.scenario import Scenario


def build_learner(
    scenario: "Scenario",
    prepared: "PreparedData | DatasetSpec",
    device: str,
    tell: Callable[[str], None] = lambda _: None,
    threads: int | None = None,
    elsewhere: "RemoteWaves | None" = None,
) -> "Learner | SizeLearner":
    """Parameters, data and waves of all nodes on a device; for a network-only run what stands in for them.

    Args:
        scenario: what is run.
        prepared: its data.
        device: cpu or cuda.
        tell: takes a sentence on a model that does not say itself what its core and head are.
        threads: CPU threads of a wave; None: as many as there are cores.
        elsewhere: computes in other processes; None: this one does.
    """
    model, classes = scenario.model, prepared.num_classes
    buffers, assigned = model.buffers, model.assignment(scenario.nodes.count, scenario.seed)
    builders = builders_of(scenario, prepared, tell)
    if scenario.learning == "none":
        from ddlsim.learning.size_learner import SizeLearner, parts_of, parts_of_sizes

        if model.only_size:
            parts = {type(model).__name__: parts_of_sizes(model.part_sizes())}
        else:
            parts = {name: parts_of(name, build, buffers) for name, build in builders.items()}
        _require_core(scenario, {name: own["core"].size for name, own in parts.items()})
        samples = cast("DatasetSpec", prepared).samples
        training = scenario.training
        latent = {name: _latent_size_of(name, build, prepared) for name, build in builders.items()}
        sized = SizeLearner(parts, classes, samples, training.batch_size, training.drop_last, assigned, latent)
        sized.step_work = _step_work(scenario, prepared, builders, sized.sizes)
        return sized
    import torch

    from ddlsim.learning.architecture import UNTRAINED
    from ddlsim.learning.learner import Learner

    if device == "cpu" and elsewhere is None:
        from ddlsim.learning.bank import keep_freed_memory

        keep_freed_memory()
    privacy = scenario.privacy
    learner = Learner(
        builders,
        cast("PreparedData", prepared),
        scenario.training,
        torch.device(device),
        threads=num_cores() if threads is None else threads,
        chunk=scenario.evaluation.batch_size,
        assigned=assigned,
        seed=stream_seed(scenario.seed, UNTRAINED),
        buffers=buffers,
        privacy=privacy if privacy is not None and privacy.kind == "dp_sgd" else None,
        elsewhere=elsewhere,
        attackers=attackers_of(scenario, prepared.node_cluster),
    )
    learner.step_work = _step_work(scenario, prepared, builders, learner.sizes)
    if privacy is not None:
        from ddlsim.learning.accounting import need_opacus

        need_opacus()
        _require_no_statistics(
            {name: found.layout for name, found in learner.architectures.items()}, scenario.algorithm_name
        )
    _require_core(scenario, {name: found.layout.parts["core"].size for name, found in learner.architectures.items()})
    return learner


def builders_of(
    scenario: "Scenario", prepared: "PreparedData | DatasetSpec", tell: Callable[[str], None] = lambda _: None
) -> "dict[str, Build]":
    """Per architecture, by a name for messages, what makes a module with core, head and what else is trained."""
    model, algorithm = scenario.model.fitted(prepared.num_tokens, prepared.label_shape), scenario.algorithm
    found = {} if model.only_size else model.builders(prepared.image_shape, prepared.num_classes)
    may_be_whole = not algorithm.needs_core and not algorithm.has_extra_parts
    builders = {name: _cut(build, name, prepared, tell, may_be_whole) for name, build in found.items()}
    if algorithm.has_extra_parts:
        builders = {
            name: _extended(build, algorithm, prepared, _latent_size_of(name, build, prepared))
            for name, build in builders.items()
        }
    return builders


def _step_work(
    scenario: "Scenario",
    prepared: "PreparedData | DatasetSpec",
    builders: "Mapping[str, Build]",
    sizes: Mapping[str, int],
) -> "Callable[[], Mapping[str, StepWork]]":
    """What counts the operations of a training step of each architecture, when they are first needed."""
    batch_size, shape, dtype = scenario.training.batch_size, prepared.image_shape, prepared.dtype
    is_sequence = prepared.num_tokens is not None

    @cache
    def counted() -> "Mapping[str, StepWork]":
        from ddlsim.devices.base import StepWork

        if not builders:
            return {name: StepWork.of_size(size, batch_size) for name, size in sizes.items()}
        import torch

        from ddlsim.learning.model_sizes import count_step

        return {
            name: count_step(build, shape, getattr(torch, dtype), batch_size, is_sequence, sizes[name])
            for name, build in builders.items()
        }

    return counted


def _require_core(scenario: "Scenario", sizes: dict[str, int]) -> None:
    """Whether every architecture has a trained core, if the algorithm keeps core and head apart.

    Raises:
        ScenarioError: if one has none.
    """
    lacking = [name for name, size in sizes.items() if not size]
    if lacking and scenario.algorithm.needs_core:
        raise ScenarioError(
            f"model: {lacking[0]} has no core that is trained, and {scenario.algorithm_name} keeps core and head "
            "apart. Choose a model with a core, or an algorithm that shares whole models (el, dpsgd, dac, ...)."
        )


def _require_no_statistics(layouts: "Mapping[str, Layout]", algorithm: str) -> None:
    """Whether no architecture, and nothing that the algorithm of this name adds, has buffers: they learn of samples and
    would leave without noise.

    Raises:
        ScenarioError: if one has.
    """
    for name, layout in layouts.items():
        holding = [part.name for part in layout.parts.values() if part.size > sum(part.trained_sizes)]
        added = [part for part in holding if part in layout.extra_names]
        if added:
            raise ScenarioError(
                f"privacy: {algorithm} adds to every model a {added[0]} that has running statistics (BatchNorm), which "
                "learn of samples without noise. Choose another algorithm."
            )
        if layout.local.size or holding:
            raise ScenarioError(
                f"privacy: {name} has running statistics (BatchNorm), which learn of samples without noise. Choose a "
                "model without them (gn_lenet, mlp, ...)."
            )


def _cut(
    build: "Build", name: str, prepared: "PreparedData | DatasetSpec", tell: Callable[[str], None], may_be_whole: bool
) -> "Build":
    """A model with submodules `core` and `head`, whatever its builder makes."""
    import torch

    from ddlsim.models.whole import with_core_and_head

    return with_core_and_head(build, name, prepared.image_shape, getattr(torch, prepared.dtype), tell, may_be_whole)


def _extended(
    build: "Build", algorithm: "Algorithm", prepared: "PreparedData | DatasetSpec", latent_size: Callable[[], int]
) -> "Build":
    """A model with the parts that an algorithm trains beside it."""
    from ddlsim.learning.model_sizes import with_extra_parts

    def make(latent: int) -> "Mapping[str, nn.Module]":
        return algorithm.extra_parts(latent, prepared.num_classes)

    return with_extra_parts(build, make, latent_size)


def _latent_size_of(name: str, build: "Build", prepared: "PreparedData | DatasetSpec") -> Callable[[], int]:
    import torch

    from ddlsim.learning.model_sizes import latent_size_of

    return latent_size_of(name, build, prepared.image_shape, getattr(torch, prepared.dtype))


def attackers_of(scenario: "Scenario", node_cluster: "np.ndarray") -> "Attackers | None":
    """Who attacks, and how; None: all nodes are honest."""
    if not scenario.attacks:
        return None
    from ddlsim.attacks.node_attacks import Attackers

    return Attackers(scenario.attacks, np.asarray(node_cluster), scenario.seed)


def links_drawn(links: Links, num_nodes: int, seed: int) -> LinkTable:
    """The access links of all nodes.

    Raises:
        ScenarioError: capacities or latencies that are none, or of another number of nodes.
    """
    what = f"links: draw of {type(links).__qualname__}"
    found = links.draw(num_nodes, seed)
    if not isinstance(found, LinkTable):
        raise ScenarioError(f"{what} returns {kind_of(found)}, expected a ddlsim.network.LinkTable.")
    for name in ("uplink_bytes_per_s", "downlink_bytes_per_s"):
        _numbers(f"{what}: {name}", getattr(found, name), (num_nodes,), infinite=True)
    _numbers(f"{what}: shared_bytes_per_s", found.shared_bytes_per_s, None, infinite=True, of="link")
    if found.site_bytes_per_s is not None:
        _numbers(f"{what}: site_bytes_per_s", found.site_bytes_per_s, (2, num_nodes), infinite=True)
    if callable(found.latency_s):  # looked at message by message, see network/link_table.py
        return found
    shape = np.shape(found.latency_s)
    if shape not in ((), (num_nodes,), (num_nodes, num_nodes)):
        raise ScenarioError(
            f"{what}: latency_s: expected one number, an array [{num_nodes}] or [{num_nodes}, {num_nodes}], or a "
            f"function (src, dst) -> seconds, got an array {list(shape)}."
        )
    latency_s = _numbers(f"{what}: latency_s", found.latency_s, shape)
    if latency_s.ndim < 2:
        return replace(found, latency_s=latency_s if latency_s.ndim else float(latency_s))
    return replace(found, latency_s=lambda src, dst: float(latency_s[src, dst]))


def step_times_drawn(devices: Devices, num_nodes: int, seed: int) -> np.ndarray | StepTimeTrace:
    """Seconds per local step of all nodes.

    Raises:
        ScenarioError: they are none, or of another number of nodes.
    """
    what = f"devices: draw of {type(devices).__qualname__}"
    found = devices.draw(num_nodes, seed)
    if not isinstance(found, StepTimeTrace):
        return _numbers(what, found, (num_nodes,))
    if len(found.times_s) != num_nodes or len(found.step_times_s) != num_nodes:
        raise ScenarioError(f"{what}: expected traces of {num_nodes} nodes, got {len(found.times_s)}.")
    for node, (times_s, step_times_s) in enumerate(zip(found.times_s, found.step_times_s, strict=True)):
        begins = _numbers(f"{what}: times_s of node {node}", times_s, None)
        _numbers(f"{what}: step_times_s of node {node}", step_times_s, begins.shape)
        if not begins.size or begins[0] != 0 or (np.diff(begins) < 0).any():
            raise ScenarioError(f"{what}: times_s of node {node}: expected times in order, the first one 0.")
    return found


def absences_drawn(churn: Churn | None, num_nodes: int, seed: int) -> Absences:
    """Per node when it is away; each absence is looked at when it is taken.

    Raises:
        ScenarioError: at once or then: no such node, or absences that are no times in order.
    """
    if churn is None:
        return {}
    what = f"churn: absences of {type(churn).__qualname__}"
    found = churn.absences(num_nodes, seed)
    if not isinstance(found, Mapping):
        raise ScenarioError(f"{what} returns {kind_of(found)}, expected a mapping of nodes to their absences.")
    for node in found:
        if not isinstance(node, int | np.integer) or not 0 <= node < num_nodes:
            raise ScenarioError(f"{what}: node ids are 0 to {num_nodes - 1} in this scenario, got {node!r}.")
    return {int(node): _in_order(f"{what}: of node {node}", absent) for node, absent in found.items()}


def _in_order(what: str, absent: Iterable[Any]) -> Iterator[tuple[float, float]]:
    """Absences one by one."""
    before_s = 0.0
    for each in absent:
        try:
            start_s, end_s = map(float, each)
        except (TypeError, ValueError):
            raise ScenarioError(f"{what}: expected (start_s, end_s), got {each!r}.") from None
        if not before_s <= start_s <= end_s:  # equal: drawn, and shorter than floats resolve
            raise ScenarioError(
                f"{what}: expected absences (start_s, end_s) in simulated seconds, in order and apart from each "
                f"other, got {(start_s, end_s)} after {before_s:g} s."
            )
        yield start_s, end_s
        before_s = end_s


def _numbers(
    what: str, given: Any, shape: tuple[int, ...] | None, *, infinite: bool = False, of: str = "node"
) -> np.ndarray:
    """Numbers of 0 or more, of this shape."""
    try:
        found = np.asarray(() if given is None else given, dtype=float)
    except (TypeError, ValueError):
        found = None
    if found is None or given is None:
        raise ScenarioError(f"{what}: expected numbers, got {kind_of(given)}.") from None
    if shape is not None and found.shape != shape:
        raise ScenarioError(f"{what}: expected an array {list(shape)}, one number per node, got {list(found.shape)}.")
    wrong = ~(found >= 0) | (np.isinf(found) & (not infinite))
    if wrong.any():
        place = np.argwhere(wrong)[0].tolist()
        where = f" of {of} {', '.join(map(str, place))}" if place else ""
        more = f" ({int(wrong.sum())} of {found.size} are wrong)" if found.size > 1 else ""
        finite = "" if infinite else "finite "
        raise ScenarioError(f"{what}{where}: expected {finite}numbers of 0 or more, got {found[tuple(place)]}{more}.")
    return found
