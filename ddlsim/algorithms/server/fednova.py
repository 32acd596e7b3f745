"""FedNova: FedAvg that divides each node's change by its amount of local work.

Source: Wang, Liu, Liang, Joshi, Poor, "Tackling the objective inconsistency problem in heterogeneous federated
optimization", NeurIPS 2020, equation 6 and Algorithm 1. A node's change x_i - x is a_i times its mean gradient, where
a_i is the sum of the learning rates of its updates (the paper's eta tau_i with a constant rate). With FedAvg's weights
p_i the server sets

    x := x + (sum_i p_i a_i) sum_i p_i (x_i - x) / a_i,

so nodes with more steps (training.epochs over more samples) do not pull x towards their own minima. The paper's other
a_i, for momentum and proximal terms, are not here: use plain SGD. Buffers (BatchNorm statistics) are averaged. Offline
and late nodes are as in fedavg.py.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ddlsim.algorithms.rounds import with_sum
from ddlsim.algorithms.server import fedavg
from ddlsim.node.node import Message, Node, Verb


@dataclass(frozen=True, kw_only=True)
class FedNova(fedavg.FedAvg):
    """Normalized averaging of nodes with different numbers of local steps."""

    needs_only_sums: ClassVar[bool] = False
    server_steps_from_model: ClassVar[bool] = True

    def local_update(self, node: Node, state: fedavg.State) -> Generator[Verb, Any, dict[str, Any]]:
        work = sum(node.learning_rates())
        return (yield from super().local_update(node, state)) | {"work": work}

    def server_update(self, node: Node, state: fedavg.State, inbox: Sequence[Message]) -> None:
        (before,) = state.model
        super().server_update(node, state, inbox)  # the average, whose buffers remain
        shares, work = self.weights_of(inbox), {m.src: m.payload["work"] for m in inbox}
        common = sum(shares[peer] * work[peer] for peer in shares)
        changes = {
            m.src: node.merge([m.payload["model"], before], [scale, -scale])
            for m in inbox
            for scale in [common / work[m.src] if work[m.src] else 0.0]
        }
        state.average = with_sum(node, state.model[0], [before, node.aggregate(changes, shares)], [1.0, 1.0])
        state.model = (state.average,)
