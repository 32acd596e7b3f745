"""FedAvg: a server averages the models that all nodes have trained, and returns the average to them.

Source: McMahan, Moore, Ramage, Hampson, Aguera y Arcas, "Communication-efficient learning of deep networks from
decentralized data", AISTATS 2017, Algorithm 1; `clients_per_round` is C K, or C. The average is of whole models,
BatchNorm statistics included, over the nodes whose models arrive: offline nodes are left out. A round ends with the new
average, which is tested. In the first round all nodes have the same model, so none needs to fetch it; a node that joins
later, or returns, first fetches the average with which the other nodes start its round.

The server's rounds set the pace of the run. A node that is too late for protocol.deadline_s, or that gets no average
because a message was lost, ends its training and joins the server's current round: it fetches the current average
first. Its late model is discarded, or counts in the server's current round with protocol.late_messages keep.
Evaluations do not wait for late nodes; a late node is tested with its model at that time.

In `mode: async` too a node waits for the new average. A node that continued without it would train a second chain of
models, and each average would overwrite a newer model with an older one.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ddlsim.algorithms.rounds import ServerRounds, ServerState
from ddlsim.node.node import Message, Node, Params, Verb


@dataclass
class State(ServerState):
    """A node's memory, or the server's.

    Args:
        model: the model, whole, as a tuple of one; the server's has no parts before its first average, unless nodes are
            tested with it.
        average: the server's average.
    """

    average: Params | None = None


@dataclass(frozen=True, kw_only=True)
class FedAvg(ServerRounds):
    """Federated averaging by a server.

    Args:
        weights: samples: a model's weight is its node's number of samples (equal weights if nodes are drawn by their
            samples, which would count twice); uniform: equal weights.
    """

    state_type: ClassVar[type[ServerState]] = State
    may_change: ClassVar[frozenset[str]] = frozenset({"weights"})
    one_start: ClassVar[bool] = True
    needs_only_sums: ClassVar[bool] = True
    weights: Literal["samples", "uniform"] = "samples"

    def local_update(self, node: Node, state: State) -> Generator[Verb, Any, dict[str, Any]]:
        (model,) = state.model = yield self.local_training(node, state)
        return {"model": model, "samples": node.num_samples}

    def local_training(self, node: Node, state: State) -> Verb:
        """Run the local steps of a round."""
        return node.train(state.model)

    def server_update(self, node: Node, state: State, inbox: Sequence[Message]) -> None:
        state.average = node.aggregate({m.src: m.payload["model"] for m in inbox}, self.weights_of(inbox))
        state.model = (state.average,)

    def weights_of(self, inbox: Sequence[Message]) -> dict[int, float]:
        """Return the weight of each received model; they sum to 1."""
        drawn_by_samples = self.clients_per_round is not None and self.sample_by == "samples"
        by_samples = self.weights == "samples" and not drawn_by_samples
        shares = {m.src: m.payload["samples"] if by_samples else 1 for m in inbox}
        total = sum(shares.values())
        return {peer: share / total for peer, share in shares.items()}

    def server_result(self, state: State) -> dict[str, Any]:
        return {} if state.average is None else {"model": state.average}

    def apply_result(self, state: State, result: Mapping[str, Any]) -> None:
        state.model = (result["model"],)
