"""What no single key can tell: keys that do not fit each other. Nothing here touches data or a GPU."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from ddlsim.foundation import own_code
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.part import Part, Problem
from ddlsim.scenario import parts
from ddlsim.scenario.model import Evaluation, Scenario
from ddlsim.tasks import label_of

_PATH = re.compile(r"([a-z_]+(?:\.[a-z_]+)*): ", re.ASCII)
_MANY_CLASSES = 10_000
"""More labels than any data set has: how many there are is not known before the data is read."""

Place = tuple[str | int, ...]


def cross_problems(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    """Pairs (path of the key to blame, what is wrong with it)."""
    evaluation, count = scenario.evaluation, scenario.nodes.count
    misnamed = list(_refusal(("task",), lambda: scenario.learned.metrics))
    if misnamed:
        yield from misnamed
        return
    if evaluation.stop_at_target and evaluation.wanted is None:
        yield ("evaluation", "stop_at_target"), f"needs evaluation.{_target_key(scenario)}, which is null"
    if evaluation.stop_at_target and scenario.learning == "none":
        yield ("evaluation", "stop_at_target"), "needs an accuracy, but learning is none"
    if scenario.network.tcp is not None and scenario.network.fidelity != "tcp":
        yield ("network", "tcp"), f"needs network.fidelity tcp, which is {scenario.network.fidelity}"
    yield from _task(scenario)
    if scenario.model.only_size and scenario.learning != "none":
        yield ("model", "name"), "is only a size and cannot learn. Choose another model, or set learning: none"
    elif scenario.model.only_size and scenario.algorithm.has_extra_parts:
        beside = f"{scenario.algorithm_name} trains parts beside the model, whose sizes follow from its layers"
        yield ("model", "name"), f"is only a size, and {beside}. Choose another model"
    if scenario.devices.measures and scenario.learning == "none":
        yield ("devices", "name"), "measures training steps, and learning is none. Choose estimated or constant"
    yield from _parts_shared(scenario)
    yield from _training(scenario)
    yield from _privacy(scenario)
    yield from _secure(scenario)
    if scenario.network.loss_bursts is not None and scenario.network.drop_probability:
        yield ("network", "drop_probability"), "network.loss_bursts says how often messages are lost; leave one out"
    yield from _compared(scenario)
    yield from _aggregated(scenario)
    for number, attack in enumerate(scenario.attacks):
        yield from _attacked(("attacks", number), attack, scenario)
    for place, part in (
        (("partition",), scenario.partition),
        (("topology",), scenario.topology if scenario.algorithm.uses_topology else None),
        (("network", "links"), scenario.network.links),
        (("devices",), scenario.devices),
        (("churn",), scenario.churn),
    ):
        if part is not None:
            yield from _misfits(place, part, scenario)
    yield from _links_of_topology(scenario)
    yield from _refusal(("algorithm",), lambda: scenario.algorithm.check(scenario.nodes.clusters))
    yield from _refusal(("model",), lambda: scenario.model.assignment(count, scenario.seed))
    if scenario.data.num_tokens is not None and not own_code.is_from_outside(scenario.model):
        yield from _refusal(("model",), lambda: scenario.model.fitted(scenario.data.num_tokens, ()))
    yield from _validation(scenario)
    yield from _refusal(("shift",), lambda: _fits_shift(scenario))
    clusters = len(scenario.nodes.clusters)
    yield from _refusal(("partition",), lambda: scenario.partition.cluster_labels(clusters, _MANY_CLASSES))


def _task(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    """What fits only another task, and data whose domains or validation set are asked for."""
    data, evaluation = scenario.data_name, scenario.evaluation
    given = [key for key in ("target_accuracy", "target_mse", "target") if getattr(evaluation, key) is not None]
    expected = _target_key(scenario)
    for key in given:
        if key not in (expected, "target"):
            judged = f"judged by {scenario.learned.judged_by.words}"
            yield ("evaluation", key), f"{_subject(scenario)}, {judged}; give {expected} instead"
    judged_by, wanted = scenario.learned.judged_by, evaluation.wanted
    if judged_by.share and wanted is not None and wanted > 1 and given[0] in (expected, "target"):
        yield ("evaluation", given[0]), f"{judged_by.words} is a share, 0 to 1; write {wanted / 100:g} for {wanted:g} %"
    if len(given) > 1:
        yield ("evaluation", given[1]), f"there is one target, and evaluation.{given[0]} gives it; leave one out"
    for key, part, instead in (
        ("partition", scenario.partition, "random, quantity_skew, domains"),
        ("shift", scenario.shift, "none, rotate"),
        ("algorithm", scenario.algorithm, "el, dpsgd, dac, facade, fedavg"),
    ):
        if part.needs_classes and not scenario.learned.has_classes:
            text = f"needs classes, but {_subject(scenario)}. Use one of: {instead}"
            yield (key, "name"), text
    if scenario.validation.source == "own" and not scenario.data.own_validation:
        yield ("validation", "source"), f"{data} comes without a validation set. Use train, test or node"
    if scenario.partition.by_domain:
        clusters = len(scenario.nodes.clusters)
        domains = scenario.data.domains_for(clusters)
        if domains is None:
            text = (
                f"deals one domain to each cluster; {data} has none. Use random, or data that has (joined, "
                "heart_disease, synthetic_regression)"
            )
            yield ("partition", "name"), text
        elif domains != clusters:
            text = f"deals one domain to each cluster; {data} has {domains}, nodes.clusters names {clusters} clusters"
            yield ("partition", "name"), text


def _target_key(scenario: Scenario) -> str:
    """The key of the target that fits the task."""
    key = f"target_{scenario.learned.judged_by.name}"
    return key if key in Evaluation.model_fields else "target"


def _subject(scenario: Scenario) -> str:
    """What the task is and where that is said, for messages."""
    task = label_of(scenario.learned)
    return f"{scenario.data_name} is a {task}" if scenario.task is None else f"the task is {task}"


def _parts_shared(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    """Algorithms that keep core and head apart, with models that are nothing but a head."""
    if scenario.algorithm.needs_core and not scenario.model.has_core:
        name = parts.table("model").label_of(scenario.model)
        yield (
            ("model", "name"),
            (
                f"this {name} has no core, and {scenario.algorithm_name} keeps "
                "core and head apart. Choose a model with a core (gn_lenet, mlp, ...), or an algorithm that shares "
                "whole models (el, dpsgd, dac, ...)"
            ),
        )


def _training(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    """Local training that contradicts itself, and choices by validation loss without validation samples."""
    training = scenario.training
    if training.epochs and training.local_steps:
        yield ("training", "epochs"), "a round is so many epochs or so many local_steps; set the other to null"
    if training.optimizer_state == "kept" and training.optimizer.moments == ():
        yield ("training", "optimizer_state"), "sgd without momentum has no state to keep; expected fresh"
    if training.weight_decay_on == "weights" and not training.optimizer.decays:
        text = f"{training.optimizer.name} has no weight_decay that could be left out of biases; expected all"
        yield ("training", "weight_decay_on"), text
    if training.augmentation != "none" and not scenario.shift.keeps_channels:
        text = (
            "needs channels in their order, by whose mean and std it pads and scales, and this shift gives clusters "
            "another; expected none"
        )
        yield ("training", "augmentation"), text
    if training.augmentation != "none" and not scenario.data.may_hold_images and scenario.learning != "none":
        yield ("training", "augmentation"), f"only none fits samples that are no images ({scenario.data_name})"
    if training.label_smoothing and not scenario.learned.has_classes:
        yield ("training", "label_smoothing"), f"needs a class per sample, but {_subject(scenario)}"
    for key, common, why in (
        ("proximal", 0.0, "it would hold each step to the model that the step began with, and do nothing"),
        ("accumulate", 1, "every mini-batch makes an update"),
    ):
        if scenario.algorithm.splits_local_steps and getattr(training, key) != common:
            text = f"expected {common:g}: {scenario.algorithm_name} corrects every local step by itself, so that {why}"
            yield ("training", key), text
    if training.schedule is not None:
        known, warmup = scenario.rounds, training.schedule.warmup
        if training.schedule.per == "round" and warmup >= known:
            text = f"expected less than the run's rounds ({known}), got {warmup}"
            yield ("training", "schedule", "warmup"), text
    if scenario.validation.source == "none":
        for place, needed in (
            (("training", "early_stopping"), training.early_stopping is not None),
            (("evaluation", "evaluated_model"), scenario.evaluation.evaluated_model == "best"),
            (("evaluation", "validation"), scenario.evaluation.validation),
            *((("algorithm", key), True) for key in scenario.algorithm.needs_validation),
        ):
            if needed:
                yield place, "needs validation samples, but validation.source is none"
    if scenario.records.models == "best" and not (
        training.early_stopping or scenario.evaluation.evaluated_model == "best"
    ):
        text = "needs evaluation.evaluated_model: best or training.early_stopping, which find each node's best model"
        yield ("records", "models"), text


def _privacy(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    """Private learning that there is none of, or whose epsilon would not be that of what is released."""
    privacy, training = scenario.privacy, scenario.training
    if privacy is None:
        return
    if scenario.learning == "none":
        yield ("privacy",), "nothing is learned, so nothing is private: learning is none"
    if privacy.kind != "dp_sgd":
        return
    if scenario.algorithm.own_loss:
        text = f"{scenario.algorithm_name} trains with a loss of its own, of which there is no gradient per sample. "
        text += "Use message, or an algorithm that trains with the task's loss (el, dpsgd, dac, facade, ...)"
        yield ("privacy", "kind"), text
    for key, common, why in (
        ("accumulate", 1, "noise is added to every batch; a larger batch_size does the same"),
        ("precision", "float32", "gradients of single samples are computed in float32"),
        ("drop_last", False, "batches are drawn by Poisson sampling and have no last one"),
    ):
        if getattr(training, key) != common:
            yield ("training", key), f"expected {common} with privacy.kind dp_sgd: {why}"
    for key, common in (("clips", "update"), ("adjacency", "replace")):
        if getattr(privacy, key) != common:
            yield ("privacy", key), "is of messages, and privacy.kind is dp_sgd; leave it out"


def _secure(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    """Secure aggregation of what is no sum, or of what is not whole."""
    settings, rule = scenario.secure_aggregation, scenario.aggregation
    if settings is None:
        return
    place, most = ("secure_aggregation",), scenario.nodes.count - (not scenario.algorithm.has_server)
    if not scenario.algorithm.needs_only_sums:
        text = f"hides single models, and {scenario.algorithm_name}, with these options, needs them: it compares or "
        text += (
            "chooses among them. Use one of: fedavg, fedprox, fedsim, dpsgd, el, dfedavgm, scaffold (sends: changes)"
        )
        yield place, text
    if isinstance(settings.threshold, int) and settings.threshold > most:
        yield (
            (*place, "threshold"),
            f"an aggregator has {most} users at most in this scenario, got {settings.threshold}",
        )
    if rule is not None and not rule.is_plain:
        yield ("aggregation", "name"), "looks at single models, which secure_aggregation hides; leave one of them out"
    if parts.table("compression").label_of(scenario.network.compression) != "none":
        text = "sums masked integers of secure_aggregation.value_bits; leave network.compression out"
        yield ("network", "compression", "name"), text
    if scenario.mode == "async":
        yield ("mode",), "expected sync with secure_aggregation: a sum is over the nodes of one round"
    if scenario.protocol.late_messages == "keep":
        yield (
            ("protocol", "late_messages"),
            "expected drop with secure_aggregation: a sum is over the nodes of one round",
        )
    for number, attack in enumerate(scenario.attacks):
        if attack.knows == "neighbors":
            text = "secure_aggregation hides from an attacked node what its neighbors send; expected own or all"
            yield ("attacks", number, "knowledge"), text


def _compared(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    """A similarity that needs equal initial models, and nodes whose true similarities are asked for."""
    chosen, algorithm = scenario.records.true_similarities, scenario.algorithm
    place = ("records", "true_similarities")
    for i, node in enumerate(chosen):
        if node >= scenario.nodes.count:
            yield (*place, i), f"node ids are 0 to {scenario.nodes.count - 1} in this scenario, got {node}"
    measure = algorithm.similarity_measure(None)
    if measure is not None and measure.needs_common_start and scenario.init == "own":
        text = f"{measure.name} with alpha {measure.alpha:g} compares updates since one start, and init is own. "
        text += "Set init: shared, or algorithm.alpha: 1 (the last update alone), or another similarity"
        yield ("init",), text
    if chosen and not algorithm.compares_models:
        text = (
            f"{scenario.algorithm_name} compares no models. Choose dac, pens, panm, random, oracle or local, or leave"
        )
        yield place, f"{text} this list empty"


def _aggregated(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    """A rule for averages that the algorithm does not make, or that needs the own model of what averages."""
    rule, algorithm = scenario.aggregation, scenario.algorithm
    if rule is None or rule.is_plain:
        return
    if not algorithm.averages:
        yield ("aggregation", "name"), f"{scenario.algorithm_name} averages nothing; leave this section out"
    elif rule.needs_own and algorithm.has_server:
        text = f"is defined around a node's own model, and the server of {scenario.algorithm_name} has none. "
        yield ("aggregation", "name"), text + "Use one of: median, trimmed_mean, krum, multi_krum, geometric_median"


def _attacked(place: Place, attack: Any, scenario: Scenario) -> Iterator[tuple[Place, str]]:
    """An attack on nodes, rounds, classes or messages that are not there."""
    yield from _misfits(place, attack, scenario)
    cluster, clusters = attack.only_cluster, len(scenario.nodes.clusters)
    if cluster is not None and cluster >= clusters:
        yield (*place, "nodes", "cluster"), f"clusters are 0 to {clusters - 1} in this scenario, got {cluster}"
    if attack.start_round >= scenario.rounds:
        text = f"expected less than the run's rounds ({scenario.rounds}), got {attack.start_round}"
        yield (*place, "start_round"), text
    if attack.needs_classes and not scenario.learned.has_classes:
        yield (*place, "name"), f"needs classes, but {_subject(scenario)}"
    if attack.needs_messages and scenario.algorithm.exchanges == "nothing":
        text = f"acts on what is sent, and {scenario.algorithm_name} sends nothing"
        yield (*place, "name"), text


def _links_of_topology(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    """A graph whose edges say what links can do, with links that do not ask."""
    network, unused = scenario.network, ()
    if not scenario.algorithm.uses_topology or network.links.has_graph:
        return
    with suppress(ScenarioError):  # told by the topology itself
        unused = scenario.topology.unused(scenario.nodes.count, scenario.seed)
    if unused:
        text = (
            f"its edges have {' and '.join(unused)}, but a topology says only who talks to whom. Name the file in "
            "network.links too, {name: routed, file: ...}, or leave these out of it"
        )
        yield ("topology", "path"), text


def _misfits(place: Place, part: Part, scenario: Scenario) -> Iterator[tuple[Place, str]]:
    """What a part finds wrong with the number of nodes."""
    found: list[Problem] = []
    yield from _refusal(place, lambda: found.extend(part.problems(scenario.nodes.count, scenario.seed)))
    yield from (((*place, *path), text) for path, text in found)


def _refusal(place: Place, attempt: Callable[[], Any]) -> Iterator[tuple[Place, str]]:
    """What a part says when it is tried; its text may begin with the dotted path of the key to blame."""
    try:
        attempt()
    except ScenarioError as error:
        text = str(error)
        path = _PATH.match(text)
        keys = tuple(path[1].split(".")) if path else ()
        if path is None:
            yield place, text
        elif keys[:1] == place[:1]:
            yield keys, text[path.end() :]
        elif keys[:1] == place[-1:]:  # the part knows its own key, not the section that it stands in
            yield (*place, *keys[1:]), text[path.end() :]
        else:
            yield place, text
    except Exception as error:  # a class of the user's that is not finished yet
        frame = own_code.user_frame(error)
        if frame is None:
            raise
        yield place, frame


def _validation(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    """A seed that chooses nothing; a share of samples that leaves none on one side, or no node's share any, where it is
    known how many there are."""
    source, sizes = scenario.validation.source, scenario.data.num_samples
    if scenario.validation.seed is not None:
        if source in ("own", "none"):
            yield ("validation", "seed"), f"chooses among samples, and source {source} leaves nothing to choose"
        elif source == "node" and scenario.partition.dealt_at_random(1, 1) is None:
            yield ("validation", "seed"), "with source node it needs a partition that deals at random: random, domains"
    overlap = scenario.data.overlap
    if source in ("train", "node") and overlap is not None:
        text = (
            f"samples of {scenario.data_name} overlap ({overlap}): what is set aside would be trained on all the same. "
            "Use test, or data whose samples do not overlap"
        )
        yield ("validation", "source"), text
    if sizes is None:
        return
    fraction, train, nodes = scenario.validation.fraction, sizes[0], scenario.nodes.count
    if source in ("train", "test"):
        samples = train if source == "train" else sizes[1]
        held_out = round(fraction * samples)
        if not 0 < held_out < samples:
            yield ("validation", "fraction"), f"{fraction} of {samples} {source} samples leaves one side empty"
            return
        train -= held_out if source == "train" else 0
    if not scenario.partition.deals_apart or scenario.learning == "none":
        return
    most = train // nodes  # of the node that has the fewest
    if most == 0:
        place = ("validation", "fraction") if source == "train" else ("nodes", "clusters")
        yield place, f"{train} training samples are fewer than the {nodes} nodes"
    elif source == "node" and max(1, round(fraction * most)) >= most:
        text = f"{fraction} of a node's {most} samples or fewer leaves none to train on"
        yield ("validation", "fraction"), text


def _fits_shift(scenario: Scenario) -> None:
    if scenario.shift.changes_images and not scenario.data.may_hold_images and scenario.learning != "none":
        raise ScenarioError(
            f"shift.name: changes images, and {scenario.data_name} holds none. Use none, label_shift or label_swap."
        )
    shape = scenario.data.image_shape or (3, 2, 2)
    try:
        scenario.shift.check(len(scenario.nodes.clusters), tuple(shape))
    except ScenarioError:
        raise
    except Exception:  # a shift from elsewhere that cannot do with no samples; it speaks for itself in a run
        return
