"""Draw links, step times and absences of all nodes, and check them, since user-defined parts may draw anything."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ddlsim.churn.schedule import Absences, Churn
from ddlsim.devices import DEVICES
from ddlsim.devices.base import Devices, StepTimeTrace
from ddlsim.foundation.errors import ScenarioError, kind_of
from ddlsim.foundation.units import MAX_STEP_S
from ddlsim.network.access_links import Links
from ddlsim.network.link_table import LinkTable
from ddlsim.node.ports import Compute
from ddlsim.scenario import Scenario
from ddlsim.scenario.per_node import of_node


@dataclass(frozen=True)
class NodeStepTimes:
    """Seconds of computation of all nodes.

    Args:
        seconds: per local step, float64 [nodes] or over time.
        forward_share: cost of a forward pass as a share of a local step, per node; None: FORWARD_SHARE.
        about: for the manifest: device, source, shortest and longest step, operations per architecture.
    """

    seconds: np.ndarray | StepTimeTrace
    forward_share: list[float] | None
    about: dict[str, Any]


def step_times_of(scenario: Scenario, learner: Compute) -> NodeStepTimes:
    """Return seconds per local step of all nodes.

    Raises:
        ScenarioError: invalid values, or a step is too long.
    """
    devices, num_nodes = scenario.devices, scenario.nodes.count
    found = step_times_drawn(devices, num_nodes, scenario.seed)
    device, source = devices.source
    about: dict[str, Any] = {"device": device or DEVICES.label_of(devices), "source": source}
    if not devices.scales:
        every = [each for node in found.step_times_s for each in node] if isinstance(found, StepTimeTrace) else found
        return NodeStepTimes(found, None, {**about, "step_s": _range(np.asarray(every))})
    if isinstance(found, StepTimeTrace):
        raise ScenarioError("devices: draw: expected factors, one per node, got a StepTimeTrace. Set scales to false.")
    work = learner.step_work()
    names = scenario.model.assignment(num_nodes, scenario.seed) or list(work) * num_nodes
    batch_sizes = scenario.node_training.batch_size
    factors = [of_node(batch_sizes, node) / of_node(batch_sizes, 0) for node in range(num_nodes)]
    each = list(zip(names, factors, strict=True))
    of_step = {(name, factor): devices.step_work(name, work[name].times(factor)) for name, factor in set(each)}
    base_s = {(name, factor): devices.base_step_s(name, one) for (name, factor), one in of_step.items()}
    seconds = found * [base_s[of_one] for of_one in each]
    if (seconds >= MAX_STEP_S).any():
        raise ScenarioError(f"devices: expected steps below {MAX_STEP_S:g} s, got {seconds.max():g} s. Choose another.")
    about |= {
        "step_s": _range(seconds),
        "flops": {name: devices.step_work(name, each).training_flops for name, each in work.items()},
        "counted": all(each.counted for each in work.values()),
    }
    if devices.counts_tokens:
        steps = [of_step[of_one] for of_one in each]
        about["tokens"], about["parameters"] = [one.tokens for one in steps], [one.parameters for one in steps]
        about["node_step_s"] = seconds.tolist()
    return NodeStepTimes(seconds, [work[name].forward_share for name in names], about)


def _range(seconds: np.ndarray) -> list[float]:
    """Return the smallest and the largest value."""
    return [float(seconds.min(initial=np.inf)), float(seconds.max(initial=0.0))]


def links_drawn(links: Links, num_nodes: int, seed: int) -> LinkTable:
    """Draw the access links of all nodes.

    Raises:
        ScenarioError: invalid capacities or latencies, or a wrong number of nodes.
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
    if callable(found.latency_s):  # checked per message, see network/link_table.py
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
    """Return seconds per local step of all nodes.

    Raises:
        ScenarioError: invalid values, or a wrong number of nodes.
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
    """Return the absences of each node; each absence is checked when it is read.

    Raises:
        ScenarioError: an unknown node, or absences (when read) that are not ordered times.
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
    """Yield checked absences."""
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
    what: str, values: Any, shape: tuple[int, ...] | None, *, infinite: bool = False, of: str = "node"
) -> np.ndarray:
    """Return checked numbers of at least 0, of this shape."""
    try:
        found = np.asarray(() if values is None else values, dtype=float)
    except (TypeError, ValueError):
        found = None
    if found is None or values is None:
        raise ScenarioError(f"{what}: expected numbers, got {kind_of(values)}.") from None
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
