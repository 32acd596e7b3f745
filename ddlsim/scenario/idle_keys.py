"""Keys that are given and do nothing, because of what other keys are: told by `ddlsim check` and by every run.

They are no errors, since a sweep gives all its runs the keys that some of them use. What a part can tell of its own
keys, its method `idle` does.
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


def idle_notes(scenario: Scenario) -> list[str]:
    """A line for every key that was set and does nothing or was dropped, and for a graph that does not fit."""
    found = [*_of_parts(scenario), *_of_sections(scenario)]
    given = [(".".join(map(str, place)), why) for place, why in found if _is_given(scenario, place)]
    notes = [f"NOTE: {key} has no effect: {why}." for key, why in given] + _of_graph(scenario)
    return [*scenario._notes, *notes] + [f"NOTE: {key}: {why}." for key, why in _futile_attacks(scenario)]


def _of_graph(scenario: Scenario) -> list[str]:
    """A line if the algorithm is defined for another kind of graph than the scenario's."""
    algorithm, dynamic = scenario.algorithm, scenario.topology.dynamic
    expected, name = algorithm.expects_graph, scenario.algorithm_name
    if not algorithm.uses_topology or expected == "any" or (expected == "dynamic") == dynamic:
        return []
    if expected == "static":
        same = " On a regular graph it then computes the same as el." if name == "dpsgd" else ""
        return [
            f"NOTE: {name} is defined for one graph in all rounds, and this topology changes every round.{same} "
            "Set topology.dynamic to false."
        ]
    return [
        f"NOTE: {name} is defined for a new graph in every round, and this topology never changes. "
        "Set topology.dynamic to true, or choose a topology that has this key (random_regular, ...)."
    ]


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
            yield from (((*place, key), why) for key, why in part.idle(scenario.rounds))


def _of_sections(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    yield from _of_network(scenario)
    yield from _of_training(scenario)
    yield from _of_algorithm(scenario)
    if scenario.algorithm.one_start:
        yield ("init",), f"all nodes of {scenario.algorithm_name} start from the server's model"
    energy = scenario.energy
    if energy is not None:
        if not scenario.algorithm.has_server:
            yield ("energy", "server_w"), f"{scenario.algorithm_name} has no server"
        if energy.watts is not None:
            yield ("energy", "device"), "energy.watts is given"
        if energy.gco2_per_kwh is not None:
            yield ("energy", "grid"), "energy.gco2_per_kwh is given"
        if energy.j_per_byte_up is not None and energy.j_per_byte_down is not None:
            yield ("energy", "link"), "energy.j_per_byte_up and energy.j_per_byte_down are given"
    if scenario.validation.source == "none":
        yield ("validation", "fraction"), "validation.source is none"
    if scenario.validation.source != "own":
        yield ("data", "validation_samples"), f"validation.source is {scenario.validation.source}"
    if not scenario.learned.judged_by.share:
        yield ("evaluation", "fair_lambda"), "there is no accuracy"


def _of_network(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    network, protocol = scenario.network, scenario.protocol
    if not scenario.algorithm.has_server:
        yield ("network", "server_mbps"), f"{scenario.algorithm_name} has no server"
        yield ("network", "links", "server_host"), f"{scenario.algorithm_name} has no server"
    if not network.drop_probability and network.loss_bursts is None:
        yield ("network", "on_drop"), "no message is lost: network.drop_probability is 0"
    if network.tcp is not None and network.tcp.shares != "random":
        yield ("network", "tcp", "share_spread"), f"network.tcp.shares is {network.tcp.shares}"
    waits_for_all = not own_code.is_from_outside(scenario.algorithm)  # others may close rounds before all has come
    in_either_mode = _same_in_either_mode(scenario)
    if in_either_mode is not None:
        yield ("mode",), in_either_mode
    if scenario.algorithm.has_server:
        yield ("protocol", "staleness_s"), f"the rounds of {scenario.algorithm_name} wait for its server"
    elif scenario.mode == "sync" and scenario.algorithm.waits:
        yield ("protocol", "staleness_s"), "mode is sync, where rounds wait for their own messages"
    if scenario.mode == "sync" and protocol.deadline_s is None and scenario.churn is None and waits_for_all:
        yield ("protocol", "late_messages"), "no message is too late without protocol.deadline_s or churn"


def _same_in_either_mode(scenario: Scenario) -> str | None:
    """Why `mode` changes nothing; None if it may. Algorithms from outside may look at it."""
    name, algorithm = scenario.algorithm_name, scenario.algorithm
    if own_code.is_from_outside(algorithm):
        return None
    if algorithm.has_server:
        return f"the rounds of {name} wait for its server in either mode"
    if algorithm.exchanges == "nothing":
        return f"nodes of {name} exchange nothing"
    return None if algorithm.waits else f"nodes of {name} do not wait for each other in either mode"


def _of_training(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    training = scenario.training
    sgd = parts.table("optimizer").label_of(training.optimizer) == "sgd"
    plain = sgd and not training.optimizer.nesterov
    if scenario.algorithm.splits_local_steps and training.optimizer_state == "fresh" and plain:
        yield (
            ("training", "optimizer", "momentum"),
            "each local step begins with a new optimizer (optimizer_state fresh)",
        )
    if training.optimizer.decays and not training.optimizer.weight_decay:
        yield ("training", "weight_decay_on"), "weight_decay is 0"
    if scenario.algorithm_name == "deprl" and scenario.algorithm.local_training == "epochs":
        yield ("training", "epochs"), "algorithm.local_training epochs makes one pass for the head and one for the core"


def _of_algorithm(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    if scenario.training.early_stopping is None:
        for key in ("stopped_serves", "stopped_compared"):
            yield ("algorithm", key), "no node stops: training.early_stopping is null"
    if not scenario.records.true_similarities:
        yield ("algorithm", "monitored_similarity"), "records.true_similarities is empty"


def _futile_attacks(scenario: Scenario) -> Iterator[tuple[str, str]]:
    alone = len(scenario.attacks) == 1 and scenario.privacy is None  # else it replaces another attack, or the noise
    what = "has no effect beside being counted" if alone else "is no attack by itself"
    for number, attack in enumerate(scenario.attacks):
        why = attack.futile(attack.count(scenario.nodes.clusters), scenario.nodes.count)
        if why:
            yield f"attacks[{number}] {what}", why


def _is_given(scenario: Scenario, place: Place) -> bool:
    """Whether there is such a key, and its value is not the one that it has by default beside the others."""
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
