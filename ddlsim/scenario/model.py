"""A scenario as a frozen object with its defaults, its YAML and its digest."""

import hashlib
import io
import json
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, StringConstraints
from ruamel.yaml import YAML
from ruamel.yaml.nodes import Node
from ruamel.yaml.representer import RoundTripRepresenter

from ddlsim.foundation import own_code
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.strict_json import mapped
from ddlsim.foundation.units import Count
from ddlsim.scenario import parts
from ddlsim.scenario.network_sections import Energy, Network, Privacy, SecureAggregation
from ddlsim.scenario.parts import NamedPart, origins
from ddlsim.scenario.sections import Evaluation, Nodes, Protocol, Records, Section, Training, Validation, default
from ddlsim.tasks import Task, as_task

NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.+-]*$"


class Scenario(Section):
    """One experiment: nodes, their data and algorithm, the network, and the number of rounds.

    Args:
        name: name of the run's directory; default: the file's name without extension.
        description: one line for readers.
        paper: published numbers, shown next to the run's; free form.
        seed: seed of all random streams.
        rounds: communication rounds of each node.
        mode: sync: a round waits for its messages; async: a node uses the messages that have arrived. The run ends when
            all online nodes have finished; in async it also waits for offline nodes, for up to twice that time. Rounds
            with a server wait in either mode, rounds of gossip and adpsgd in neither.
        participation: probability with which a node joins a round, drawn from the seed for each node and round. A node
            that does not join trains and sends nothing in that round, keeps its model, and is idle as long as its local
            training would take; no other node waits for it or sends to it. 1: all nodes join all rounds.
        protocol: deadlines, and the handling of late messages.
        learning: real: nodes train; none: only the network is simulated: models are sizes, no data is needed, and no
            node stops early.
        init: initial models: shared: equal for all nodes of an architecture; own: different for each node.
        compute_device: device that computes the training: auto, cpu or cuda.
        nodes: number of nodes and their clusters.
        algorithm: the learning algorithm.
        attacks: attacks of some nodes on the others; none: all nodes are honest.
        aggregation: rule that replaces the algorithm's weighted average of models; null: that average.
        model: the network that is trained.
        data: the data set.
        task: the learning task with its loss and metrics; null: the task of the data set.
        partition: distribution of the samples over the nodes.
        shift: differences between the samples of the clusters.
        validation: samples set aside for choices during training.
        training: local training of one round.
        topology: pairs of nodes that may exchange messages. Ignored with a server, which all nodes reach, and by
            algorithms whose nodes choose among all (dac, pens, panm, random, oracle, mapl, el with variant local, sgp
            with graph exponential).
        network: the network that carries the messages.
        devices: computing speed of the nodes.
        churn: times when nodes are offline; null: never.
        evaluation: tests of the models.
        records: detail of the records.
        privacy: clipping and noise for differential privacy; null: none.
        secure_aggregation: sums that hide single models; null: none.
        energy: electricity of the run; null: not computed.
        fallback: keys to change if the data is missing; null: no fallback.
    """

    name: Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
    description: str = ""
    paper: dict[str, Any] | None = None
    seed: Annotated[int, Ge(0)] = default(0, "a number like any other; report several")
    rounds: Count
    mode: Literal["sync", "async"] = default("sync", "the papers' rounds wait")
    participation: Annotated[float, Gt(0), Le(1)] = default(1.0, "all nodes join all rounds")
    protocol: Protocol
    learning: Literal["real", "none"] = default("real", "nodes train")
    init: Literal["shared", "own"] = default(
        "shared", "equal initial models, so that algorithms and not starts are compared"
    )
    compute_device: Literal["auto", "cpu", "cuda"] = "auto"
    nodes: Nodes
    algorithm: Annotated[Any, NamedPart("algorithm")]
    aggregation: Annotated[Any, NamedPart("aggregation")] | None = default(None, "the algorithm's own average")
    attacks: tuple[Annotated[Any, NamedPart("attacks")], ...] = default((), "all nodes are honest")
    model: Annotated[Any, NamedPart("model")]
    data: Annotated[Any, NamedPart("data")]
    task: Annotated[Any, NamedPart("task")] | None = default(None, "the data set's own task")
    partition: Annotated[Any, NamedPart("partition")]
    shift: Annotated[Any, NamedPart("shift")]
    validation: Validation
    training: Training
    topology: Annotated[Any, NamedPart("topology")]
    network: Network
    devices: Annotated[Any, NamedPart("devices")]
    churn: Annotated[Any, NamedPart("churn")] | None = default(None, "all nodes stay")
    evaluation: Evaluation
    records: Records
    privacy: Privacy | None = default(None, "no noise")
    secure_aggregation: SecureAggregation | None = default(None, "no secure aggregation")
    energy: Energy | None = None
    fallback: dict[str, Any] | None = None
    _notes: tuple[str, ...] = ()  # on dropped keys; no part of the settings

    @property
    def algorithm_name(self) -> str:
        """The algorithm's name in its table, or the name of its class in a file."""
        return parts.table("algorithm").label_of(self.algorithm)

    @property
    def links(self) -> Any:
        """The links of nodes; over the topology's edges if they use it.

        Raises:
            ScenarioError: the topology changes, or has no valid graph.
        """
        links = self.network.links
        if not links.uses_topology:
            return links
        if self.topology.dynamic:
            raise ScenarioError("links.path: expected a file, since the topology's edges change every round, got null.")
        return links.over(self.topology.graph(self.nodes.count, 0, self.seed))

    @property
    def learned(self) -> Task:
        """The task of the key `task`, or else of the data set."""
        return as_task(self.data.task if self.task is None else self.task)

    @property
    def node_training(self) -> Training:
        """The section `training` with the values of each node drawn, see per_node.py."""
        return self.training.drawn(self.nodes.count, self.seed)

    @property
    def data_name(self) -> str:
        """The data set's name in its table, or the name of its class in a file."""
        return parts.table("data").label_of(self.data)


DEFAULTS: dict[str, Any] = {
    "protocol": {},
    "partition": {"name": "uniform"},
    "shift": {"name": "none"},
    "validation": {},
    "training": {"optimizer": {"name": "sgd"}},
    "topology": {"name": "random_regular", "degree": 4},
    "network": {
        "links": {"name": "uniform", "uplink_mbps": 100, "downlink_mbps": 100, "latency_ms": 20},
        "compression": {"name": "none"},
    },
    "devices": {"name": "estimated", "device": "laptop_cpu"},
    "evaluation": {},
    "records": {},
}
"""Defaults of sections and parts that a scenario may leave out."""

WHY: dict[str, str] = {
    "partition": "every node has as many samples as any other, drawn evenly",
    "shift": "clusters do not differ unless the scenario sets a shift",
    "training.optimizer": "plain SGD, which the algorithms are defined with",
    "topology": "a sparse connected graph in which all nodes have the same degree",
    "network.links": "the same links for all nodes, a household's fiber",
    "network.compression": "no compression",
    "devices": "the operations of the model on a common device",
}
"""Why these parts."""


def to_plain(scenario: Scenario) -> dict[str, Any]:
    """Return a scenario as plain YAML data with every default written out."""
    return {key: _plain(key, getattr(scenario, key)) for key in Scenario.model_fields}


def _plain(key: str, value: Any) -> Any:
    if key in parts.LISTED:
        return [parts.to_plain(key, one) for one in value]
    if value is not None and key in parts.TABLES:
        return parts.to_plain(key, value)
    if isinstance(value, BaseModel):
        return {name: _plain(name, getattr(value, name)) for name in type(value).model_fields}
    return parts.plain(value)


class _Representer(RoundTripRepresenter):
    """Writes `null` where ruamel.yaml writes nothing, and lists in flow style."""

    def represent_null(self, value: None) -> Node:
        return self.represent_scalar("tag:yaml.org,2002:null", "null")

    def represent_flow(self, value: list) -> Node:
        return self.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=True)


_Representer.add_representer(type(None), _Representer.represent_null)
_Representer.add_representer(list, _Representer.represent_flow)


def to_yaml(scenario: Scenario) -> str:
    """Return YAML with every default written out; it loads to an equal scenario."""
    yaml = YAML(typ="rt", pure=True)
    yaml.width = 120
    yaml.Representer = _Representer
    out = io.StringIO()
    yaml.dump(to_plain(scenario), out)
    return out.getvalue()


def digest(scenario: Scenario) -> str:
    """Return 8 hex digits of the scenario without its name, description and published numbers.

    They cover the contents of user files, but not their folders, and the source of classes passed from Python.
    """
    plain = to_plain(scenario).items()
    said = {key: mapped(value, _by_contents) for key, value in plain if key not in ("name", "description", "paper")}
    given = [own for own in origins(scenario) if own.get("source")]
    if given:
        said["given"] = [[own["kind"], own["name"], own["sha256"]] for own in given]
    return hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:8]


def _by_contents(value: Any) -> Any:
    """Replace the path of a user file by its name and SHA-256."""
    return f"{own_code.short(value)} {own_code.digest_of(value)}" if own_code.is_place(value) else value
