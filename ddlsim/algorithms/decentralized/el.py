"""Epidemic Learning: train, send the model to a few random nodes, average the received models.

Source: de Vos, Farhadkhani, Guerraoui, Kermarrec, Pires, Sharma, "Epidemic Learning: Boosting Decentralized Learning
with Randomized Communication", NeurIPS 2023. `oracle` uses the topology's graph of the round, known to all (with the
topology random_regular this is EL-Oracle, called EL in the FACADE paper). `local` lets every node draw its own `fanout`
receivers; as in the authors' code, the other nodes get an empty notice, so that a receiver knows when a round is
complete. In `mode: async` no node waits for notices, and none are sent. With `protocol.late_messages: keep` a notice
of the round takes precedence over a late model of an earlier one. Models of peers that are offline, and lost or late
models, are left out of the mean.

EL draws a new graph in every round: `topology.dynamic: true` with `oracle`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from ddlsim.algorithms.base import GraphKind, Graphs
from ddlsim.algorithms.rounds import ModelState, SharedModel, WithFinalAllReduce
from ddlsim.foundation.units import Count
from ddlsim.node.node import Node, Steps


@dataclass(frozen=True, kw_only=True)
class EpidemicLearning(WithFinalAllReduce, SharedModel):
    """Epidemic Learning: average with random nodes each round.

    Args:
        variant: `oracle` (the topology's graph of the round) or `local` (every node draws its receivers).
        fanout: receivers per node and round of `local`.
    """

    expects_graph: ClassVar[GraphKind] = "dynamic"
    graphs: ClassVar[Graphs] = "directed"
    may_change: ClassVar[frozenset[str]] = frozenset({"fanout"})

    variant: Literal["oracle", "local"] = "oracle"
    fanout: Count = 4

    def unused_keys(self, rounds: int) -> Iterator[tuple[str, str]]:
        if self.variant == "oracle":
            yield "fanout", "with variant oracle the topology determines the receivers"

    @property
    def uses_topology(self) -> bool:
        return self.variant == "oracle"

    @property
    def needs_only_sums(self) -> bool:
        return self.variant == "oracle"

    def round(self, node: Node, state: ModelState, round_num: int) -> Steps:
        (state.model,) = yield node.train((state.model,))
        if self.variant == "oracle":
            node.send(node.peers(round_num), round_num, model=state.model)
            inbox = yield node.receive(round_num)
        else:
            drawn = node.rng("receivers").choice(node.others(), min(self.fanout, node.num_nodes - 1), replace=False)
            receivers = {int(peer) for peer in drawn}
            node.send(sorted(receivers), round_num, model=state.model)
            if node.synchronous:  # otherwise a notice would replace a model that its receiver has not read yet
                node.send([peer for peer in node.others() if peer not in receivers], round_num)
            inbox = yield node.receive(round_num, node.others())
        state.model = node.average(state.model, {m.src: m.payload["model"] for m in inbox if "model" in m.payload})
