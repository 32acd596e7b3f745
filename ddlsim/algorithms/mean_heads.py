"""Base class of algorithms whose server averages heads while cores remain at their nodes. Not an algorithm itself.

A node trains, sends its head, and continues with the plain mean of all heads that the server received. It is tested
with the head that it has trained, before the new mean arrives, as in MAPL's code (Mukherjee, 2023). Cores may have any
architecture if all heads have the same one. Nodes that are offline are left out of the mean. A node that joins later,
returns, or gets no mean in time first fetches the current mean. As with FedAvg, a node waits for the mean of its round
in either mode.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from ddlsim.algorithms.base import Algorithm
from ddlsim.node.candidates import EvaluationCandidates

if TYPE_CHECKING:
    from ddlsim.learning.bank import Params
    from ddlsim.learning.job_types import Model
    from ddlsim.learning.training_inputs import Objective
    from ddlsim.node.node import Node, Steps


@dataclass
class State:
    """A node's memory: the model it continues with, and the one that it trained last; the server's have no parts, but
    it stores the mean head.
    """

    model: "Model" = ()
    trained: "Model" = ()
    mean: "Params | None" = None


@dataclass(frozen=True, kw_only=True)
class MeanHeads(Algorithm):
    """Round in which a server averages heads; the subclass defines the training."""

    exchanges: ClassVar[Literal["models", "vectors", "nothing"]] = "vectors"
    has_server: ClassVar[bool] = True
    rejoins_after_absence: ClassVar[bool] = True
    needs_core: ClassVar[bool] = True

    def objective(self) -> "Objective | None":
        """Loss of local training; None: the task's loss."""
        return None

    @property
    def needs_only_sums(self) -> bool:
        return True

    def start(self, node: "Node") -> State:
        if node.is_server:
            return State()
        (model,) = node.init_models()
        return State(model, model)

    def join(self, node: "Node", state: State, round_num: int) -> "Steps":
        """Fetch the mean of heads, if there is one and the server answers in time."""
        answers = yield node.pull(node.peers(round_num), round_num)
        for answer in answers:
            core, head = state.model
            state.model = core, answer.payload.get("head", head)

    def round(self, node: "Node", state: State, round_num: int) -> "Steps":
        if node.is_server:
            if state.mean is None:
                node.publish(round_num)
            else:
                node.publish(round_num, head=state.mean)
            inbox = yield node.receive(round_num, wait=True)
            if inbox:
                heads = {m.src: m.payload["head"] for m in inbox}
                state.mean = node.aggregate(heads, dict.fromkeys(heads, 1 / len(heads)))
                node.send([m.src for m in inbox], round_num, head=state.mean)
            return
        core, head = state.trained = yield node.train(state.model, objective=self.objective())
        node.send(node.peers(round_num), round_num, head=head)
        inbox = yield node.receive(round_num, wait=True)
        for message in inbox:
            head = message.payload["head"]
        state.model = core, head

    def serving(self, node: "Node", state: State) -> EvaluationCandidates | None:
        return None if node.is_server else EvaluationCandidates([state.trained])
