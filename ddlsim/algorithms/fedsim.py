"""FedSim: personal cores, heads averaged by a server; both trained at the same time.

Source: Pillutla, Malik, Mohamed, Rabbat, Sanjabi, Xiao, "Federated learning with partial model personalization", ICML
2022, Algorithm 2 (simultaneous update), with the part that MAPL's code shares (Mukherjee, 2023): the head. Plain mean
over all nodes in every round. As there, a node is tested with the head that it has trained itself, before the new mean
comes. Cores may be of any architecture, as long as heads are alike.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ddlsim.engine.evaluation import Serving

if TYPE_CHECKING:
    from ddlsim.engine.node import Node
    from ddlsim.engine.simulation import Steps
    from ddlsim.learning.kinds import Model


@dataclass
class State:
    """A node's memory: the model it goes on with, and the one that it trained last; the server has none."""

    model: "Model | None"
    trained: "Model | None"


@dataclass(frozen=True, kw_only=True)
class FedSim:
    """Partial personalisation: a server averages heads, cores stay with their nodes."""

    has_server: ClassVar[bool] = True

    def start(self, node: "Node") -> State:
        if node.is_server:
            return State(None, None)
        (model,) = node.init_models()
        return State(model, model)

    def round(self, node: "Node", state: State, round_num: int) -> "Steps":
        if node.is_server:
            inbox = yield node.receive(round_num)
            if inbox:
                mean = node.merge([m.payload["head"] for m in inbox], [1 / len(inbox)] * len(inbox))
                node.send([m.src for m in inbox], round_num, head=mean)
            return
        core, head = state.trained = yield node.train(state.model)
        node.send(node.peers(round_num), round_num, head=head)
        inbox = yield node.receive(round_num)
        for message in inbox:
            head = message.payload["head"]
        state.model = core, head

    def serving(self, node: "Node", state: State) -> Serving | None:
        return None if node.is_server else Serving([state.trained])
