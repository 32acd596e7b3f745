"""Cosine clipping: a neighbor counts as far as its update points where one's own does, and is no longer than that.

Source: Cao, Fang, Liu, Gong, "FLTrust: Byzantine-robust federated learning via trust bootstrapping", NDSS 2021,
without a server: the node's own samples take the place of the server's root data set, its own update that of the
server's. With g_j = x_j - s, s being what the node's last training began with, and the node's own trust 1:

    trust_j = max(0, cos(g_j, g_own)),   x := s + sum_j trust_j (|g_own| / |g_j|) g_j / sum_j trust_j.

Where the node has not trained what is averaged (another head of FACADE, say) there is no update to compare: its own
parameters then stand for g_own, and those received for g_j (s = 0).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ddlsim.aggregation.base import Aggregation, Combination, Rows, weighted_sum


@dataclass(frozen=True, kw_only=True)
class CosineClipping(Aggregation):
    """FLTrust without a server: updates count by their cosine with one's own, at its length."""

    needs_own: ClassVar[bool] = True
    needs_distances: ClassVar[bool] = True
    needs_start: ClassVar[bool] = True

    def combine(self, rows: Rows) -> Combination:
        n, own = rows.count, rows.own
        squared = rows.sqdist[n, :n]  # |g_j|^2
        norms = np.sqrt(squared)
        products = (squared + squared[own] - rows.sqdist[own, :n]) / 2
        lengths = norms * norms[own]
        trust = np.clip(products / np.where(lengths > 0, lengths, np.inf), 0, 1)
        trust[own] = 1.0
        scale = norms[own] / np.where(norms > 0, norms, 1.0)
        scale[own] = 1.0
        shares = trust * scale / trust.sum()
        return weighted_sum([*shares, 1 - shares.sum()])
