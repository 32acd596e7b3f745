"""Selection of peers: a node's knowledge of similarities, probabilities from similarities, and peers drawn by them.

Sources: Listo Zec et al., FL-IJCAI 2022, and their code (softmax, DAC-var's sigmoid); the code of Hagander's thesis
(the floor, min-max scaling).

A node knows the similarities that it has measured and estimates from other nodes (Listo Zec et al., section 3): a
peer k also sends its own similarities, and a node uses k's similarity to j as an estimate of its own, unless it has
ever measured j itself. If several peers have a similarity to j, one of them counts:

- `max`: the peer that is most similar to the node, as in the texts of both papers (the first one's formula near that
  sentence has an arg min) and in the first code since August 2023;
- `last`: the peer that was drawn last, however similar it is. This is what the first code did before (it sorted the
  peers by their place among those drawn), from its first version of 2022 on, so most likely what made the first paper's
  numbers;
- `min`: the least similar peer. This is what the code behind "On the effects of similarity metrics in decentralized
  deep learning under distributional shift" does (a reversed comparison), and so its published numbers.

The first code passes estimates on, so that they travel more than two hops (`chained`); the second one passes on only
measured values. A table travels as a float32 and one bit ("measured") per node.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

UnknownPeers = Literal["zero_similarity", "floor"]
Scaling = Literal["none", "min_max"]


def probabilities(
    scores: np.ndarray, tau: float, unknown: UnknownPeers = "floor", scaling: Scaling = "none", floor: float = 1e-6
) -> np.ndarray:
    """Return the probability of each peer, softmax(tau * score).

    Args:
        scores: similarity of each peer, NaN if unknown.
        tau: inverse temperature, >= 0.
        unknown: `zero_similarity`: an unknown peer has similarity 0; `floor`: only peers of positive similarity take
            part in the softmax, and `floor` is added to the probability of every peer.
        scaling: `min_max` maps the similarities that take part to 0..1 first; equal similarities remain equal.
        floor: see `unknown`.

    Returns:
        float64, sums to 1; uniform if nothing is known.
    """
    taking_part = np.ones(len(scores), bool) if unknown == "zero_similarity" else np.nan_to_num(scores) > 0
    weights = np.zeros(len(scores))
    if taking_part.any():
        chosen = np.nan_to_num(scores[taking_part].astype(np.float64))
        if scaling == "min_max":
            spread = chosen.max() - chosen.min()
            chosen = (chosen - chosen.min()) / (spread if spread > 0 else 1)
        logits = tau * chosen
        weights[taking_part] = np.exp(logits - logits.max())
        weights /= weights.sum()
    if unknown == "floor":
        weights += floor
    return weights / weights.sum()


def sigmoid_tau(round_num: int, tau_max: float, growth: float) -> float:
    """Return DAC-var's tau: 1 in round 0, up to tau_max + 1 as in the authors' code (in their text, tau_max)."""
    return 2 * tau_max / (1 + np.exp(-growth * round_num)) - tau_max + 1


def draw(rng: np.random.Generator, peers: Sequence[int], count: int, weights: np.ndarray | None = None) -> list[int]:
    """Draw different peers by probability, in ascending order; if too few have one above 0, draw the rest uniformly.

    Args:
        rng: the node's stream.
        peers: the nodes to draw from.
        count: number of peers to draw, at most all.
        weights: their probabilities, summing to 1; None: uniform.
    """
    return sorted(draw_in_turn(rng, peers, count, weights))


def draw_in_turn(
    rng: np.random.Generator, peers: Sequence[int], count: int, weights: np.ndarray | None = None
) -> list[int]:
    """Draw as `draw`, in the order of the draw; if all peers with a probability above 0 are drawn, they come first."""
    count = min(count, len(peers))
    candidates = np.array(peers, dtype=np.int64)
    if weights is None or not count:
        return rng.choice(candidates, count, replace=False).tolist() if count else []
    likely = np.flatnonzero(weights > 0)
    if len(likely) >= count:
        return rng.choice(candidates, count, replace=False, p=weights).tolist()
    unlikely = np.setdiff1d(np.arange(len(candidates)), likely)
    filled = np.concatenate([likely, rng.choice(unlikely, count - len(likely), replace=False)])
    return candidates[filled].tolist()


TwoHop = Literal["max", "min", "last", "none"]


@dataclass(frozen=True)
class Knowledge:
    """A node's similarities to all nodes.

    Args:
        scores: float32 [K], NaN if unknown.
        measured: bool [K], whether the node has ever measured it itself.
    """

    scores: np.ndarray
    measured: np.ndarray

    @classmethod
    def nothing(cls, num_nodes: int) -> "Knowledge":
        """Return the initial table, without similarities."""
        return cls(np.full(num_nodes, np.nan, np.float32), np.zeros(num_nodes, bool))

    def learn(
        self, own: int, measured: Mapping[int, float], tables: "Mapping[int, Knowledge]", rule: TwoHop, chained: bool
    ) -> "Knowledge":
        """Return the table after an exchange.

        Args:
            own: the node.
            measured: peer -> similarity, of this round; for `last` in the order in which the peers were drawn.
            tables: peer -> the table of that peer, for peers in `measured`.
            rule: estimate that counts if several peers have a similarity to a node; `none`: no estimates.
            chained: whether estimates are passed on.
        """
        scores, direct = self.scores.copy(), self.measured.copy()
        peers = sorted(measured)
        scores[peers] = [measured[peer] for peer in peers]
        direct[peers] = True
        if rule == "none":
            return Knowledge(scores, direct)
        # Later estimates overwrite earlier ones, so the estimate that counts comes last; among equals the lower id.
        sources = [peer for peer in measured if peer in tables]
        if rule != "last":
            sources.sort(key=lambda peer: (measured[peer] if rule == "max" else -measured[peer], -peer))
        for peer in sources:
            table = tables[peer]
            known = (np.nan_to_num(table.scores) > 0) if chained else table.measured
            estimated = known & ~direct
            estimated[own] = False
            scores[estimated] = table.scores[estimated]
        return Knowledge(scores, direct)


def table_bytes(num_nodes: int) -> int:
    """Return the bytes of a table in a message."""
    return 4 * num_nodes + -(-num_nodes // 8)
