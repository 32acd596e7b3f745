"""DiLoCo: nodes take H local steps from a common model, which then takes an outer step along their mean change.

Source: Douillard, Feng, Rusu, Chhaparia, Donchev, Kuncoro, Ranzato, Szlam, Shen, "DiLoCo: Distributed low-communication
training of language models", arXiv 2311.08105, Algorithm 1, with Nesterov momentum as outer optimizer. With the changes
D_i = theta_i - phi of H local steps (training.local_steps) from the common model phi,

    D := mean_i D_i,   m := b m + D,   phi := phi + a (D + b m).

The outer gradient of the paper is -D. The inner optimizer is training.optimizer; the paper's is AdamW, whose state
stays with the node (training.optimizer_state: kept). With a = 1 and b = 0 it is local SGD.

`overlap`: Kale, Douillard, Donchev, "Eager updates for overlapped communication and computation in DiLoCo", arXiv
2502.12996. The all-reduce of a round's changes runs during the next round. `delayed`: phi takes its step along the mean
D(t-1) of the previous round; `eager`: along D(t-1) + (D_i(t) - D_i(t-1)) / n, with the node's change of this round in
place of its previous one, so the common models of n nodes differ by the last term.

Buffers (BatchNorm statistics) are averaged, not stepped. Offline nodes are described in replicas.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Lt

from ddlsim.algorithms.low_communication.replicas import Replicas
from ddlsim.algorithms.rounds import ModelState, merge_known
from ddlsim.node.collective_verbs import Handle
from ddlsim.node.node import Node, Params, Steps


@dataclass
class State(ModelState):
    """A node's memory.

    Args:
        model: phi.
        momentum: m; None: 0.
        change: with `overlap`, the node's change of the round before.
        sent: its all-reduce.
        terms: rows of the last outer step; while one node holds them, other nodes get them for the same step.
    """

    momentum: Params | None = None
    change: Params | None = None
    sent: Handle | None = None
    terms: tuple[Params, ...] = ()


@dataclass(frozen=True, kw_only=True)
class OuterNesterov(Replicas):
    """Base of methods with an outer step along a mean change.

    Args:
        outer_rate: a, learning rate of the outer step.
        outer_momentum: b, weight of the previous momentum in the next one.
        nesterov: whether the step follows D + b m; false: m (heavy ball).
    """

    state_type: ClassVar[type[ModelState]] = State
    shared: ClassVar[tuple[str, ...]] = ("model", "momentum")

    outer_rate: Annotated[float, Gt(0)] = 0.7
    outer_momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    nesterov: bool = True

    def unused_keys(self, rounds: int) -> Iterator[tuple[str, str]]:
        if not self.outer_momentum:
            yield "nesterov", "outer_momentum is 0"

    def outer_step(self, node: Node, state: Any, change: Params) -> None:
        """Move the common model along a mean change, and change its momentum."""
        values, step, b = node.trained_values(change), self.outer_rate, self.outer_momentum
        state.momentum = merge_known(node, [state.momentum, values], [b, 1.0])
        average = node.merge([state.model, change], [1.0, 1.0])
        moves, weights = ([values, state.momentum], [step, step * b]) if self.nesterov else ([state.momentum], [step])
        old = node.trained_values(state.model)
        moved = node.merge([old, *moves], [1.0, *weights])
        state.model, state.terms = node.with_trained_values(average, moved), (change, values, average, old, moved)


@dataclass(frozen=True, kw_only=True)
class DiLoCo(OuterNesterov):
    """DiLoCo: local steps, then an outer Nesterov step along the mean change of all nodes.

    Args:
        overlap: none: nodes wait for the mean; delayed, eager: they apply it one round later.
    """

    overlap: Literal["none", "delayed", "eager"] = "none"

    def round(self, node: Node, state: State, round_num: int) -> Steps:
        self.offer(node, state, round_num)
        (trained,) = yield node.train((state.model,))
        change = node.merge([trained, state.model], [1.0, -1.0])
        if self.overlap == "none":
            mean = yield self.mean(node, change, round_num)
            self.outer_step(node, state, mean)
            return
        before, state.change = state.change, change
        arriving, state.sent = state.sent, node.begin(self.mean(node, change, round_num))
        mean = None if arriving is None else (yield node.wait(arriving))
        share = 1 / node.num_nodes if self.overlap == "eager" else 0.0
        terms = {"mean": (mean, 1.0), "own": (change, share), "older": (before if mean is not None else None, -share)}
        known = [(params, weight) for params, weight in terms.values() if params is not None and weight]
        if known:
            self.outer_step(node, state, node.merge(*zip(*known, strict=True)))
