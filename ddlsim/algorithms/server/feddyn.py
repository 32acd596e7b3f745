"""FedDyn: a dynamic regularizer aligns the minima of local losses with the minimum of all nodes.

Source: Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama, "Federated learning based on dynamic regularization",
ICLR 2021, Algorithm 1. Node k minimizes L_k(y) - <g_k, y> + alpha / 2 |y - x|^2 from the server's x, then sets g_k :=
g_k - alpha (y - x). The server, with N nodes of which it has received S, sets

    h := h - alpha / N sum_S (y - x),    x := mean_S y - h / alpha.

Here a node keeps c_k = -g_k, a control variate of its gradients, and the server s = -h / alpha. Both start at 0.
Offline nodes and nodes that are not drawn keep their c_k. Buffers (BatchNorm statistics) are averaged. Late nodes are
as in fedavg.py.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Gt, Le

from ddlsim.algorithms.rounds import ServerRounds
from ddlsim.node.node import Message, Model, Node, Params, Verb


@dataclass
class State:
    """A node's memory, or the server's.

    Args:
        model: the node's current model; the server's x.
        control: c_k; on the server s; None: 0.
    """

    model: Params
    control: Params | None = None


@dataclass(frozen=True, kw_only=True)
class FedDyn(ServerRounds):
    """Federated learning with dynamic regularization.

    Args:
        alpha: weight of the regularizer, above 0. The paper's are 0.1, 0.01 and 0.001.
    """

    one_start: ClassVar[bool] = True
    alpha: Annotated[float, Gt(0), Le(1000)] = 0.01

    def start(self, node: Node) -> State:
        ((model,),) = node.init_models(whole=True)
        return State(model)

    def local_update(self, node: Node, state: State) -> Generator[Verb, Any, dict[str, Any]]:
        start = state.model
        (state.model,) = yield node.train((start,), proximal=self.alpha, control=state.control)
        change = node.trained_values(node.merge([state.model, start], [self.alpha, -self.alpha]))
        state.control = change if state.control is None else node.merge([state.control, change], [1.0, 1.0])
        return {"model": state.model}

    def server_update(self, node: Node, state: State, inbox: Sequence[Message]) -> None:
        models = {m.src: m.payload["model"] for m in inbox}
        average = node.aggregate(models, dict.fromkeys(models, 1 / len(models)))
        share = len(models) / node.num_nodes
        change = node.trained_values(node.merge([average, state.model], [share, -share]))
        state.control = change if state.control is None else node.merge([state.control, change], [1.0, 1.0])
        values = node.merge([node.trained_values(average), state.control], [1.0, 1.0])
        state.model = node.with_trained_values(average, values)

    def server_result(self, state: State) -> dict[str, Any]:
        return {"model": state.model}

    def apply_result(self, state: State, result: Mapping[str, Any]) -> None:
        state.model = result["model"]

    def tested_model(self, state: State) -> Model:
        return (state.model,)
