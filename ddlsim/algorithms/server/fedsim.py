"""FedSim: personal cores, heads averaged by a server; both trained at the same time.

Source: Pillutla, Malik, Mohamed, Rabbat, Sanjabi, Xiao, "Federated learning with partial model personalization", ICML
2022, Algorithm 2 (simultaneous update), with the part that MAPL's code shares (Mukherjee, 2023): the head.

A node trains, sends its head, and continues with the plain mean of all heads that the server received. It is tested
with the head that it has trained, before the new mean arrives, as in MAPL's code. Cores may have any architecture if
all heads have the same one. Nodes that are offline are left out of the mean. A node that joins later, returns, or gets
no mean in time first fetches the current mean.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ddlsim.algorithms.rounds import ServerRounds, ServerState
from ddlsim.learning.training_inputs import Objective
from ddlsim.node.node import Message, Model, Node, Params, Verb


@dataclass
class State(ServerState):
    """A node's memory: the model it continues with, and the one that it trained last, empty before its first training;
    the server's are empty, but it stores the mean head.
    """

    trained: Model = ()
    mean: Params | None = None


@dataclass(frozen=True, kw_only=True)
class FedSim(ServerRounds):
    """Partial personalization: a server averages heads, cores stay with their nodes."""

    state_type: ClassVar[type[ServerState]] = State
    exchanges: ClassVar[Literal["models", "vectors", "nothing"]] = "vectors"
    needs_core: ClassVar[bool] = True
    needs_only_sums: ClassVar[bool] = True

    def objective(self) -> Objective | None:
        """Loss of local training; None: the task's loss."""
        return None

    def local_update(self, node: Node, state: State) -> Generator[Verb, Any, dict[str, Any]]:
        state.model = state.trained = yield node.train(state.model, objective=self.objective())
        return {"head": state.trained[1]}

    def server_update(self, node: Node, state: State, inbox: Sequence[Message]) -> None:
        heads = {m.src: m.payload["head"] for m in inbox}
        state.mean = node.aggregate(heads, dict.fromkeys(heads, 1 / len(heads)))

    def server_result(self, state: State) -> dict[str, Any]:
        return {} if state.mean is None else {"head": state.mean}

    def apply_result(self, state: State, result: Mapping[str, Any]) -> None:
        state.model = state.model[0], result["head"]

    def tested_model(self, state: State) -> Model:
        return state.trained or state.model
