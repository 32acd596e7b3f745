"""What no single key can tell: keys that do not fit each other. Nothing here touches data or a GPU."""

import inspect
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from ddlsim.errors import ScenarioError
from ddlsim.scenario import parts
from ddlsim.scenario.model import Scenario

_PATH = re.compile(r"([a-z_]+(?:\.[a-z_]+)*): ", re.ASCII)
_MANY_CLASSES = 10_000
"""More labels than any data set has: how many there are is not known before the data is read."""

Place = tuple[str | int, ...]


def cross_problems(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    """Pairs (path of the key to blame, what is wrong with it)."""
    evaluation, count = scenario.evaluation, scenario.nodes.count
    if evaluation.stop_at_target and evaluation.target is None:
        key = "target_mse" if scenario.task == "regression" else "target_accuracy"
        yield ("evaluation", "stop_at_target"), f"needs evaluation.{key}, which is null"
    if evaluation.stop_at_target and scenario.learning == "none":
        yield ("evaluation", "stop_at_target"), "needs an accuracy, but learning is none"
    yield from _task(scenario)
    if hasattr(scenario.model, "part_sizes") and scenario.learning != "none":
        yield ("model", "name"), "is only a size and cannot learn. Choose another model, or set learning: none"
    yield from _parts_shared(scenario)
    yield from _training(scenario)
    yield from _compared(scenario)
    chooses_by = getattr(scenario.algorithm, "evaluation_head", None)
    if chooses_by == "validation_loss" and scenario.validation.source == "none":
        yield ("algorithm", "evaluation_head"), "validation_loss needs samples, but validation.source is none"
    for place, part in (
        (("topology",), scenario.topology),
        (("network", "links"), scenario.network.links),
        (("devices",), scenario.devices),
        (("churn",), scenario.churn),
    ):
        yield from _refusal(place, lambda part=part: _fit_nodes(part, count, scenario.seed))
    if hasattr(scenario.algorithm, "check"):
        yield from _refusal(("algorithm",), lambda: scenario.algorithm.check(scenario.nodes.clusters))
    if hasattr(scenario.model, "assignment"):
        yield from _refusal(("model",), lambda: scenario.model.assignment(count, scenario.seed))
    yield from _absences(scenario)
    yield from _validation(scenario)
    yield from _refusal(("shift",), lambda: _shift_nothing(scenario))
    if hasattr(scenario.partition, "cluster_labels"):
        clusters = len(scenario.nodes.clusters)
        yield from _refusal(("partition",), lambda: scenario.partition.cluster_labels(clusters, _MANY_CLASSES))


def _task(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    """What fits only classes, or only numbers, and data whose domains or validation set are asked for."""
    regression, data = scenario.task == "regression", scenario.data_name
    if regression and scenario.evaluation.target_accuracy is not None:
        yield ("evaluation", "target_accuracy"), f"{data} is a regression and has none; give target_mse instead"
    if not regression and scenario.evaluation.target_mse is not None:
        yield ("evaluation", "target_mse"), f"{data} is a classification and has none; give target_accuracy instead"
    for key, part, instead in (
        ("partition", scenario.partition, "random, quantity_skew, domains"),
        ("shift", scenario.shift, "none, rotate"),
        ("algorithm", scenario.algorithm, "el, dpsgd, dac, facade, fedavg"),
    ):
        if regression and getattr(part, "needs_classes", False):
            yield (key, "name"), f"needs classes, but {data} is a regression. Use one of: {instead}"
    if scenario.validation.source == "own" and getattr(scenario.data, "own_validation", False) is False:
        yield ("validation", "source"), f"{data} comes without a validation set. Use train, test or node"
    if getattr(scenario.partition, "by_domain", False):
        clusters = len(scenario.nodes.clusters)
        domains = scenario.data.domains_for(clusters) if hasattr(scenario.data, "domains_for") else None
        if domains is None:
            text = (
                f"deals one domain to each cluster; {data} has none. Use random, or data that has (joined, synthetic)"
            )
            yield ("partition", "name"), text
        elif domains != clusters:
            text = f"deals one domain to each cluster; {data} has {domains}, nodes.clusters names {clusters} clusters"
            yield ("partition", "name"), text


def _parts_shared(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    """Algorithms that keep core and head apart, with models that are nothing but a head."""
    if getattr(scenario.algorithm, "needs_core", False) and not getattr(scenario.model, "has_core", True):
        yield (
            ("model", "name"),
            (
                f"this {parts.table('model').name_of(scenario.model)} has no core, and {scenario.algorithm_name} keeps "
                "core and head apart. Choose a model with a core (gn_lenet, mlp, ...), or an algorithm that shares "
                "whole models (el, dpsgd, dac, ...)"
            ),
        )


def _training(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    """Local training that contradicts itself, and choices by validation loss without validation samples."""
    training = scenario.training
    if training.epochs and training.local_steps:
        yield ("training", "epochs"), "a round is so many epochs or so many local_steps; set the other to null"
    if training.optimizer_state == "kept" and training.optimizer == "sgd" and not training.momentum:
        yield ("training", "optimizer_state"), "sgd without momentum has no state to keep; expected fresh"
    if scenario.validation.source == "none":
        for place, needed in (
            (("training", "early_stopping"), training.early_stopping is not None),
            (("evaluation", "checkpoint"), scenario.evaluation.checkpoint == "best"),
            (("algorithm", "record_merges"), getattr(scenario.algorithm, "record_merges", False)),
        ):
            if needed:
                yield place, "needs validation samples, but validation.source is none"


def _compared(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    """Nodes whose true similarities are asked for, of an algorithm that has some."""
    chosen, algorithm = scenario.records.true_similarities, scenario.algorithm
    place = ("records", "true_similarities")
    for i, node in enumerate(chosen):
        if node >= scenario.nodes.count:
            yield (*place, i), f"node ids are 0 to {scenario.nodes.count - 1} in this scenario, got {node}"
    measure = getattr(algorithm, "similarity_measure", None)
    if chosen and (measure is None or measure(None) is None):
        text = (
            f"{scenario.algorithm_name} compares no models. Choose dac, pens, panm, random, oracle or local, or leave"
        )
        yield place, f"{text} this list empty"


def _refusal(place: Place, attempt: Callable[[], Any]) -> Iterator[tuple[Place, str]]:
    """What a part says when it is tried; its text may begin with the dotted path of the key to blame."""
    try:
        attempt()
    except ScenarioError as error:
        text = str(error)
        path = _PATH.match(text)
        keys = tuple(path[1].split(".")) if path else ()
        if keys[:1] == place[:1]:
            yield keys, text[path.end() :]
        elif keys[:1] == place[-1:]:  # the part knows its own key, not the section that it stands in
            yield (*place, *keys[1:]), text[path.end() :]
        else:
            yield place, text


def _fit_nodes(part: Any, count: int, seed: int) -> None:
    """Tries a part on the number of nodes, by its own `check` or by drawing."""
    if hasattr(part, "check"):
        part.check(count)
    elif hasattr(part, "draw") and len(inspect.signature(part.draw).parameters) == 2:
        part.draw(count, seed)


def _absences(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    for i, absence in enumerate(getattr(scenario.churn, "offline", ())):
        if absence.node >= scenario.nodes.count:
            text = f"node ids are 0 to {scenario.nodes.count - 1} in this scenario, got {absence.node}"
            yield ("churn", "offline", i, "node"), text
        if absence.end_s <= absence.start_s:
            yield (
                ("churn", "offline", i, "end_s"),
                f"must lie after start_s ({absence.start_s:g}), got {absence.end_s:g}",
            )


def _validation(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    """A share of samples that leaves none on one side, where it is known how many there are."""
    source, sizes = scenario.validation.source, getattr(scenario.data, "num_samples", None)
    if sizes is None or source not in ("train", "test"):
        return
    samples = sizes[0] if source == "train" else sizes[1]
    fraction = scenario.validation.fraction
    if not 0 < round(fraction * samples) < samples:
        yield ("validation", "fraction"), f"{fraction} of {samples} {source} samples leaves one side empty"


def _shift_nothing(scenario: Scenario) -> None:
    """Shifts no samples at all for every cluster, which is enough to see whether clusters and channels fit."""
    clusters, shape = len(scenario.nodes.clusters), getattr(scenario.data, "image_shape", (3, 2, 2))
    setting = SimpleNamespace(num_clusters=clusters, num_classes=_MANY_CLASSES, black=np.zeros(shape[0], np.float32))
    for cluster in range(clusters):
        try:
            scenario.shift.apply(np.zeros((0, *shape), np.float32), np.zeros(0, np.int64), cluster, setting)
        except ScenarioError:
            raise
        except Exception:  # a shift from elsewhere that cannot do with no samples; it speaks for itself in a run
            return
