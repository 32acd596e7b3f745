"""Metropolis-Hastings weights of a mixing matrix.

Source: Xiao, Boyd, "Fast linear iterations for distributed averaging", Systems & Control Letters 2004, section 5. The
matrix is symmetric and doubly stochastic on any undirected graph, so that repeated mixing leads to the plain mean over
all nodes. On a regular graph of degree d every weight is 1 / (d + 1).
"""

from collections.abc import Iterable, Sequence


def metropolis_hastings_row(
    node: int, neighbours: Sequence[Sequence[int]], present: Iterable[int] | None = None
) -> dict[int, float]:
    """One node's weights: 1 / (1 + the larger of the two degrees) per neighbor, the rest for the node itself.

    Args:
        node: whose row.
        neighbours: per node its neighbors' ids; symmetric.
        present: the neighbors whose models are there; the weights of the others fall to the node. None: all.

    Returns:
        Node id -> weight, the node itself among them, by ascending id; the weights sum to 1.
    """
    degree = len(neighbours[node])
    weights = {
        peer: 1 / (1 + max(degree, len(neighbours[peer])))
        for peer in sorted(neighbours[node] if present is None else present)
    }
    weights[node] = 1 - sum(weights.values())
    return dict(sorted(weights.items()))
