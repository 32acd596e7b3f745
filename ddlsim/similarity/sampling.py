"""From similarities to probabilities, and from those to peers.

Sources: Listo Zec et al., FL-IJCAI 2022, and their code (softmax, DAC-var's sigmoid); the code of Hagander's thesis
(the floor, min-max scaling).
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

UnknownPeers = Literal["zero_similarity", "floor"]
Scaling = Literal["none", "min_max"]


def probabilities(
    scores: np.ndarray, tau: float, unknown: UnknownPeers = "floor", scaling: Scaling = "none", floor: float = 1e-6
) -> np.ndarray:
    """How likely each peer is drawn: softmax(tau * score).

    Args:
        scores: per peer its similarity, NaN where it is not known.
        tau: inverse temperature, >= 0.
        unknown: `zero_similarity`: a peer not known counts as one of similarity 0; `floor`: only peers of positive
            similarity take part in the softmax, and every peer gets `floor` on top, unknown and disliked ones too.
        scaling: `min_max` spreads the similarities that take part over 0..1 first; where all are equal they stay so.
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
    """DAC-var's schedule: 1 in round 0, rising to tau_max + 1 as in the authors' code; in their text, to tau_max."""
    return 2 * tau_max / (1 + np.exp(-growth * round_num)) - tau_max + 1


def draw(rng: np.random.Generator, peers: Sequence[int], count: int, weights: np.ndarray | None = None) -> list[int]:
    """Different peers by probability, ascending; if too few have any, the rest uniformly.

    Args:
        rng: the node's stream.
        peers: the nodes to draw from.
        count: how many; all of them if there are not so many.
        weights: their probabilities, summing to 1; None: uniform.
    """
    return sorted(draw_in_turn(rng, peers, count, weights))


def draw_in_turn(
    rng: np.random.Generator, peers: Sequence[int], count: int, weights: np.ndarray | None = None
) -> list[int]:
    """The same peers in the order in which they were drawn; where all of any probability are, those come first."""
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
