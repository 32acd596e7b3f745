"""Metropolis-Hastings weights of a graph.

Source: Xiao, Boyd and Lashkari, "Distributed average consensus with least-mean-square deviation", JPDC 2007.
"""

from collections.abc import Collection, Sequence


def row(node: int, neighbors: Sequence[Sequence[int]], received: Collection[int]) -> dict[int, float]:
    """One node's row of the mixing matrix: 1 / (1 + the larger degree) for each neighbor, the rest for itself.

    Over all nodes the matrix is symmetric and doubly stochastic, so repeated mixing leads to the plain mean. Where
    messages of several rounds come at once, of other graphs, they may be more than the node has neighbors; then their
    number counts as its degree, so that no weight is negative.

    Args:
        node: the row.
        neighbors: per node its neighbors' ids; symmetric.
        received: the nodes whose parameters came; the weights of other neighbors fall to the node itself.

    Returns:
        Node id -> weight, ordered by id, the node itself among them; they sum to 1.
    """
    degree = max(len(neighbors[node]), len(received))
    weights = {peer: 1 / (1 + max(degree, len(neighbors[peer]))) for peer in received}
    weights[node] = 1 - sum(weights.values())
    return dict(sorted(weights.items()))
