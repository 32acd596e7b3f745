"""IFCA: a server keeps one model per cluster, and each node trains the one with its lowest loss.

Source: Ghosh, Chung, Yin, Ramchandran, "An efficient framework for clustered federated learning", NeurIPS 2020,
Algorithm 1 with model averaging. The server sends all k models; a node computes their losses on its training samples,
trains the best one, and sends it with its number. The server averages the models of each number, by samples as in
FedAvg; a model that no node has chosen is unchanged. Evaluations test the server's current version of the model that a
node chose last. Averages leave out offline nodes. `facade` is IFCA for heads, without a server.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge

from ddlsim.algorithms.rounds import ServerRounds
from ddlsim.node.node import Message, Model, Node, Params, Verb


@dataclass
class State:
    """A node's memory, or the server's: the models of all clusters, by number, and the number that the node chose."""

    models: dict[int, Params]
    chosen: int = 0


@dataclass(frozen=True, kw_only=True)
class IFCA(ServerRounds):
    """Clustered federated averaging.

    Args:
        models: k: number of models.
        loss_batches: mini-batches on which models are compared; null: all training samples of the node.
    """

    one_start: ClassVar[bool] = True
    tests_server_model: ClassVar[bool] = False
    models: Annotated[int, Ge(1)] = 2
    loss_batches: Annotated[int, Ge(1)] | None = None

    def start(self, node: Node) -> State:
        return State({number: model for number, (model,) in enumerate(node.init_models(self.models, whole=True))})

    def local_update(self, node: Node, state: State) -> Generator[Verb, Any, dict[str, Any]]:
        models = [(model,) for model in state.models.values()]
        losses = yield node.losses(models, self.loss_batches, common=True)
        state.chosen = min(state.models, key=losses.__getitem__)
        (state.models[state.chosen],) = yield node.train(models[state.chosen])
        return {"model": state.models[state.chosen], "number": state.chosen, "samples": node.num_samples}

    def server_update(self, node: Node, state: State, inbox: Sequence[Message]) -> None:
        for number in state.models:
            own = [m.payload | {"node": m.src} for m in inbox if m.payload["number"] == number]
            total = sum(sent["samples"] for sent in own)
            if own:
                weights = {sent["node"]: sent["samples"] / total for sent in own}
                state.models[number] = node.aggregate({sent["node"]: sent["model"] for sent in own}, weights)

    def server_result(self, state: State) -> dict[str, Any]:
        return {"models": dict(state.models)}

    def apply_result(self, state: State, result: Mapping[str, Any]) -> None:
        state.models = dict(result["models"])

    def tested_model(self, state: State) -> Model:
        return (state.models[state.chosen],)
