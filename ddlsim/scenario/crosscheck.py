"""Checks of keys that have to fit each other. They read no data and use no GPU."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from ddlsim.foundation import own_code
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.registry import Part, Problem
from ddlsim.scenario import parts
from ddlsim.scenario.model import Scenario
from ddlsim.scenario.per_node import PER_NODE, Values
from ddlsim.scenario.sections import Evaluation
from ddlsim.tasks import label_of

_PATH = re.compile(r"([a-z_]+(?:\.[a-z_]+)*): ", re.ASCII)
_MANY_CLASSES = 10_000
"""More labels than any data set has; their number is unknown before the data is read."""

Place = tuple[str | int, ...]
Wrong = Iterator[tuple[str, str]]
"""Dotted keys, and why their values do not fit."""


def cross_problems(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    """Yield the path of each key that does not fit the other keys, and the reason."""
    misnamed = list(_refusal(("task",), lambda: scenario.learned.metrics))
    if misnamed:
        yield from misnamed
        return
    of_learning = (_target, _task, _model, _training, _of_nodes, _privacy)
    of_exchanges = (_secure, _network, _graph, _comparisons, _aggregation, _validation)
    for section in (*of_learning, *of_exchanges):
        yield from ((_path(key), text) for key, text in section(scenario))
    for number, attack in enumerate(scenario.attacks):
        place = ("attacks", number)
        yield from _misfits(place, attack, scenario)
        yield from (((*place, *_path(key)), text) for key, text in _attack(attack, scenario))
    links: list[Part] = []
    yield from _refusal(("network", "links"), lambda: links.append(scenario.links))
    for path, part in (
        (("partition",), scenario.partition),
        (("topology",), scenario.topology if scenario.algorithm.uses_topology else None),
        (("network", "links"), links[0] if links else None),
        (("devices",), scenario.devices),
        (("churn",), scenario.churn),
    ):
        if part is not None:
            yield from _misfits(path, part, scenario)
    clusters = len(scenario.nodes.clusters)
    yield from _refusal(("algorithm",), lambda: scenario.algorithm.check(scenario.nodes.clusters))
    yield from _refusal(("model",), lambda: scenario.model.assignment(scenario.nodes.count, scenario.seed))
    if scenario.data.num_tokens is not None and not own_code.is_from_outside(scenario.model):
        yield from _refusal(("model",), lambda: scenario.model.fitted(scenario.data.num_tokens, ()))
    yield from _refusal(("shift",), lambda: _fits_shift(scenario))
    yield from _refusal(("partition",), lambda: scenario.partition.cluster_labels(clusters, _MANY_CLASSES))


def _path(dotted: str) -> Place:
    return tuple(int(key) if key.isdigit() else key for key in dotted.split("."))


def _target(scenario: Scenario) -> Wrong:
    """Check the target of the evaluations."""
    evaluation, judged_by = scenario.evaluation, scenario.learned.judged_by
    of_metric = f"target_{judged_by.name}"
    expected = of_metric if of_metric in Evaluation.model_fields else "target"
    keys = [key for key in ("target_accuracy", "target_mse", "target") if getattr(evaluation, key) is not None]
    if evaluation.stop_at_target and not keys:
        yield "evaluation.stop_at_target", f"needs evaluation.{expected}, which is null"
    if evaluation.stop_at_target and scenario.learning == "none":
        yield "evaluation.stop_at_target", "needs an accuracy, but learning is none"
    for key in keys:
        if key not in (expected, "target"):
            yield f"evaluation.{key}", f"{_subject(scenario)}, judged by {judged_by.words}; give {expected} instead"
    wanted = evaluation.wanted
    if judged_by.share and wanted is not None and wanted > 1 and keys[0] in (expected, "target"):
        yield f"evaluation.{keys[0]}", f"{judged_by.words} is a share, 0 to 1; write {wanted / 100:g} for {wanted:g} %"
    if len(keys) > 1:
        yield f"evaluation.{keys[1]}", f"there is one target, and evaluation.{keys[0]} gives it; leave one out"


def _task(scenario: Scenario) -> Wrong:
    """Check parts that need classes, and data that must have domains or a validation set."""
    for key, part, instead in (
        ("partition", scenario.partition, "random, quantity_skew, domains"),
        ("shift", scenario.shift, "none, rotate"),
        ("algorithm", scenario.algorithm, "el, dpsgd, dac, facade, fedavg"),
    ):
        if part.needs_classes and not scenario.learned.has_classes:
            yield f"{key}.name", f"needs classes, but {_subject(scenario)}. Use one of: {instead}"
    if scenario.validation.source == "own" and not scenario.data.own_validation:
        yield "validation.source", f"{scenario.data_name} comes without a validation set. Use train, test or node"
    if scenario.partition.by_domain:
        clusters = len(scenario.nodes.clusters)
        domains = scenario.data.domains_for(clusters)
        if domains != clusters:
            text = f"deals one domain to each cluster; {scenario.data_name} has {domains or 'none'} for {clusters}. "
            yield "partition.name", f"{text}Use random, or data with as many domains (joined, heart_disease, ...)"


def _subject(scenario: Scenario) -> str:
    """Describe the task for messages."""
    task = label_of(scenario.learned)
    return f"{scenario.data_name} is a {task}" if scenario.task is None else f"the task is {task}"


def _model(scenario: Scenario) -> Wrong:
    """Check models that cannot learn or lack a part, and devices that measure training steps."""
    model, algorithm, name = scenario.model, scenario.algorithm, scenario.algorithm_name
    if model.only_size and scenario.learning != "none":
        yield "model.name", "is only a size and cannot learn. Choose another model, or set learning: none"
    elif model.only_size and algorithm.has_extra_parts:
        yield "model.name", f"is only a size, and {name} trains further parts on its layers. Choose another model"
    if algorithm.needs_core and not model.has_core:
        text = f"this {parts.table('model').label_of(model)} has no core apart from its head, and {name} separates them"
        cure = "Choose a model with a core (gn_lenet, mlp, gpt without tie_word_embeddings, ...)"
        yield "model.name", f"{text}. {cure} or an algorithm without (el, dpsgd, ...)"
    if scenario.devices.measures and scenario.learning == "none":
        yield "devices.name", "measures training steps, and learning is none. Choose estimated or constant"


def _training(scenario: Scenario) -> Wrong:
    """Check keys of local training, and choices by validation loss without validation samples."""
    training, evaluation = scenario.training, scenario.evaluation
    if training.epochs and training.local_steps:
        yield "training.epochs", "a round has a number of epochs or of local_steps; set the other to null"
    if training.optimizer_state == "kept" and training.optimizer.moments == ():
        yield "training.optimizer_state", "sgd without momentum has no state to keep; expected fresh"
    sgd = parts.table("optimizer").label_of(training.optimizer) == "sgd" and not training.optimizer.moments
    if scenario.algorithm.needs_plain_sgd and not sgd:
        text = "computes gradients from the changes of single steps, for its own optimizer"
        yield "training.optimizer", f"expected sgd without momentum: {scenario.algorithm_name} {text}"
    if training.weight_decay_on == "weights" and not training.optimizer.decays:
        yield "training.weight_decay_on", f"expected all: {training.optimizer.name} has no weight_decay"
    if training.augmentation != "none" and not scenario.shift.keeps_channels:
        yield "training.augmentation", "expected none: it scales by channel, and this shift reorders channels"
    if training.augmentation != "none" and not scenario.data.may_hold_images and scenario.learning != "none":
        yield "training.augmentation", f"only none fits samples that are not images ({scenario.data_name})"
    if training.label_smoothing and not scenario.learned.has_classes:
        yield "training.label_smoothing", f"needs a class per sample, but {_subject(scenario)}"
    for key, common, why in (
        ("proximal", 0.0, "the term would be zero, as each step starts from its own reference model"),
        ("accumulate", 1, "every mini-batch makes an update"),
    ):
        if scenario.algorithm.splits_local_steps and getattr(training, key) != common:
            text = f"expected {common:g}: {scenario.algorithm_name} corrects each step, so that {why}"
            yield f"training.{key}", text
    schedule, rounds = training.schedule, scenario.rounds
    if schedule is not None and schedule.per == "round" and schedule.warmup >= rounds:
        yield "training.schedule.warmup", f"expected less than the run's rounds ({rounds}), got {schedule.warmup}"
    has_best = evaluation.evaluated_model == "best"
    if scenario.validation.source == "none":
        for key, is_set in (
            ("training.early_stopping", training.early_stopping is not None),
            ("evaluation.evaluated_model", has_best),
            ("evaluation.validation", evaluation.validation),
            *((f"algorithm.{key}", True) for key in scenario.algorithm.needs_validation),
        ):
            if is_set:
                yield key, "needs validation samples, but validation.source is none"
    if scenario.records.models == "best" and not (training.early_stopping or has_best):
        yield "records.models", "needs evaluation.evaluated_model: best or training.early_stopping"


def _of_nodes(scenario: Scenario) -> Wrong:
    """Check the settings of local training that differ between nodes."""
    training = scenario.training
    for key, kind in PER_NODE.items():
        try:
            kind.drawn(getattr(training, key), key, scenario.nodes.count, scenario.seed)
        except ScenarioError as error:
            yield f"training.{key}", str(error)
    differs = isinstance(training.batch_size, tuple | Values)
    if differs and parts.table("devices").label_of(scenario.devices) == "calibrated":
        text = "measures steps of one batch size, and training.batch_size differs between nodes. Choose estimated"
        yield "devices.name", f"{text}, or give seconds (per_node, table)"


def _privacy(scenario: Scenario) -> Wrong:
    """Check that something private is learned, and that epsilon covers what nodes release."""
    privacy, training = scenario.privacy, scenario.training
    if privacy is None:
        return
    if scenario.learning == "none":
        yield "privacy", "nothing is learned, so nothing is private: learning is none"
    if privacy.kind != "dp_sgd":
        return
    if scenario.algorithm.own_loss:
        text = f"expected message: {scenario.algorithm_name} trains with another loss than the task's. Or choose an "
        yield "privacy.kind", f"{text}algorithm with the task's loss (el, dpsgd, dac, facade, ...)"
    for key, common, why in (
        ("accumulate", 1, "noise is added to every batch; a larger batch_size does the same"),
        ("precision", "float32", "gradients of single samples are computed in float32"),
        ("drop_last", False, "batches are drawn by Poisson sampling and have no last one"),
    ):
        if getattr(training, key) != common:
            yield f"training.{key}", f"expected {common} with privacy.kind dp_sgd: {why}"
    for key, common in (("clips", "update"), ("adjacency", "replace")):
        if getattr(privacy, key) != common:
            yield f"privacy.{key}", "is for privacy.kind message, which is dp_sgd; leave it out"


def _secure(scenario: Scenario) -> Wrong:
    """Check that secure aggregation only sums whole models of one round."""
    settings, rule = scenario.secure_aggregation, scenario.aggregation
    if settings is None:
        return
    most = scenario.nodes.count - (not scenario.algorithm.has_server)
    if not scenario.algorithm.needs_only_sums:
        text = f"hides single models, and {scenario.algorithm_name}, with these options, uses them. Use one of: "
        yield "secure_aggregation", f"{text}fedavg, fedprox, fedsim, dpsgd, el, dfedavgm, scaffold (sends: changes)"
    if isinstance(settings.threshold, int) and settings.threshold > most:
        yield "secure_aggregation.threshold", f"expected at most {most} users, got {settings.threshold}"
    if rule is not None and not rule.is_plain:
        yield "aggregation.name", "looks at single models, which secure_aggregation hides; leave one of them out"
    if parts.table("compression").label_of(scenario.network.compression) != "none":
        yield "network.compression.name", "expected none: secure_aggregation sums masked integers"
    for key, wrong, common in (
        ("mode", scenario.mode == "async", "sync"),
        ("protocol.late_messages", scenario.protocol.late_messages == "keep", "drop"),
    ):
        if wrong:
            yield key, f"expected {common} with secure_aggregation: a sum is over the nodes of one round"


def _network(scenario: Scenario) -> Wrong:
    """Check settings of the network that exclude each other, properties of edges that the network does not use, and
    energy without a cost."""
    network = scenario.network
    unused: list[str] = []
    if network.tcp is not None and network.fidelity != "tcp":
        yield "network.tcp", f"needs network.fidelity tcp, which is {network.fidelity}"
    if scenario.algorithm.collective and getattr(network.compression, "keeps_copies", False):
        text = f"sends changes of a receiver's copy; collectives of {scenario.algorithm_name} have no fixed receiver"
        yield "network.compression.name", f"{text}. Use float16 or int8"
    if network.loss_bursts is not None and network.drop_probability:
        yield "network.drop_probability", "network.loss_bursts also sets the losses of messages; leave one out"
    if scenario.algorithm.uses_topology and not network.links.has_graph:
        with suppress(ScenarioError):  # the topology reports it
            unused = [name for name in scenario.topology.edge_attributes(scenario.nodes.count) if name != "weight"]
    if scenario.energy is not None and scenario.energy.is_free and scenario.devices.watts is None:
        text = "no cost is set. Set a device or watts, a link or j_per_byte_up, idle_w, ..., or leave it out"
        yield "energy", text
    if unused:
        text = f"edges have {' and '.join(unused)}, which network.links does not use. Set network.links to "
        yield "topology", f"{text}{{name: routed}}, or remove them from the graph"


def _graph(scenario: Scenario) -> Wrong:
    """Check that the algorithm can use a graph that is directed or has mixing weights."""
    topology, graphs, name = scenario.topology, scenario.algorithm.graphs, scenario.algorithm_name
    if not scenario.algorithm.uses_topology or not (topology.directed or topology.weighted):
        return
    if topology.directed and graphs in ("undirected", "symmetric"):
        text = f"this topology is directed, and {name} needs a graph in which both nodes of an edge exchange"
        cure = "Choose another topology, or an algorithm for directed graphs (dpsgd, el, gossip, sgp)"
        yield "topology", f"{text}. {cure}"
        return
    drawn: Any = None
    with suppress(ScenarioError):  # the topology reports it
        drawn = topology.neighbors(scenario.nodes.count, 0, scenario.seed)
    if drawn is not None and graphs in ("symmetric", "balanced") and not drawn.balanced:
        text = "weights that sum to 1 over the senders of each node, and over its receivers, and this graph's do not"
        yield "topology", f"{name} needs mixing {text}. Choose sgp, which needs no such weights, or another topology"


def _comparisons(scenario: Scenario) -> Wrong:
    """Check that similarities have equal initial models, and nodes that compare models."""
    chosen, algorithm, last = scenario.records.true_similarities, scenario.algorithm, scenario.nodes.count - 1
    for i, node in enumerate(chosen):
        if node > last:
            yield f"records.true_similarities.{i}", f"node ids are 0 to {last} in this scenario, got {node}"
    measure = algorithm.similarity_measure(None)
    if measure is not None and measure.needs_common_start and scenario.init == "own":
        text = f"{measure.name} with alpha {measure.alpha:g} compares updates since one start, and init is own. "
        yield "init", f"{text}Set init: shared, or algorithm.alpha: 1 (the last update alone), or another similarity"
    if chosen and not algorithm.compares_models:
        text = f"expected no nodes: {scenario.algorithm_name} compares no models. "
        yield "records.true_similarities", f"{text}Choose dac, pens, panm, random, oracle or local"


def _aggregation(scenario: Scenario) -> Wrong:
    """Check that the algorithm can use the rule for averages."""
    rule, algorithm = scenario.aggregation, scenario.algorithm
    if rule is None or rule.is_plain:
        return
    if not algorithm.averages:
        yield "aggregation.name", f"{scenario.algorithm_name} averages nothing; leave this section out"
    elif rule.needs_own and algorithm.has_server:
        text = f"is defined around a node's own model, and the server of {scenario.algorithm_name} has none. "
        yield "aggregation.name", f"{text}Use one of: median, trimmed_mean, krum, multi_krum, geometric_median"


def _attack(attack: Any, scenario: Scenario) -> Wrong:
    """Check that the nodes, rounds, classes or messages exist that an attack needs."""
    cluster, clusters = attack.only_cluster, len(scenario.nodes.clusters)
    if cluster is not None and cluster >= clusters:
        yield "nodes.cluster", f"clusters are 0 to {clusters - 1} in this scenario, got {cluster}"
    if attack.start_round >= scenario.rounds:
        yield "start_round", f"expected less than the run's rounds ({scenario.rounds}), got {attack.start_round}"
    if attack.needs_classes and not scenario.learned.has_classes:
        yield "name", f"needs classes, but {_subject(scenario)}"
    if attack.needs_messages and scenario.algorithm.exchanges == "nothing":
        yield "name", f"changes sent messages, and {scenario.algorithm_name} sends none"
    if scenario.algorithm.collective:
        yield "name", f"members of the collectives of {scenario.algorithm_name} see sums; leave attacks out"
    if scenario.secure_aggregation is not None and attack.knows == "neighbors":
        yield "knowledge", "expected own or all: secure_aggregation hides the models of neighbors"


def _misfits(place: Place, part: Part, scenario: Scenario) -> Iterator[tuple[Place, str]]:
    """Yield the problems that a part has with the number of nodes."""
    found: list[Problem] = []
    yield from _refusal(place, lambda: found.extend(part.problems(scenario.nodes.count, scenario.seed)))
    yield from (((*place, *path), text) for path, text in found)


def _refusal(place: Place, attempt: Callable[[], Any]) -> Iterator[tuple[Place, str]]:
    """Yield the ScenarioError of an attempt; its text may begin with the dotted path of the key to blame."""
    try:
        attempt()
    except ScenarioError as error:
        text = str(error)
        path = _PATH.match(text)
        keys, rest = (tuple(path[1].split(".")), text[path.end() :]) if path else ((), text)
        if keys[:1] == place[:1]:
            yield keys, rest
        elif keys[:1] == place[-1:]:  # the part knows its key, but not its section
            yield (*place, *keys[1:]), rest
        else:
            yield place, text
    except Exception as error:  # of a user's class
        frame = own_code.user_frame(error)
        if frame is None:
            raise
        yield place, frame


def _validation(scenario: Scenario) -> Wrong:
    """Check the seed of the validation samples, and that every side of a split keeps samples if sizes are known."""
    validation, sizes, nodes = scenario.validation, scenario.data.num_samples, scenario.nodes.count
    source, fraction, overlap = validation.source, validation.fraction, scenario.data.overlap
    if validation.seed is not None and source in ("own", "none"):
        yield "validation.seed", f"chooses among samples, and source {source} leaves nothing to choose"
    elif validation.seed is not None and source == "node" and scenario.partition.dealt_at_random(1, 1) is None:
        yield "validation.seed", "with source node it needs a partition that deals at random: random, domains"
    if source in ("train", "node") and overlap is not None:
        text = f"samples of {scenario.data_name} overlap ({overlap}), so nodes would train on validation samples. Use "
        yield "validation.source", f"{text}test, or data whose samples do not overlap"
    if sizes is None:
        return
    train = sizes[0]
    if source in ("train", "test"):
        samples = train if source == "train" else sizes[1]
        held_out = round(fraction * samples)
        if not 0 < held_out < samples:
            yield "validation.fraction", f"{fraction} of {samples} {source} samples leaves one side empty"
            return
        train -= held_out if source == "train" else 0
    if not scenario.partition.deals_apart or scenario.learning == "none":
        return
    most = train // nodes  # of the node with the fewest samples
    if most == 0:
        key = "validation.fraction" if source == "train" else "nodes.clusters"
        yield key, f"{train} training samples are fewer than the {nodes} nodes"
    elif source == "node" and max(1, round(fraction * most)) >= most:
        yield "validation.fraction", f"{fraction} of a node's {most} samples or fewer leaves none to train on"


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
    except Exception:  # a user's shift may fail without samples; the run reports it
        return
