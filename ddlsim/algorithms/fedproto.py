"""FedProto: nodes share the mean features of their classes; a server averages them class by class.

Source: Tan, Long, Liu, Zhou, Lu, Jiang, Zhang, "FedProto: Federated prototype learning across heterogeneous clients",
AAAI 2022, as MAPL's code runs it (Mukherjee, 2023): local loss cross-entropy plus `proto_weight` times the mean squared
distance of features from the global prototype of their class (nothing for classes without one); local prototypes are
the class means of the features seen in the last local epoch, as training went; the server takes plain means over the
nodes that hold a class. Models are tested with the classifier, as that code does. A message holds a prototype for each
of the node's classes, with its label. Nodes that are offline are left out of the means. A node that joins later,
returns, or gets no prototypes in time first fetches the current ones. As with FedAvg, a node waits for the prototypes
of its round in either mode.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge

from ddlsim.algorithms.base import Algorithm
from ddlsim.learning.training_inputs import LocalStep, Objective
from ddlsim.node.candidates import EvaluationCandidates

if TYPE_CHECKING:
    import torch

    from ddlsim.learning.bank import Params
    from ddlsim.learning.job_types import Model
    from ddlsim.node.node import Node, Steps


@dataclass
class State:
    """A node's memory, and the server's: its model (without parts), and the global prototypes it has."""

    model: "Model" = ()
    prototypes: "dict[int, Params]" = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FedProto(Algorithm):
    """Class means of features averaged by a server.

    Args:
        proto_weight: weight of the distance from the global prototypes.
    """

    may_change: ClassVar[frozenset[str]] = frozenset({"proto_weight"})
    exchanges: ClassVar[Literal["models", "vectors", "nothing"]] = "vectors"
    has_server: ClassVar[bool] = True
    rejoins_after_absence: ClassVar[bool] = True
    needs_core: ClassVar[bool] = True
    own_loss: ClassVar[bool] = True
    needs_classes: ClassVar[bool] = True
    proto_weight: Annotated[float, Ge(0)] = 0.1

    def start(self, node: "Node") -> State:
        if node.is_server:
            return State()
        (model,) = node.init_models()
        return State(model)

    def join(self, node: "Node", state: State, round_num: int) -> "Steps":
        """Fetch the global prototypes, if the server answers in time."""
        answers = yield node.pull(node.peers(round_num), round_num)
        for answer in answers:
            state.prototypes = answer.payload["prototypes"]

    def round(self, node: "Node", state: State, round_num: int) -> "Steps":
        if node.is_server:
            node.publish(round_num, prototypes=state.prototypes, labels=list(state.prototypes))
            inbox = yield node.receive(round_num, wait=True)
            if inbox:
                means = state.prototypes = self._average(node, {m.src: m.payload["prototypes"] for m in inbox})
                node.send([m.src for m in inbox], round_num, prototypes=means, labels=list(means))
            return
        objective = Objective(self.local_loss, targets=state.prototypes, class_means=True)
        state.model, means = yield node.train(state.model, objective=objective)
        node.send(node.peers(round_num), round_num, prototypes=means, labels=list(means))
        inbox = yield node.receive(round_num, wait=True)
        for message in inbox:
            state.prototypes = message.payload["prototypes"]

    def serving(self, node: "Node", state: State) -> EvaluationCandidates | None:
        return None if node.is_server else EvaluationCandidates([state.model])

    def local_loss(self, step: LocalStep) -> "torch.Tensor":
        """Cross-entropy plus the weighted distance of features from the global prototype of their class."""
        from ddlsim.learning import losses

        features = step.module.core(step.images)
        step.collect(features, step.labels)
        distance = losses.distance_to_targets(features, step.labels, step.targets)
        return step.task_loss(step.module.head(features), step.labels) + self.proto_weight * distance

    def _average(self, node: "Node", received: "dict[int, dict[int, Params]]") -> "dict[int, Params]":
        """Return each class's mean over the nodes that hold it."""
        means = {}
        for label in sorted({label for prototypes in received.values() for label in prototypes}):
            held = {peer: prototypes[label] for peer, prototypes in received.items() if label in prototypes}
            means[label] = node.aggregate(held, dict.fromkeys(held, 1 / len(held)))
        return means
