"""Quasi-global momentum: the momentum of a node follows the change of its mixed models, not of its own gradients.

Source: Lin, Karimireddy, Stich, Jaggi, "Quasi-Global Momentum: Accelerating Decentralized Deep Learning on
Heterogeneous Data", ICML 2021, Algorithm 1 (QG-DSGDm), with one number for beta and mu:

    x_i(t+1/2) := x_i(t) - a (b m_i(t-1) + g_i(t));   x_i(t+1) := sum_j w_ij x_j(t+1/2);
    m_i(t) := b m_i(t-1) + (1 - b) (x_i(t) - x_i(t+1)) / a,   m_i(-1) = 0.

All local steps use the momentum of the previous round, and the change is divided by their number. Buffers (BatchNorm
statistics) are mixed with the model and have no momentum. The optimizer adds its own momentum (training.momentum), so
leave it at 0. The mixing matrix is D-PSGD's; the weights of neighbors that are offline, or whose message is lost or
late, are added to the node's own weight.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Lt

from ddlsim.algorithms.base import GraphKind, Graphs
from ddlsim.algorithms.rounds import ModelState, MomentumState, SharedModel, merge_known
from ddlsim.node.node import Model, Node, Steps


@dataclass(frozen=True, kw_only=True)
class QGM(SharedModel):
    """Quasi-global momentum (QG-DSGDm): D-PSGD with momentum along the change of mixed models.

    Args:
        momentum: b, the weight of the momentum in a step and of its past in the next momentum.
        nesterov: whether a step follows g + b (b m + g) in place of b m + g (QG-DSGDm-N).
    """

    state_type: ClassVar[type[ModelState]] = MomentumState  # m times the run's first learning rate
    expects_graph: ClassVar[GraphKind] = "static"
    graphs: ClassVar[Graphs] = "balanced"
    splits_local_steps: ClassVar[bool] = True
    needs_only_sums: ClassVar[bool] = True
    may_change: ClassVar[frozenset[str]] = frozenset({"momentum", "nesterov"})

    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    nesterov: bool = False

    def round(self, node: Node, state: MomentumState, round_num: int) -> Steps:
        start, past, steps = state.model, state.momentum, node.local_steps
        rates = node.learning_rates(steps)
        factor = math.fsum(rates) / len(rates) / node.learning_rate if node.learning_rate else 1.0
        last, ahead = node.trained_values(start), self.momentum if self.nesterov else 0.0

        def push(model: Model) -> Model:
            nonlocal last
            terms = [node.trained_values(model[0]), last if self.nesterov else None, past]
            last = merge_known(node, terms, [1.0 + ahead, -ahead, -factor * self.momentum * (ahead or 1.0)])
            return (node.with_trained_values(model[0], last),)

        (half,) = yield node.train((start,), steps, after_step=push)
        state.model = half  # a node that leaves from here on has done its local steps, without an exchange
        node.send(node.peers(round_num), round_num, model=half)
        inbox = yield node.receive(round_num)
        state.model = node.mix(half, {m.src: m.payload["model"] for m in inbox}, round_num)
        change = (1 - self.momentum) / (steps * factor) if factor > 1e-7 else 0.0
        terms = [past, node.trained_values(start), node.trained_values(state.model)]
        state.momentum = merge_known(node, terms, [self.momentum, change, -change])
