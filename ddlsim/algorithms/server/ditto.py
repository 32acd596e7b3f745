"""Ditto: each node trains a personal model that stays near FedAvg's.

Source: Li, Hu, Beirami, Smith, "Ditto: Fair and robust federated learning through personalization", ICML 2021,
Algorithm 1 with FedAvg as its global solver. After its local steps on the server's w, a node takes as many steps from
its personal v, with the gradient F_k'(v) + lambda (v - w). It sends only its copy of w; evaluations test v. Each round
takes twice the training of FedAvg. Offline nodes keep their v; all else is as in fedavg.py.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Le

from ddlsim.algorithms.server import fedavg
from ddlsim.node.node import Model, Node, Verb


@dataclass
class State(fedavg.State):
    """A node's memory: its copy of the server's model, and its personal model."""

    personal: Model = ()


@dataclass(frozen=True, kw_only=True)
class Ditto(fedavg.FedAvg):
    """FedAvg with a regularized personal model on each node.

    Args:
        pull: lambda: weight of the distance from the server's model, 0 or more; 0: local training. The paper's are
            0.05, 0.1, 0.2, 1 and 2.
    """

    tests_server_model: ClassVar[bool] = False
    pull: Annotated[float, Ge(0), Le(1e30)] = 0.1

    def start(self, node: Node) -> State:
        model = super().start(node).model
        return State(model, personal=model)

    def local_update(self, node: Node, state: Any) -> Generator[Verb, Any, dict[str, Any]]:
        (common,), (personal,) = state.model, state.personal
        payload = yield from super().local_update(node, state)
        # lambda (v - w) = lambda (v - v_0) + lambda (v_0 - w), v_0 being the model at the start of the training
        towards = node.trained_values(node.merge([personal, common], [self.pull, -self.pull]))
        of_run = 2 * node.rounds * node.local_steps
        state.personal = yield node.train((personal,), proximal=self.pull, control=towards, steps_of_run=of_run)
        return payload

    def local_training(self, node: Node, state: Any) -> Verb:
        return node.train(state.model, steps_of_run=2 * node.rounds * node.local_steps)

    def tested_model(self, state: Any) -> Model:
        return state.personal
