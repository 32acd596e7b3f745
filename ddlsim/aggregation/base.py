"""The contract of aggregation rules, and their result: weighted sums of rows, trimmed coordinate by coordinate.

Every rule has one or both of two steps: the rows are mixed linearly, with weights that depend on their distances, and
in every coordinate the lowest and highest values are left out before the rest is averaged. Such a rule uses only
distances and weights, so it is a function of small arrays; learning/row_operations.py measures the distances and
computes the result by the kernels, on the CPU or on a GPU. A rule with `needs_rows` sees the rows, and may return any
function of them.

Weights of models in a merge have names.

Sources: McMahan et al., AISTATS 2017 (FedAvg: by number of samples); Hagander, Listo Zec et al., "On the effects of
similarity metrics in decentralized deep learning under distributional shift", algorithm 1 line 7 (FedSim: by
similarity). With FedSim, a node's own model has the largest weight of the other models.

Mean is the algorithm's own weighted average of all models.

Metropolis-Hastings weights come from a graph.

Source: Xiao, Boyd and Lashkari, "Distributed average consensus with least-mean-square deviation", JPDC 2007.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Lt

from ddlsim.foundation.errors import ScenarioError, kind_of
from ddlsim.foundation.registry import Part

if TYPE_CHECKING:
    import torch

Tolerated = Annotated[int, Ge(0)] | Annotated[float, Gt(0), Lt(0.5)]
"""Maximum number of attackers' rows: a number, or a share of the received rows, below one half, rounded down."""


@dataclass(frozen=True)
class Rows:
    """A rule's information on the rows that it combines.

    Args:
        weights: each row's weight in the algorithm's average, [n], summing to 1.
        own: index of the node's own row; None: it has none (a server).
        distances: squared Euclidean distances, float64 [n, n]; None unless the rule needs them. If it needs a start,
            row and column n belong to the start.
        values: copies of the rows, float32 tensor [n, P], with the buffers; None unless the rule needs them.
    """

    weights: np.ndarray
    own: int | None = None
    distances: np.ndarray | None = None
    values: "torch.Tensor | None" = None

    @property
    def count(self) -> int:
        """Number of rows, n."""
        return len(self.weights)

    @property
    def sqdist(self) -> np.ndarray:
        """Return the distances, for a rule that needs them.

        Raises:
            ScenarioError: the rule does not declare that it needs them.
        """
        if self.distances is None:
            raise ScenarioError("aggregation: a rule that reads rows.sqdist must set `needs_distances = True`.")
        return self.distances


@dataclass(frozen=True)
class Combination:
    """The coordinate-wise trimmed mean of mixed rows.

    Args:
        mixing: [m, n] weights of the rows in the trimmed rows (with a start: [m, n + 1]); None: the rows themselves.
        cut: number of lowest, and of highest, values left out in every coordinate.
        kept: index of a row that joins the mean untrimmed, and is not among the trimmed rows; None: none.
    """

    mixing: np.ndarray | None = None
    cut: int = 0
    kept: int | None = None


class Aggregation(Part, ABC):
    """Base of all aggregation rules, which combine models of several nodes."""

    is_plain: ClassVar[bool] = False
    """Whether it is the algorithm's own weighted average."""
    needs_own: ClassVar[bool] = False
    """Whether it is defined around the node's own model, which a server does not have."""
    needs_distances: ClassVar[bool] = False
    """Whether it uses the distances between rows."""
    needs_start: ClassVar[bool] = False
    """Whether it compares updates: the parameters at the start of the node's last training are then one more row."""
    needs_rows: ClassVar[bool] = False
    """Whether it uses the rows themselves (`rows.values`), for any function of them; it may then return its values."""

    @abstractmethod
    def combine(self, rows: Rows) -> "Combination | torch.Tensor":
        """Return the combination of these rows; with `needs_rows` also its values, a tensor [P].

        Args:
            rows: at least one; with `needs_own` the node's own is among them.
        """


def unfit(found: Any, count: int, with_start: bool) -> str:
    """Return the reason why the result of `combine` is not valid for these rows, such as ": cut: expected ..."; empty
    if it is.

    Args:
        found: result of `combine`.
        count: number of input rows.
        with_start: whether the rule needs a start, which is one more row.
    """
    if not isinstance(found, Combination):
        return f" returns {kind_of(found)}, expected a ddlsim.aggregation.base.Combination"
    rows = count
    if found.mixing is not None:
        mixing, columns = np.asarray(found.mixing), count + with_start
        if mixing.ndim != 2 or not len(mixing) or mixing.shape[1] != columns or not np.isfinite(mixing).all():
            got = f"{mixing.tolist()}"[:500]
            return f": mixing: expected finite weights [m, {columns}] for {count} rows, got {got}"
        rows = len(mixing)
    if found.kept is not None and not 0 <= found.kept < rows:
        return f": kept: expected the index of one of {rows} rows, got {found.kept}"
    rows -= found.kept is not None and found.mixing is None
    if found.cut < 0 or 2 * found.cut >= rows:
        return f": cut: expected fewer than half of {rows} rows on either side, got {found.cut}"
    return ""


def tolerated(limit: int | float, count: int, most: int) -> int:
    """Return the assumed number of attackers' rows among `count`, at most `most` and never below 0."""
    found = int(limit * count + 1e-9) if isinstance(limit, float) else limit  # 0.29 * 100 is 28.999999999999996
    return max(0, min(found, most))


def weighted_sum(weights: "np.ndarray | Sequence[float]") -> Combination:
    """Return one row as a weighted sum of all."""
    return Combination(mixing=np.asarray(weights, np.float64)[None])


MergeName = Literal["fedavg", "fedsim", "uniform"]


def merge_weights(
    name: MergeName, own: int, samples: Mapping[int, int], scores: Mapping[int, float] | None = None
) -> dict[int, float]:
    """Return the weight of each model; the weights sum to 1.

    Args:
        name: `fedavg` (by number of samples), `fedsim` (by score), `uniform`.
        own: the merging node.
        samples: number of training samples of the node itself and of every node whose model is merged.
        scores: score of every such node except itself, for `fedsim`; negative scores count as 0, and if none is above 0
            all models have equal weights.

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


def metropolis_hastings(node: int, neighbors: Sequence[Sequence[int]], received: Collection[int]) -> dict[int, float]:
    """Return one node's row of the mixing matrix: 1 / (1 + the larger degree) for each neighbor, the rest for itself.

    Over all nodes the matrix is symmetric and doubly stochastic, so repeated mixing leads to the plain mean. Messages
    of several rounds, with different graphs, may outnumber the node's neighbors; then their number counts as its
    degree, so that no weight is negative.

    Args:
        node: the node of the row.
        neighbors: per node its neighbors' ids; symmetric.
        received: the nodes whose parameters arrived; the weights of other neighbors are added to the node's own.

    Returns:
        Node id -> weight, ordered by id, including the node itself; they sum to 1.
    """
    degree = max(len(neighbors[node]), len(received))
    weights = {peer: 1 / (1 + max(degree, len(neighbors[peer]))) for peer in received}
    weights[node] = 1 - sum(weights.values())
    return dict(sorted(weights.items()))
