"""NoLoCo: outer steps of random pairs of nodes in place of an all-reduce.

Source: Kolehmainen, Blagoev, Donaghy, Ersoy, Nies, "NoLoCo: No-all-reduce low communication training method for large
models", arXiv 2506.10911. A node takes H local steps (training.local_steps) from its slow model phi_i to theta_i, and
exchanges phi and the change D = theta - phi with its peers of the round, in the paper one random node (topology:
random_matching). With means over the group of node and peers,

    m_i := b m_i + a mean_g D + c (mean_g phi - phi_i),   phi_i := phi_i + m_i,

where the last term reduces the distance between slow models. The paper bounds c by sqrt(n / (2 (n - 1))) b < c <
sqrt(n / (2 (n - 1)) (2 + b^2)) for groups of n. Buffers (BatchNorm statistics) are averaged. The means are over the
node and the peers whose messages have arrived. Offline peers are left out.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Lt

from ddlsim.algorithms.base import GraphKind
from ddlsim.algorithms.rounds import ModelState, MomentumState, SharedModel, merge_known
from ddlsim.node.node import Node, Steps


@dataclass(frozen=True, kw_only=True)
class NoLoCo(SharedModel):
    """NoLoCo: local steps, then an outer step with momentum from the models and changes of a random pair.

    Args:
        outer_rate: a, weight of the mean change.
        outer_momentum: b, weight of the previous momentum in the next one.
        consensus_rate: c, weight of the difference to the mean slow model; null: outer_rate.
    """

    state_type: ClassVar[type[ModelState]] = MomentumState
    expects_graph: ClassVar[GraphKind] = "dynamic"

    outer_rate: Annotated[float, Gt(0)] = 0.7
    outer_momentum: Annotated[float, Ge(0), Lt(1)] = 0.5
    consensus_rate: Annotated[float, Ge(0)] | None = None

    def round(self, node: Node, state: MomentumState, round_num: int) -> Steps:
        slow = state.model
        (trained,) = yield node.train((slow,))
        change = node.merge([trained, slow], [1.0, -1.0])
        node.send(node.peers(round_num), round_num, model=slow, change=change)
        inbox = yield node.receive(round_num)
        models = {node.id: slow} | {m.src: m.payload["model"] for m in inbox}
        changes = {node.id: change} | {m.src: m.payload["change"] for m in inbox}
        equal = dict.fromkeys(models, 1 / len(models))
        mean, mean_change = node.aggregate(models, equal), node.aggregate(changes, equal)
        pull = self.outer_rate if self.consensus_rate is None else self.consensus_rate
        moves = [node.trained_values(each) for each in (mean_change, mean, slow)]
        weights = [self.outer_momentum, self.outer_rate, pull, -pull]
        state.momentum = merge_known(node, [state.momentum, *moves], weights)
        average = node.merge([mean, mean_change], [1.0, 1.0])
        state.model = node.with_trained_values(average, node.merge([moves[-1], state.momentum], [1.0, 1.0]))
