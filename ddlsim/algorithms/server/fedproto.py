"""FedProto: nodes share the mean features of their classes; a server averages them class by class.

Source: Tan, Long, Liu, Zhou, Lu, Jiang, Zhang, "FedProto: Federated prototype learning across heterogeneous clients",
AAAI 2022, as MAPL's code runs it (Mukherjee, 2023): local loss cross-entropy plus `proto_weight` times the mean squared
distance of features from the global prototype of their class (nothing for classes without one); local prototypes are
the class means of the features seen in the last local epoch, as training went; the server takes plain means over the
nodes that hold a class. Models are tested with the classifier, as that code does. A message holds a prototype for each
of the node's classes, with its label. Nodes that are offline are left out of the means. A node that joins later,
returns, or gets no prototypes in time first fetches the current ones.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from ddlsim.algorithms.rounds import ServerRounds, ServerState
from ddlsim.learning.training_inputs import LocalStep, Objective
from ddlsim.node.node import Message, Node, Params, Verb

if TYPE_CHECKING:
    import torch


@dataclass
class State(ServerState):
    """A node's memory, and the server's: its model (without parts), and the global prototypes it has."""

    prototypes: dict[int, Params] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FedProto(ServerRounds):
    """Class means of features averaged by a server.

    Args:
        proto_weight: weight of the distance from the global prototypes.
    """

    state_type: ClassVar[type[ServerState]] = State
    may_change: ClassVar[frozenset[str]] = frozenset({"proto_weight"})
    exchanges: ClassVar[Literal["models", "vectors", "nothing"]] = "vectors"
    needs_core: ClassVar[bool] = True
    own_loss: ClassVar[bool] = True
    needs_classes: ClassVar[bool] = True
    proto_weight: Annotated[float, Ge(0)] = 0.1

    def local_update(self, node: Node, state: State) -> Generator[Verb, Any, dict[str, Any]]:
        objective = Objective(self.local_loss, targets=state.prototypes, class_means=True)
        state.model, means = yield node.train(state.model, objective=objective)
        return {"prototypes": means, "labels": list(means)}

    def server_update(self, node: Node, state: State, inbox: Sequence[Message]) -> None:
        """Average the prototypes of each class over the nodes that have the class."""
        received = {m.src: m.payload["prototypes"] for m in inbox}
        state.prototypes = {}
        for label in sorted({label for prototypes in received.values() for label in prototypes}):
            of_class = {peer: prototypes[label] for peer, prototypes in received.items() if label in prototypes}
            state.prototypes[label] = node.aggregate(of_class, dict.fromkeys(of_class, 1 / len(of_class)))

    def server_result(self, state: State) -> dict[str, Any]:
        return {"prototypes": state.prototypes, "labels": list(state.prototypes)}

    def apply_result(self, state: State, result: Mapping[str, Any]) -> None:
        state.prototypes = result["prototypes"]

    def local_loss(self, step: LocalStep) -> "torch.Tensor":
        """Cross-entropy plus the weighted distance of features from the global prototype of their class."""
        from ddlsim.learning import losses

        features = step.module.core(step.images)
        step.collect(features, step.labels)
        distance = losses.distance_to_targets(features, step.labels, step.targets)
        return step.task_loss(step.module.head(features), step.labels) + self.proto_weight * distance
