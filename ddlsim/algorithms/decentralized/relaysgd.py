"""RelaySGD: nodes relay sums of models along a spanning tree, so every model reaches all nodes with equal weight.

Source: Vogels, He, Koloskova, Lin, Karimireddy, Stich, Jaggi, "RelaySum for Decentralized Deep Learning on
Heterogeneous Data", NeurIPS 2021, Algorithm 1. On a tree, in round t, for each neighbor j of node i:

    x_i(t+1/2) := x_i(t) - a g_i(t);
    m_ij(t) := x_i(t+1/2) + sum of m_ki(t-1) over the other neighbors k;   c_ij(t) := 1 + sum of c_ki(t-1);
    x_i(t+1) := (sum of m_ji(t) + (n - sum of c_ji(t)) x_i(t+1/2)) / n.

A model that is d edges away arrives d - 1 rounds late; until then the node's own model replaces it, as in the authors'
description of their code. The tree is the breadth-first spanning tree of the topology's graph from node 0, known to
all nodes; on the topology `tree` it is the graph. The paper's experiments use two binary trees, each for half of the
model; with `tree`, one tree for the whole model, a node sends up to three models in a round instead of two.

Sums and counts leave out lost and late messages, and messages of offline neighbors; in `mode: async` a neighbor's last
message counts again until the next arrives. Buffers (BatchNorm statistics) are summed with the model.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from ddlsim.algorithms.base import GraphKind
from ddlsim.algorithms.rounds import ModelState, SharedModel
from ddlsim.node.node import Node, Params, Steps


@dataclass
class State(ModelState):
    """A node's memory: its model, and neighbor -> the last relayed sum of models, with their number."""

    relayed: dict[int, tuple[Params, int]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RelaySGD(SharedModel):
    """RelaySGD: relay sums of models along a spanning tree of the topology."""

    state_type: ClassVar[type[ModelState]] = State
    expects_graph: ClassVar[GraphKind] = "static"
    averages: ClassVar[bool] = False  # by no rule of `aggregation`, since a sum holds models of many nodes

    def round(self, node: Node, state: State, round_num: int) -> Steps:
        (half,) = yield node.train((state.model,))
        state.model = half  # a node that leaves from here on has trained, without an exchange
        neighbors = node.tree_peers(round_num)
        for peer in neighbors:
            relayed = [state.relayed[other] for other in neighbors if other != peer and other in state.relayed]
            total = node.merge([half, *(each for each, _ in relayed)], [1.0] * (1 + len(relayed)))
            node.send((peer,), round_num, total=total, count=1 + sum(count for _, count in relayed))
        inbox = yield node.receive(round_num, neighbors)
        kept = {} if node.synchronous else state.relayed
        state.relayed = kept | {m.src: (m.payload["total"], m.payload["count"]) for m in inbox}
        n, arrived = node.num_nodes, [state.relayed[peer] for peer in neighbors if peer in state.relayed]
        own = (n - sum(count for _, count in arrived)) / n
        state.model = node.merge([half, *(total for total, _ in arrived)], [own] + [1 / n] * len(arrived))
