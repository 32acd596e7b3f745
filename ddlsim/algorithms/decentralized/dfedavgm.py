"""DFedAvgM: several local steps with heavy-ball momentum, then the mean with the neighbors' models.

Source: Sun, Li, Wang, "Decentralized federated averaging", IEEE TPAMI 2022, Algorithm 1, without quantization
(network.compression does that). Momentum restarts in every round, as in the paper, so it is training.momentum with
training.optimizer sgd. The mixing matrix has Metropolis-Hastings weights on the topology's graph; weights of neighbors
that are offline, or whose message is lost or too late, are added to the node's weight.
"""

from dataclasses import dataclass

from ddlsim.algorithms.decentralized.dpsgd import NeighborMixing


@dataclass(frozen=True, kw_only=True)
class DFedAvgM(NeighborMixing):
    """Decentralized federated averaging; set training.momentum."""
