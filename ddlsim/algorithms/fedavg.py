"""FedAvg: a server averages the models that all nodes have trained, and hands the average back.

Source: McMahan, Moore, Ramage, Hampson, Aguera y Arcas, "Communication-efficient learning of deep networks from
decentralized data", AISTATS 2017, Algorithm 1 with all clients in every round (C = 1). The average is of whole models,
BatchNorm statistics included, over the nodes whose models arrive: offline nodes are left out. A round ends with the new
average, which is tested. In the first round all nodes have the same model, so none needs to fetch it; a node that joins
later, or returns, first fetches the average with which the other nodes start its round.

The server's rounds set the pace of the run. A node that is too late for protocol.deadline_s, or that gets no average
because a message was lost, ends its training and joins the server's current round: it fetches the current average
first. Its late model is discarded, or counts in the server's current round with protocol.late_messages keep.
Evaluations do not
wait for late nodes; a late node is tested with its model at that time.

Rounds are synchronous by definition: in `mode: async` too the server waits for the models of a round and a node for the
new average, up to protocol.deadline_s. A node that continued without the answer would train a second chain of models,
and each average would overwrite a newer model with an older one.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from ddlsim.algorithms.base import Algorithm
from ddlsim.node.candidates import EvaluationCandidates

if TYPE_CHECKING:
    from ddlsim.learning.bank import Params
    from ddlsim.learning.job_types import Model
    from ddlsim.node.node import Node, Steps, Verb


@dataclass
class State:
    """A node's memory: its model, whole, as a tuple of one (the server's has no parts); the server's: the average."""

    model: "Model" = ()
    average: "Params | None" = None


@dataclass(frozen=True, kw_only=True)
class FedAvg(Algorithm):
    """Federated averaging by a server.

    Args:
        weights: samples: a model's weight is its node's number of samples; uniform: equal weights.
    """

    may_change: ClassVar[frozenset[str]] = frozenset({"weights"})
    has_server: ClassVar[bool] = True
    one_start: ClassVar[bool] = True
    rejoins_after_absence: ClassVar[bool] = True
    weights: Literal["samples", "uniform"] = "samples"

    @property
    def needs_only_sums(self) -> bool:
        return True

    def start(self, node: "Node") -> State:
        if node.is_server:
            return State()
        (model,) = node.init_models(whole=True)
        return State(model)

    def join(self, node: "Node", state: State, round_num: int) -> "Steps":
        """Fetch the average, if there is one and the server answers in time."""
        answers = yield node.pull(node.peers(round_num), round_num)
        for answer in answers:
            if answer.payload:
                state.model = (answer.payload["model"],)

    def round(self, node: "Node", state: State, round_num: int) -> "Steps":
        if node.is_server:
            if state.average is None:
                node.publish(round_num)
            else:
                node.publish(round_num, model=state.average)
            inbox = yield node.receive(round_num, wait=True)
            if inbox:
                shares = {m.src: m.payload["samples"] if self.weights == "samples" else 1 for m in inbox}
                total = sum(shares.values())
                weights = {peer: share / total for peer, share in shares.items()}
                state.average = node.aggregate({m.src: m.payload["model"] for m in inbox}, weights)
                node.send([m.src for m in inbox], round_num, model=state.average)
            return
        (model,) = state.model = yield self.local_training(node, state)
        node.send(node.peers(round_num), round_num, model=model, samples=node.num_samples)
        inbox = yield node.receive(round_num, wait=True)
        for message in inbox:
            state.model = (message.payload["model"],)

    def local_training(self, node: "Node", state: State) -> "Verb":
        """Run the node's local part of a round."""
        return node.train(state.model)

    def serving(self, node: "Node", state: State) -> EvaluationCandidates | None:
        return None if node.is_server else EvaluationCandidates([state.model])
