"""The contract of aggregation rules, and what they answer: weighted sums of rows, trimmed coordinate by coordinate.

Every rule here is one of two kinds, or one after the other: the rows are mixed linearly, with weights that depend on
their distances, and in every coordinate the lowest and highest values are left out before the rest is averaged. A rule
sees distances and weights alone, never the rows, so it is a function of small arrays; learning/row_operations.py
measures
the distances and computes the result by the kernels, on the CPU or on a GPU.

What a model weighs in a merge, by name.

Sources: McMahan et al., AISTATS 2017 (FedAvg: by number of samples); Hagander, Listo Zec et al., "On the effects of
similarity metrics in decentralized deep learning under distributional shift", algorithm 1 line 7 (FedSim: by
similarity). A node's own model weighs, under FedSim, as much as the heaviest of the others.

The algorithm's own weighted average, which every model joins.

Metropolis-Hastings weights of a graph.

Source: Xiao, Boyd and Lashkari, "Distributed average consensus with least-mean-square deviation", JPDC 2007.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Lt

from ddlsim.foundation.errors import ScenarioError, kind_of
from ddlsim.foundation.part import Part

Tolerated = Annotated[int, Ge(0)] | Annotated[float, Gt(0), Lt(0.5)]
"""How many of the rows may be attackers': a number, or a share of the rows at hand, below one half, rounded down."""


@dataclass(frozen=True)
class Rows:
    """What a rule knows of the rows that it combines.

    Args:
        weights: what the algorithm would give each row in its average, [n], summing to 1.
        own: the place of the node's own row; None: it has none (a server).
        distances: squared Euclidean distances, float64 [n, n]; None unless the rule needs them. Where it needs a
        start, row and column n belong to that.
    """

    weights: np.ndarray
    own: int | None = None
    distances: np.ndarray | None = None

    @property
    def count(self) -> int:
        """How many rows there are, n."""
        return len(self.weights)

    @property
    def sqdist(self) -> np.ndarray:
        """The distances of a rule that needs them.

        Raises:
            ScenarioError: the rule does not say that it does.
        """
        if self.distances is None:
            raise ScenarioError("aggregation: a rule that reads rows.sqdist has to say `needs_distances = True`.")
        return self.distances


@dataclass(frozen=True)
class Combination:
    """The coordinate-wise trimmed mean of mixed rows.

    Args:
        mixing: [m, n] weights of the rows in what is trimmed (with a start: [m, n + 1]); None: the rows themselves.
        cut: how many of the lowest, and of the highest, values are left out in every coordinate.
        kept: the place of a row that joins the mean untrimmed, and is not among those that are trimmed; None: none.
    """

    mixing: np.ndarray | None = None
    cut: int = 0
    kept: int | None = None


class Aggregation(Part, ABC):
    """Base of all aggregation rules: how models of several nodes become one."""

    is_plain: ClassVar[bool] = False
    """Whether it is the algorithm's own weighted average."""
    needs_own: ClassVar[bool] = False
    """Whether it is defined around the node's own model, which a server does not have."""
    needs_distances: ClassVar[bool] = False
    """Whether it looks at the distances between rows."""
    needs_start: ClassVar[bool] = False
    """Whether it compares updates: what the node's last training began with is then one more row."""

    @abstractmethod
    def combine(self, rows: Rows) -> Combination:
        """How these rows become one.

        Args:
            rows: at least one; with `needs_own` the node's own is among them.
        """


def unfit(found: Any, count: int, with_start: bool) -> str:
    """Why what `combine` returns is no combination of so many rows, such as ": cut: expected ..."; empty: it is one.

    Args:
        found: what it returns.
        count: of rows that it was given.
        with_start: whether the rule needs a start, which is one more row.
    """
    if not isinstance(found, Combination):
        return f" returns {kind_of(found)}, expected a ddlsim.aggregation.base.Combination"
    rows = count
    if found.mixing is not None:
        shape, seen = np.shape(found.mixing), count + with_start
        expected = f": mixing: expected finite weights [m, {seen}] for {count} rows, got"
        if len(shape) != 2 or shape[0] == 0 or shape[1] != seen:
            return f"{expected} an array {list(shape)}"
        if not np.isfinite(found.mixing).all():
            return f"{expected} {np.asarray(found.mixing).tolist()}"
        rows = shape[0]
    if found.kept is not None and not 0 <= found.kept < rows:
        return f": kept: expected the place of one of {rows} rows, got {found.kept}"
    rows -= found.kept is not None and found.mixing is None
    if found.cut < 0 or 2 * found.cut >= rows:
        return f": cut: expected fewer than half of {rows} rows on either side, got {found.cut}"
    return ""


def tolerated(asked: int | float, count: int, most: int) -> int:
    """How many of `count` rows are taken to be attackers', at most `most` and never below 0."""
    found = int(asked * count + 1e-9) if isinstance(asked, float) else asked  # 0.29 * 100 is 28.999999999999996
    return max(0, min(found, most))


def weighted_sum(weights: "np.ndarray | Sequence[float]") -> Combination:
    """One row as a weighted sum of all."""
    return Combination(mixing=np.asarray(weights, np.float64)[None])


MergeName = Literal["fedavg", "fedsim", "uniform"]


def weights(
    name: MergeName, own: int, samples: Mapping[int, int], scores: Mapping[int, float] | None = None
) -> dict[int, float]:
    """What each model weighs; the weights sum to 1.

    Args:
        name: `fedavg` (by number of samples), `fedsim` (by score), `uniform`.
        own: the merging node.
        samples: training samples of the node itself and of every node whose model is merged.
        scores: of every such node but itself, for `fedsim`; negative ones count as 0, and if none is above 0 all models
            weigh the same.

    Returns:
        Node id -> weight.
    """
    raw: Mapping[int, float] = dict.fromkeys(samples, 1.0)
    if name == "fedavg":
        raw = samples
    elif name == "fedsim" and scores:
        positive = {peer: max(0.0, score) for peer, score in scores.items()}
        heaviest = max(positive.values())
        if heaviest > 0:
            raw = positive | {own: heaviest}
    total = sum(raw.values())
    return {peer: raw[peer] / total for peer in samples}


@dataclass(frozen=True, kw_only=True)
class Mean(Aggregation):
    """The algorithm's own weighted average: no defense."""

    is_plain: ClassVar[bool] = True

    def combine(self, rows: Rows) -> Combination:
        return weighted_sum(rows.weights)


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
