"""FedBuff: an asynchronous server that steps along the mean of every K changes.

Source: Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba, "Federated learning with buffered asynchronous
aggregation", AISTATS 2022, Algorithm 1. A node sends the change D_i = x_i - x_tau of its training from the server's
model x_tau. When K changes have arrived the server sets

    x := x + eta_g / K sum_i D_i / sqrt(1 + t - tau_i),

where t and tau count such updates. fedasync.py describes tasks, `concurrency` (M_c), and nodes that go offline.
Differences from the paper: buffers (BatchNorm statistics) change like trained values; the server has no momentum, as in
Algorithm 1, unlike in the paper's experiments.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le

from ddlsim.algorithms.server.fedasync import AsynchronousServer, State
from ddlsim.node.node import Node, Params, Verb


@dataclass(frozen=True, kw_only=True)
class FedBuff(AsynchronousServer):
    """Buffered asynchronous aggregation.

    Args:
        buffer_size: K: changes per update of the server.
        server_rate: eta_g.
    """

    buffer_size: Annotated[int, Ge(1)] = 10
    server_rate: Annotated[float, Gt(0), Le(1000)] = 1.0

    def local_update(self, node: Node, state: State) -> Generator[Verb, Any, Params]:
        (trained,) = yield node.train((state.model,))
        return node.merge([trained, state.model], [1.0, -1.0])

    def server_update(self, node: Node, state: State, result: Params, version: int) -> None:
        weight = (1 + state.version - version) ** -0.5
        state.buffer.append(node.merge([result], [weight]))
        if len(state.buffer) == self.buffer_size:
            step = self.server_rate / self.buffer_size
            state.model = node.merge([state.model, *state.buffer], [1.0, *[step] * self.buffer_size])
            state.version, state.buffer = state.version + 1, []
