"""Two groups of similarities told apart, neighbors and others, by a mixture of two normal distributions.

Source: Li et al., "Towards effective clustered federated learning: a peer-to-peer framework with adaptive neighbor
matching", and Hagander's thesis, appendix B, algorithm 3 (NAEM: hard expectation maximization). The thesis writes the
likelihood as Phi((s - mean) / deviation) without the factor 1 / deviation; its code takes the normal density, which is
what expectation maximization asks for, and so does this.
"""

from collections.abc import Mapping

import numpy as np

MOST_STEPS = 100


def neighbors_by_mixture(
    scores: Mapping[int, float], neighbors: set[int], smallest_deviation: float = 1e-9
) -> set[int]:
    """Reassigns candidates between "neighbor" and "other" until nothing changes.

    Args:
        scores: candidate -> similarity.
        neighbors: the candidates that count as neighbors at first.
        smallest_deviation: of a group, so that one whose similarities are all the same attracts just its like. With 0
            all are then counted among the others, as by the comparison with 0 / 0 in the published code.

    Returns:
        The neighbors in the end. If none is left they are those of the beginning; if the others do, all are.
    """
    peers = sorted(scores)
    values = np.array([scores[peer] for peer in peers], dtype=np.float64)
    labels = np.array([peer in neighbors for peer in peers])
    for _ in range(MOST_STEPS):
        if not labels.any() or labels.all():
            break
        with np.errstate(divide="ignore", invalid="ignore"):
            own, other = (_density(values, group, smallest_deviation) for group in (labels, ~labels))
            new = own > other
        if (new == labels).all():
            break
        labels = new
    if not labels.any():
        return set(neighbors)
    return {peer for peer, label in zip(peers, labels.tolist(), strict=True) if label}


def _density(values: np.ndarray, members: np.ndarray, smallest_deviation: float) -> np.ndarray:
    """Share times normal density of a group at every value; NaN where its deviation is 0."""
    mean, deviation = values[members].mean(), max(values[members].std(), smallest_deviation)
    share = members.mean()
    return share * np.exp(-0.5 * ((values - mean) / deviation) ** 2) / deviation
