"""Notes on keys that are set and have no effect given the other keys, for `ddlsim check` and every run.

They are not errors, because a sweep sets keys for all runs that only some runs use. The method `unused_keys` of a part
reports the keys of this part.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from ddlsim.foundation import own_code
from ddlsim.foundation.errors import ScenarioError
from ddlsim.scenario import parts
from ddlsim.scenario.model import Scenario

Place = tuple[str | int, ...]
Row = tuple[str, bool, str]
"""A dotted key, whether it has no effect, and the reason."""


def unused_key_notes(scenario: Scenario) -> list[str]:
    """Return a note on each key without effect or dropped from the fallback, and on a graph that does not fit."""
    found = [*_of_parts(scenario), *_of_sections(scenario)]
    given = [(".".join(map(str, place)), why) for place, why in found if _is_set(scenario, place)]
    notes = [f"NOTE: {key} has no effect: {why}." for key, why in given] + _of_graph(scenario)
    notes += _of_weights(scenario)
    return [*scenario._notes, *notes] + [f"NOTE: {key}: {why}." for key, why in _futile_attacks(scenario)]


def _of_graph(scenario: Scenario) -> list[str]:
    """Return a note if the algorithm is defined for another kind of graph."""
    algorithm, dynamic = scenario.algorithm, scenario.topology.dynamic
    expected, name = algorithm.expects_graph, scenario.algorithm_name
    if not algorithm.uses_topology or expected == "any" or (expected == "dynamic") == dynamic:
        return []
    has_key = "dynamic" in {each.name for each in dataclasses.fields(scenario.topology)}
    if algorithm.graphs == "balanced" and expected == "static" and not has_key:
        return []  # a planned sequence of graphs, on which models mix as on one
    kind = "one graph in all rounds" if expected == "static" else "a new graph in every round"
    same = " On a regular graph it then computes the same as el." if name == "dpsgd" else ""
    cure = f"Set topology.dynamic to {str(not dynamic).lower()}; random topologies have this key"
    return [f"NOTE: {name} is defined for {kind}, and topology.dynamic is {str(dynamic).lower()}.{same} {cure}."]


def _of_weights(scenario: Scenario) -> list[str]:
    """Return notes on the use of attributes of the topology's edges."""
    found, algorithm, links = [], scenario.algorithm, scenario.network.links
    attributes = scenario.topology.edge_attributes(scenario.nodes.count) if algorithm.uses_topology else ()
    if "weight" in attributes and not scenario.topology.weighted:
        text = "if they are the weights of senders in a receiver's new model, set topology.weighted to true"
        found.append(f"NOTE: the attribute weight of the topology's edges has no effect; {text}.")
    elif algorithm.uses_topology and scenario.topology.weighted and algorithm.graphs in ("undirected", "directed"):
        found.append(f"NOTE: weights of the topology's edges have no effect: {scenario.algorithm_name} uses none.")
    if links.uses_topology:
        text = "bandwidth_mbps in each direction, and latency_ms one way"
        found.append(f"NOTE: network.links: messages cross the edges of the topology, with their {text}.")
    return found


def _of_parts(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    for place, part in (
        (("algorithm",), scenario.algorithm),
        (("aggregation",), scenario.aggregation),
        (("data",), scenario.data),
        (("partition",), scenario.partition),
        (("training", "optimizer"), scenario.training.optimizer),
        (("devices",), scenario.devices),
    ):
        if part is not None:
            yield from (((*place, key), why) for key, why in part.unused_keys(scenario.rounds))


def _of_sections(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    for section in (_of_algorithm, _of_network, _of_training, _of_evaluation, _of_energy):
        yield from ((tuple(key.split(".")), why) for key, is_idle, why in section(scenario) if is_idle)


def _of_algorithm(scenario: Scenario) -> Iterator[Row]:
    algorithm, name = scenario.algorithm, scenario.algorithm_name
    no_stop = scenario.training.early_stopping is None
    yield "init", algorithm.one_start, f"all nodes of {name} start from the server's model"
    yield "algorithm.stopped_serves", no_stop, "no node stops: training.early_stopping is null"
    yield "algorithm.stopped_compared", no_stop, "no node stops: training.early_stopping is null"
    similar = scenario.records.true_similarities
    yield "algorithm.monitored_similarity", not similar, "records.true_similarities is empty"


def _of_network(scenario: Scenario) -> Iterator[Row]:
    network, algorithm, name = scenario.network, scenario.algorithm, scenario.algorithm_name
    sync, has_server = scenario.mode == "sync", algorithm.has_server
    lossless = not network.drop_probability and network.loss_bursts is None
    yield "network.server_mbps", not has_server, f"{name} has no server"
    yield "network.links.server_host", not has_server, f"{name} has no server"
    yield "network.on_drop", lossless, "no message is lost: network.drop_probability is 0"
    if network.tcp is not None:
        shares = network.tcp.shares
        yield "network.tcp.share_spread", shares != "random", f"network.tcp.shares is {shares}"
    yield "mode", _same_in_either_mode(scenario) is not None, _same_in_either_mode(scenario) or ""
    yield "protocol.staleness_s", has_server, f"nodes of {name} wait for its server"
    own_messages = not has_server and sync and algorithm.waits
    yield "protocol.staleness_s", own_messages, "mode is sync, where rounds wait for their own messages"
    complete = sync and scenario.protocol.deadline_s is None and scenario.churn is None
    in_time = complete and not own_code.is_from_outside(algorithm)  # user-defined rounds may close early
    yield "protocol.late_messages", in_time, "no message is too late without protocol.deadline_s or churn"


def _same_in_either_mode(scenario: Scenario) -> str | None:
    """Return why `mode` has no effect, or None if it may have one; user-defined algorithms may read it."""
    name, algorithm = scenario.algorithm_name, scenario.algorithm
    if own_code.is_from_outside(algorithm):
        return None
    if algorithm.has_server and algorithm.waits:
        return f"the rounds of {name} wait for its server in either mode"
    if algorithm.collective:
        return f"members of the collectives of {name} wait for each other in either mode"
    if algorithm.exchanges == "nothing":
        return f"nodes of {name} exchange nothing"
    return None if algorithm.waits else f"nodes of {name} do not wait for each other in either mode"


def _of_training(scenario: Scenario) -> Iterator[Row]:
    training, algorithm = scenario.training, scenario.algorithm
    optimizer, fresh = training.optimizer, training.optimizer_state == "fresh"
    plain = parts.table("optimizer").label_of(optimizer) == "sgd" and not optimizer.nesterov
    each_step = algorithm.splits_local_steps and fresh and plain
    yield "training.optimizer.momentum", each_step, "each local step starts a new optimizer (optimizer_state fresh)"
    yield "training.weight_decay_on", optimizer.decays and not optimizer.weight_decay, "weight_decay is 0"
    two_passes = scenario.algorithm_name == "deprl" and algorithm.local_training == "epochs"
    yield "training.epochs", two_passes, "algorithm.local_training epochs makes one pass for head and core each"


def _of_evaluation(scenario: Scenario) -> Iterator[Row]:
    source = scenario.validation.source
    yield "validation.fraction", source == "none", "validation.source is none"
    yield "data.validation_samples", source != "own", f"validation.source is {source}"
    yield "evaluation.fair_lambda", not scenario.learned.judged_by.share, "there is no accuracy"


def _of_energy(scenario: Scenario) -> Iterator[Row]:
    energy = scenario.energy
    if energy is None:
        return
    both = energy.j_per_byte_up is not None and energy.j_per_byte_down is not None
    yield "energy.server_w", not scenario.algorithm.has_server, f"{scenario.algorithm_name} has no server"
    yield "energy.device", energy.watts is not None, "energy.watts is set"
    yield "energy.grid", energy.gco2_per_kwh is not None, "energy.gco2_per_kwh is set"
    yield "energy.link", both, "energy.j_per_byte_up and energy.j_per_byte_down are set"


def _futile_attacks(scenario: Scenario) -> Iterator[tuple[str, str]]:
    alone = len(scenario.attacks) == 1 and scenario.privacy is None  # else it replaces another attack, or the noise
    what = "has no effect except that it is counted" if alone else "does not attack by itself"
    for number, attack in enumerate(scenario.attacks):
        why = attack.futile(attack.count(scenario.nodes.clusters), scenario.nodes.count)
        if why:
            yield f"attacks[{number}] {what}", why


def _is_set(scenario: Scenario, place: Place) -> bool:
    """Whether the key exists and its value differs from its default given the other keys."""
    section: Any = scenario
    for key in place[:-1]:
        section = getattr(section, str(key), None)
    name = str(place[-1])
    if isinstance(section, BaseModel):
        return getattr(section, name) != type(section).model_fields[name].default
    if not dataclasses.is_dataclass(section) or isinstance(section, type):
        return False
    fields = {field.name: field for field in dataclasses.fields(section)}
    if name not in fields or fields[name].default is dataclasses.MISSING:
        return name in fields
    try:
        usual = dataclasses.replace(section, **{name: fields[name].default})
    except ScenarioError:
        return True
    return getattr(section, name) != getattr(usual, name)
