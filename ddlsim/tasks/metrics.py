"""Metrics of a run's results by cluster, and their cost: pure functions of recorded arrays.

Definitions follow Biswas et al., "Fair Decentralized Learning" (FACADE, SaTML 2025), as its published numbers were
computed: rates per class from each node's confusion matrix, averaged over the nodes of a cluster; demographic parity
and equalized odds as means over classes (the paper's text says sums); fair accuracy with lambda 2/3. Differences: any
number of clusters, by the largest gap between two of them, and accuracies are fractions, 0 to 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

FAIR_LAMBDA = 2 / 3
ROUNDING = 1e-12
"""Relative rounding error allowed for a mean."""

Ints = Sequence[int] | np.ndarray
Floats = Sequence[float] | np.ndarray


def accuracy(confusion: np.ndarray) -> np.ndarray:
    """Share of correctly classified samples.

    Args:
        confusion: counts [..., C, C]; row = true class, column = predicted class.
    Returns:
        Shares [...], nan where there are no samples.
    """
    confusion = np.asarray(confusion, dtype=float)
    return _ratio(np.trace(confusion, axis1=-2, axis2=-1), confusion.sum((-2, -1)))


def over_clusters(values: np.ndarray, node_cluster: Ints) -> np.ndarray:
    """Mean over the nodes of each cluster; nodes without a value (nan) do not count.

    Args:
        values: one value per node, [..., N].
        node_cluster: the cluster of each node, [N], numbered from 0.
    Returns:
        Means [..., K], nan for a cluster without any value.
    """
    values, clusters = np.asarray(values, dtype=float), np.asarray(node_cluster)
    means = [over_nodes(values[..., clusters == cluster]) for cluster in range(clusters.max() + 1)]
    return np.stack(means, axis=-1)


def over_nodes(values: np.ndarray) -> np.ndarray:
    """Mean over all nodes, so large clusters weigh more; nodes without a value (nan) do not count.

    Args:
        values: one value per node, [..., N].
    Returns:
        Means [...], nan where no node has a value.
    """
    known = ~np.isnan(values)
    return _ratio(np.where(known, values, 0.0).sum(-1), known.sum(-1))


def without(values: np.ndarray, nodes: Sequence[int]) -> np.ndarray:
    """Return values per node, [..., N], with nan for some nodes, which then do not count."""
    if not len(nodes):
        return values
    kept = np.array(values, dtype=float)
    kept[..., list(nodes)] = np.nan
    return kept


def clusters_with_honest_nodes(node_cluster: Ints, attacked: Sequence[int]) -> np.ndarray:
    """The clusters over which fairness is defined, ascending; all of them where every node attacks."""
    clusters = np.asarray(node_cluster)
    honest = np.unique(np.delete(clusters, list(attacked)))
    return honest if len(honest) else np.unique(clusters)


def class_rates(confusion: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One-against-the-rest rates of every class.

    Args:
        confusion: counts [..., C, C]; row = true class, column = predicted class.
    Returns:
        Share of samples predicted as the class, true positive rate and false positive rate, each [..., C]; nan where
        a rate has no samples to be taken over.
    """
    confusion = np.asarray(confusion, dtype=float)
    total = confusion.sum((-2, -1))[..., None]
    hits = np.diagonal(confusion, axis1=-2, axis2=-1)
    actual, predicted = confusion.sum(-1), confusion.sum(-2)
    return _ratio(predicted, total), _ratio(hits, actual), _ratio(predicted - hits, total - actual)


def demographic_parity(confusion: np.ndarray, node_cluster: Ints) -> float:
    """Difference between clusters in how often each class is predicted, mean over classes; 0 is fair.

    Args:
        confusion: one matrix of counts per node, [N, C, C]; row = true class, column = predicted class.
        node_cluster: the cluster of each node, [N], numbered from 0.
    Returns:
        The largest of the gaps between two clusters; 0 with one cluster, nan where no gap is defined: clusters have no
        rate of any class in common.
    """
    predicted, _, _ = class_rates(confusion)
    return _largest_gap([over_clusters(predicted.T, node_cluster)])


def equalized_odds(confusion: np.ndarray, node_cluster: Ints) -> float:
    """Differences between clusters in true and in false positive rate, added, mean over classes; 0 is fair.

    Args:
        confusion: one matrix of counts per node, [N, C, C]; row = true class, column = predicted class.
        node_cluster: the cluster of each node, [N], numbered from 0.
    Returns:
        The largest of the gaps between two clusters, each over the classes of which both have both rates; pairs of
        clusters without such a class are left out. 0 with one cluster, nan where that leaves no pair.
    """
    _, true_positive, false_positive = class_rates(confusion)
    return _largest_gap([over_clusters(rate.T, node_cluster) for rate in (true_positive, false_positive)])


def _largest_gap(rates: list[np.ndarray]) -> float:
    """Largest over cluster pairs of: mean over classes of the summed absolute differences of rates [C, K]."""
    num_clusters = rates[0].shape[-1]
    pairs = combinations(range(num_clusters), 2)
    gaps = [float(over_nodes(sum(np.abs(rate[:, one] - rate[:, other]) for rate in rates))) for one, other in pairs]
    defined = [gap for gap in gaps if not np.isnan(gap)]
    return max(defined) if defined else 0.0 if num_clusters == 1 else np.nan


def fair_accuracy(cluster_accuracy: np.ndarray, fair_lambda: float = FAIR_LAMBDA) -> np.ndarray:
    """Accuracy and evenness in one number: lambda x mean + (1 - lambda) x (1 - gap), every cluster weighing the same.

    Args:
        cluster_accuracy: accuracy per cluster, 0 to 1, [..., K].
        fair_lambda: weight of the mean accuracy, 0 to 1.
    Returns:
        Fair accuracy [...], 0 to 1; the gap is the best cluster's accuracy minus the worst one's.
    """
    cluster_accuracy = np.asarray(cluster_accuracy, dtype=float)
    gap = cluster_accuracy.max(-1) - cluster_accuracy.min(-1)
    return fair_lambda * cluster_accuracy.mean(-1) + (1 - fair_lambda) * (1 - gap)


def sampling_error(share: Floats, samples: int, population: int) -> np.ndarray:
    """Return the largest error of a share from a simple random sample, at 95 % confidence.

    The further end of Wilson's score interval ("Probable inference, the law of succession, and statistical inference",
    JASA 1927), which holds near 0 and 1 as well, with n (N - 1) / (N - n) samples in place of n, which gives
    the variance of a finite population (Cochran, "Sampling Techniques", 3rd edition, chapter 3).

    Args:
        share: p, found on the sample, 0 to 1, [...].
        samples: n, drawn without replacement, at least 2.
        population: N.
    Returns:
        The distance, [...]; 0 where the sample is the population.
    """
    share = np.asarray(share, dtype=float)
    if samples >= population:
        return np.zeros_like(share)
    n = samples * (population - 1) / (population - samples)
    z2 = 1.96**2 / n
    middle = (share + z2 / 2) / (1 + z2)
    half = np.sqrt(z2 * (share * (1 - share) + z2 / 4)) / (1 + z2)
    return half + np.abs(middle - share)


def first_reaching(curve: Floats, target: float, falling: bool = False) -> int | None:
    """Index of the first evaluation that is as good as the target or better, or None.

    Means are rounded: the mean of three nodes at 0.7 each is 2e-16 below 0.7, and still reaches it.

    Args:
        curve: accuracy (or an error) per evaluation, [E]; nan never reaches.
        target: value to reach.
        falling: whether lower is better, as for an error.
    """
    values, rounding = np.asarray(curve, dtype=float), ROUNDING * abs(target)
    reached = np.flatnonzero(values <= target + rounding if falling else values >= target - rounding)
    return int(reached[0]) if len(reached) else None


def cost_to_target(curve: Floats, costs: Floats, target: float, falling: bool = False) -> float | None:
    """Cost (bytes, seconds, rounds) at the first evaluation that reaches the target accuracy, or None.

    Args:
        curve: accuracy (or an error) per evaluation, [E].
        costs: cumulative cost per evaluation, [E].
        target: value to reach.
        falling: whether lower is better, as for an error.
    """
    index = first_reaching(curve, target, falling)
    return None if index is None else float(costs[index])


def interpolated_cost_to_target(curve: Floats, costs: Floats, target: float, falling: bool = False) -> float | None:
    """Cost where the straight line from the evaluation before to the first one that reaches the target meets it.

    If the first evaluation of all reaches it, or the one before is not a finite number (nodes that had diverged),
    there is no line, and its own cost is returned.

    Args:
        curve: accuracy (or an error) per evaluation, [E].
        costs: cumulative cost per evaluation, [E].
        target: value to reach.
        falling: whether lower is better, as for an error.
    """
    index = first_reaching(curve, target, falling)
    if index is None:
        return None
    if index == 0 or not np.isfinite(curve[index - 1]):
        return float(costs[index])
    before, after = curve[index - 1], curve[index]
    share = min(1.0, (target - before) / (after - before))
    return float(costs[index - 1] + share * (costs[index] - costs[index - 1]))


@dataclass(frozen=True)
class Settlement:
    """Convergence of the nodes' choices of heads, and whether clusters chose different heads.

    `settled_after` is the index of the first choice from which on no node's head changed: 0 if none ever changed, None
    if a head changed at the last one. `heads` is the majority head of each cluster (the lowest of equals),
    `agreement` the share of nodes, over all, that chose their cluster's majority head, `apart` whether no two clusters
    have the same majority head.
    """

    settled_after: int | None
    heads: tuple[int, ...]
    agreement: float
    apart: bool


def settlement(heads: np.ndarray, node_cluster: Ints) -> Settlement:
    """Settlement of the nodes' head choices.

    Args:
        heads: head of each node after each round in which heads were chosen, [R, N], R at least 1.
        node_cluster: the cluster of each node, [N], numbered from 0; every cluster has a node.
    """
    heads, clusters = np.asarray(heads, dtype=int), np.asarray(node_cluster)
    changes = np.flatnonzero((heads[1:] != heads[:-1]).any(1)) + 1
    last_change = int(changes[-1]) if len(changes) else 0
    settled = None if last_change and last_change == len(heads) - 1 else last_change
    last = heads[-1]
    majority = tuple(int(np.bincount(last[clusters == c]).argmax()) for c in range(clusters.max() + 1))
    agreement = float(np.mean(last == np.array(majority)[clusters]))
    return Settlement(settled, majority, agreement, len(set(majority)) == len(majority))


def head_counts(heads: np.ndarray, node_cluster: Ints) -> np.ndarray:
    """Return the number of nodes of each cluster that chose each head.

    Args:
        heads: one chosen head per node, [N].
        node_cluster: the cluster of each node, [N], numbered from 0.
    Returns:
        Counts [K, heads].
    """
    heads, clusters = np.asarray(heads, dtype=int), np.asarray(node_cluster)
    counts = np.zeros((clusters.max() + 1, heads.max() + 1), dtype=int)
    np.add.at(counts, (clusters, heads), 1)
    return counts


def _ratio(over: np.ndarray, under: np.ndarray) -> np.ndarray:
    """Quotient, nan where the divisor is 0."""
    over, under = np.broadcast_arrays(np.asarray(over, dtype=float), np.asarray(under, dtype=float))
    return np.divide(over, under, out=np.full(over.shape, np.nan), where=under != 0)


METRICS = {
    "accuracy": accuracy,
    "accuracy_clusters": over_clusters,
    "accuracy_all": over_nodes,
    "demographic_parity": demographic_parity,
    "equalized_odds": equalized_odds,
    "fair_accuracy": fair_accuracy,
    "cost_to_target": cost_to_target,
    "interpolated_cost_to_target": interpolated_cost_to_target,
    "settlement": settlement,
    "head_counts": head_counts,
}
"""Name -> function, for `ddlsim list metrics`; a function's first docstring line describes its measure."""
