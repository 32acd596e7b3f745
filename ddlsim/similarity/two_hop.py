"""A node's similarities to all others: those it has measured itself, and estimates through third parties.

Source: Listo Zec et al., FL-IJCAI 2022, section 3: a peer k that was asked also sends its own similarities, and a node
takes k's similarity to j as an estimate of its own, unless it has ever measured j itself. If several peers have
a similarity to j:

- `max`: the estimate of the peer that is most similar to the node counts, as in the texts of both papers (the first
  one's formula beside that sentence has an arg min) and in the first code since August 2023;
- `last`: that of the peer that was drawn last counts, however similar it is. This is what the first code did before
  (it sorted the peers by their place among those drawn), from its first version of 2022 on, so most likely what made
  the first paper's numbers;
- `min`: that of the least similar peer counts. This is what the code behind "On the effects of similarity metrics in
  decentralized deep learning under distributional shift" does (a reversed comparison), and so its published numbers.

The first code passes estimates on, so that they travel more than two hops (`chained`); the second one passes on only
what was measured. A table travels as a float32 and one bit ("measured") per node.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

TwoHop = Literal["max", "min", "last", "none"]


@dataclass(frozen=True)
class Knowledge:
    """One node's similarities to all nodes.

    Args:
        scores: float32 [K], NaN where nothing is known.
        measured: bool [K], whether the node has ever measured it itself.
    """

    scores: np.ndarray
    measured: np.ndarray

    @classmethod
    def nothing(cls, num_nodes: int) -> "Knowledge":
        """A node's first table: no similarities."""
        return cls(np.full(num_nodes, np.nan, np.float32), np.zeros(num_nodes, bool))

    def learn(
        self, own: int, measured: Mapping[int, float], tables: "Mapping[int, Knowledge]", rule: TwoHop, chained: bool
    ) -> "Knowledge":
        """The table after an exchange.

        Args:
            own: the node.
            measured: peer -> similarity, of this round; for `last` in the order in which the peers were drawn.
            tables: peer -> the table of that peer, for peers in `measured`.
            rule: which estimate counts if several peers have a similarity to a node; `none`: no estimates.
            chained: whether estimates are passed on.
        """
        scores, direct = self.scores.copy(), self.measured.copy()
        peers = sorted(measured)
        scores[peers] = [measured[peer] for peer in peers]
        direct[peers] = True
        if rule == "none":
            return Knowledge(scores, direct)
        # From the estimate that counts least to the one that counts most, since later ones overwrite. Of equals the
        # lower id counts.
        believed = [peer for peer in measured if peer in tables]
        if rule != "last":
            believed.sort(key=lambda peer: (measured[peer] if rule == "max" else -measured[peer], -peer))
        for peer in believed:
            table = tables[peer]
            known = (np.nan_to_num(table.scores) > 0) if chained else table.measured
            open_to_hearsay = known & ~direct
            open_to_hearsay[own] = False
            scores[open_to_hearsay] = table.scores[open_to_hearsay]
        return Knowledge(scores, direct)


def table_bytes(num_nodes: int) -> int:
    """Bytes that a table takes on the wire."""
    return 4 * num_nodes + -(-num_nodes // 8)
