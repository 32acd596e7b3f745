"""FedSim: personal cores, heads averaged by a server; both trained at the same time.

Source: Pillutla, Malik, Mohamed, Rabbat, Sanjabi, Xiao, "Federated learning with partial model personalization", ICML
2022, Algorithm 2 (simultaneous update), with the part that MAPL's code shares (Mukherjee, 2023): the head. Plain mean
over all nodes in every round; mean_heads.py defines the round.
"""

from dataclasses import dataclass

from ddlsim.algorithms.mean_heads import MeanHeads


@dataclass(frozen=True, kw_only=True)
class FedSim(MeanHeads):
    """Partial personalization: a server averages heads, cores stay with their nodes."""
