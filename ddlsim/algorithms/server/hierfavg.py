"""HierFAVG: FedAvg within each cluster in every round, and over all clusters in every few rounds.

Source: Liu, Zhang, Song, Letaief, "Client-edge-cloud hierarchical federated learning", ICC 2020, Algorithm 1:
kappa_1 is training.local_steps, kappa_2 `edge_rounds`. Edges are the scenario's clusters (nodes.clusters), which this
algorithm knows. In every round each edge server averages the models of its cluster by samples; in every edge_rounds-th
round the cloud averages the edges' models by the numbers of samples, and nodes receive that average.

All edge servers run on the host of the simulation's server: transfers between edges and cloud take no time and are not
counted. Averages leave out offline and late nodes as in fedavg.py; an edge that receives no models keeps its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from annotated_types import Ge

from ddlsim.algorithms.server import fedavg
from ddlsim.node.node import Message, Node, Params


@dataclass
class State(fedavg.State):
    """A node's memory, or the server's: per cluster the edge's model, and the number of its samples since the last
    average of all edges.
    """

    edges: dict[int, Params] = field(default_factory=dict)
    samples: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class HierFAVG(fedavg.FedAvg):
    """Hierarchical federated averaging over clusters.

    Args:
        edge_rounds: rounds of the edges per round of the cloud.
    """

    state_type: ClassVar[type[fedavg.State]] = State
    needs_only_sums: ClassVar[bool] = False
    tests_server_model: ClassVar[bool] = False
    edge_rounds: Annotated[int, Ge(1)] = 2

    def server_update(self, node: Node, state: Any, inbox: Sequence[Message]) -> None:
        for cluster, members in node.clusters.items():
            own = [m for m in inbox if m.src in members]
            if own:
                state.edges[cluster] = node.aggregate({m.src: m.payload["model"] for m in own}, self.weights_of(own))
                state.samples[cluster] = sum(m.payload["samples"] for m in own)
        if (node.round_num + 1) % self.edge_rounds == 0:
            total = sum(state.samples.values())
            weights = [samples / total for samples in state.samples.values()]
            average = node.merge([state.edges[cluster] for cluster in state.samples], weights)
            state.edges = dict.fromkeys(node.clusters, average)

    def server_result(self, state: Any) -> dict[str, Any]:
        return {f"edge {cluster}": model for cluster, model in state.edges.items()}

    def result_keys(self, node: Node, peer: int) -> Sequence[str] | None:
        if peer == node.id:
            return [f"edge {node.true_cluster}"]
        return [f"edge {cluster}" for cluster, members in node.clusters.items() if peer in members]

    def apply_result(self, state: Any, result: Mapping[str, Any]) -> None:
        state.model = tuple(result.values())
