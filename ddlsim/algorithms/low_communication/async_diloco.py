"""Asynchronous DiLoCo: a server steps along each change when it arrives, with momentum after every N changes.

Source: Liu, Chhaparia, Douillard, Kale, Rusu, Shen, Szlam, Ranzato, "Asynchronous local-SGD training for language
modeling", arXiv 2401.09135. A node takes H local steps (training.local_steps) from the server's model phi, sends its
change D = theta - phi, and continues from the server's answer, the current phi. Delayed Nesterov: the server sets

    phi := phi + a D / N,                                                 but with every N-th change
    m := b m + (the sum of the last N changes) / N,   phi := phi + a (D / N + b m).

With N = 1 it is DiLoCo's outer step along single changes. The paper's momentum activation c is 0, its default. Dynamic
local steps: a node whose steps take v times as long as the fastest node's takes floor(H / v), so that nodes send
equally often; each still does the scenario's rounds. Here nodes measure these times: the first round has H steps, and
the server knows the lowest time that it has received.

Buffers (BatchNorm statistics) move by D / N. The learning rate depends on a node's rounds and steps, not on the
server's updates; a schedule per step has H steps a round, so slower nodes do not reach its end with dynamic steps.
A node that joins, or returns without its state, fetches phi; one that returns with it repeats its round from an older
phi. A node without an answer (a lost message, an offline server) continues from its own model.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Gt, Lt

from ddlsim.algorithms.rounds import AnsweringServer, ModelState, merge_known
from ddlsim.node.node import Message, Node, Params, Steps, Verb


@dataclass
class State(ModelState):
    """A node's memory, or a server's.

    Args:
        model: theta, or the server's phi.
        momentum: on a server, m; None: 0.
        buffered: on a server, the sum of the changes since its last change of m; None: 0.
        updates: on a server, the number of changes so far.
        step_s: on a server, the lowest seconds per step of its nodes.
        steps: on a node, its next number of local steps; None: training.local_steps.
    """

    momentum: Params | None = None
    buffered: Params | None = None
    updates: int = 0
    step_s: float = float("inf")
    steps: int | None = None


@dataclass(frozen=True, kw_only=True)
class AsyncDiLoCo(AnsweringServer):
    """Asynchronous DiLoCo: a server with delayed Nesterov momentum, and local steps by the speed of devices.

    Args:
        outer_rate: a, learning rate of the server.
        outer_momentum: b, weight of the previous momentum in the next one.
        buffer_size: N, changes per change of the momentum; null: the number of nodes.
        dynamic_steps: whether slower nodes take fewer local steps.
    """

    state_type: ClassVar[type[ModelState]] = State

    outer_rate: Annotated[float, Gt(0)] = 0.7
    outer_momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    buffer_size: Annotated[int, Ge(1)] | None = None
    dynamic_steps: bool = False

    def join(self, node: Node, state: State, round_num: int) -> Steps:
        for answer in (yield node.exchange(node.peers(round_num), round_num)):
            state.model = answer.payload["model"]

    def round(self, node: Node, state: State, round_num: int) -> Steps:
        start_s, steps = node.now_s, node.local_steps if state.steps is None else state.steps
        (trained,) = yield node.train((state.model,), steps)
        change, step_s = node.merge([trained, state.model], [1.0, -1.0]), (node.now_s - start_s) / steps
        answer = yield from self.submit(node, state, {"change": change, "step_s": step_s}, round_num)
        state.model = answer.get("model", trained)
        if self.dynamic_steps and answer and step_s:
            state.steps = max(1, int(node.local_steps * answer["step_s"] / step_s + 1e-9))

    def submit(self, node: Node, state: Any, payload: Any, round_num: int) -> Generator[Verb, Any, Any]:
        """Send a change to the server; return its answer, empty if there is none."""
        answers = yield node.exchange(node.peers(round_num), round_num, **payload)
        return answers[0].payload if answers else {}

    def answer(self, node: Node, state: Any, offer: Message) -> Mapping[str, Any]:
        """Step along a node's change, if the offer has one; return the current model."""
        size = self.buffer_size or node.num_nodes
        return self.respond(node, state, offer.payload, self.outer_rate, self.outer_momentum, size)

    def respond(
        self, node: Node, server: State, payload: Mapping[str, Any], rate: float, momentum: float, size: int
    ) -> dict[str, Any]:
        """Take a server's delayed Nesterov step along a change, if the payload has one; return its answer."""
        if "change" in payload:
            values = node.trained_values(payload["change"])
            server.buffered = merge_known(node, [server.buffered, values], [1.0, 1.0])
            server.updates += 1
            moves, weights = [node.trained_values(server.model), values], [1.0, rate / size]
            if server.updates % size == 0:
                server.momentum = merge_known(node, [server.momentum, server.buffered], [momentum, 1 / size])
                server.buffered = None
                moves, weights = [*moves, server.momentum], [*weights, rate * momentum]
            moved = node.merge([server.model, payload["change"]], [1.0, 1 / size])
            server.model = node.with_trained_values(moved, node.merge(moves, weights))
        server.step_s = min(server.step_s, payload.get("step_s", server.step_s))
        return {"model": server.model, "step_s": server.step_s}
