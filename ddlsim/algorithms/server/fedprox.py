"""FedProx: FedAvg with local losses that keep models near their start.

Source: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated optimization in heterogeneous networks", MLSys 2020,
Algorithm 2: node k minimizes F_k(w) + mu / 2 |w - w^t|^2, w^t being the server's model, by SGD from w^t. The paper's
other idea, that slow nodes send their model after fewer epochs, is protocol.deadline_s with training.local_steps here:
late models are left out, as in FedAvg. With client sampling, as in the paper, a node is drawn with a probability in
proportion to its samples, and the drawn nodes' models have equal weights.

Without a server any algorithm gets the same term by the scenario's key training.proximal; w^t is then the model at the
start of a node's local training.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le

from ddlsim.algorithms.server.fedavg import FedAvg, State
from ddlsim.node.node import Node, Verb


@dataclass(frozen=True, kw_only=True)
class FedProx(FedAvg):
    """Federated averaging with a proximal term in the local losses.

    Args:
        mu: weight of the term, 0 or more; 0 is FedAvg. The paper's are 0.001, 0.01, 0.1 and 1.
    """

    sample_by: Literal["uniform", "samples"] = "samples"
    mu: Annotated[float, Ge(0), Le(1e30)] = 0.01

    def local_training(self, node: Node, state: State) -> Verb:
        return node.train(state.model, proximal=self.mu)
