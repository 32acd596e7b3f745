"""Exact diffusion: adapt, correct, combine. Nodes with different data reach the minimum of the sum of their losses.

Source: Yuan, Ying, Zhao, Sayed, "Exact Diffusion for Distributed Optimization and Learning", IEEE Transactions on
Signal Processing, 2019, part I, Algorithm 1:

    psi_i(t+1) := x_i(t) - a g_i(t);   phi_i(t+1) := psi_i(t+1) + x_i(t) - psi_i(t);
    x_i(t+1) := sum_j v_ij phi_j(t+1),   V = (I + W) / 2,   psi_i(0) = x_i(0).

This is D2 with V in place of W; d2.py describes several local steps and offline neighbors. All eigenvalues of V are 0
or more, so any symmetric W is valid.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ddlsim.algorithms.decentralized.d2 import D2
from ddlsim.node.node import Node, Params


@dataclass(frozen=True, kw_only=True)
class ExactDiffusion(D2):
    """Exact diffusion: D2 with a mixing matrix that gives each node half of its own model."""

    def combine(self, node: Node, own: Params, received: Mapping[int, Params], round_num: int) -> Params:
        return node.merge([own, node.mix(own, received, round_num)], [0.5, 0.5])
