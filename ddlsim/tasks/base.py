"""The contract of a task that a scenario can name.

A task defines the loss that training minimizes, the number of a model's outputs, the counts of an evaluation, the
metrics computed from them, and the better direction of each metric.

Checks of labels return texts for messages.

A metric has a name, words for reports, and a better direction.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from ddlsim.foundation import own_code
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.registry import Part

if TYPE_CHECKING:
    import torch


def not_classes(labels: np.ndarray, num_classes: int, shape: tuple[int, ...] | None = None) -> str:
    """Return the reason why labels are not classes 0..num_classes-1, one or T per sample; empty if they are.

    Args:
        labels: of any shape.
        num_classes: number of classes.
        shape: of all labels, if these are only some.
    """
    shape = labels.shape if shape is None else shape
    if len(shape) not in (1, 2) or not np.issubdtype(labels.dtype, np.integer):
        return f"must be whole numbers [n] or [n, T], got {labels.dtype} {list(shape)}"
    if labels.min() < 0 or labels.max() >= num_classes:
        return f"must be 0..{num_classes - 1}, got {labels.min()}..{labels.max()}"
    return ""


@dataclass(frozen=True)
class Metric:
    """One number per node and evaluation.

    Args:
        name: of its rows and columns, such as `accuracy`.
        title: in words, such as `mean squared error`; empty: the name.
        short: for narrow columns; empty: the name.
        higher_is_better: whether more is better; false of errors and perplexity.
        share: whether it is a share, 0 to 1, which people read in percent.
        digits: decimals in reports, where it is not a share.
    """

    name: str
    title: str = ""
    short: str = ""
    higher_is_better: bool = True
    share: bool = False
    digits: int = 2

    @property
    def words(self) -> str:
        """The title without its unit."""
        return self.title or self.name.replace("_", " ")

    @property
    def head(self) -> str:
        """The title as a table's line has it: `accuracy %`."""
        return f"{self.words} %" if self.share else self.words

    @property
    def column(self) -> str:
        """The word for a narrow column: `acc`."""
        return self.short or self.name

    @property
    def scale(self) -> int:
        """Factor of displayed values: 100 for shares."""
        return 100 if self.share else 1

    @property
    def unit(self) -> Literal["percent", "number"]:
        """Unit of printed numbers."""
        return "percent" if self.share else "number"

    @property
    def falling(self) -> bool:
        """Whether lower is better."""
        return not self.higher_is_better

    def text(self, value: float | None, digits: int | None = None) -> str:
        """A value for people: shares in percent without the sign, `-` for none."""
        if value is None or math.isnan(value):
            return "-"
        return f"{100 * value:.2f}" if self.share else f"{value:.{self.digits if digits is None else digits}f}"

    def number(self, value: float) -> float:
        """Return the recorded value: the worst one for a model that has diverged, so that a mean over nodes, which
        skips absent values, does not skip it.
        """
        return math.inf if self.falling and math.isnan(value) else value

    def plain(self) -> dict[str, Any]:
        """For a manifest."""
        return asdict(self)


ACCURACY = Metric("accuracy", short="acc", share=True)
MSE = Metric("mse", "mean squared error", higher_is_better=False)
PERPLEXITY = Metric("perplexity", short="ppl", higher_is_better=False)
TOKEN_ACCURACY = Metric("token_accuracy", short="token acc", share=True)
F1_MACRO = Metric("f1_macro", "macro F1", "F1 macro", share=True)
F1_MICRO = Metric("f1_micro", "micro F1", "F1 micro", share=True)
AUROC = Metric("auroc", "area under the ROC curve", "AUROC", digits=4)

KNOWN = {metric.name: metric for metric in (ACCURACY, MSE, PERPLEXITY, TOKEN_ACCURACY, F1_MACRO, F1_MICRO, AUROC)}
"""The metrics of ddlsim's own tasks by name."""

VALIDATION, VALIDATION_LOSS = "validation_", "loss_validation"
"""Before the name of a metric: its rows on validation samples; and the rows of the loss on them."""

TRAIN_LOSS, CONSENSUS = "train_loss", "consensus_distance"
"""Rows of training.jsonl: a node's mean loss over the local steps of a round, and the squared distance of its model to
the average of all.
"""

ROWS = frozenset(
    [
        *("test_loss", "validation_loss", VALIDATION_LOSS, TRAIN_LOSS, CONSENSUS, "confusion", "evaluated_head"),
        *("bytes_sent", "joules", "epsilon", "backdoor_success", "secure_sum", "secure_dropouts"),
        *("online", "aborted", "cut_off", "sits_out", "empty", "stopped"),
        *("round_first_s", "round_median_s", "round_last_s", "round_nodes"),
    ]
)
"""Names of further rows that the simulator writes and reports read."""

ELSEWHERE = frozenset(
    [
        *("as_published", "estimated", "step_times", "profile", "device_seconds", "waves", "paths", "fallback_counts"),
        *("round", "time_s", "bytes", "gco2", "fair_accuracy", "first_s", "median_s", "last_s", "nodes"),  # tables
        *("minority", "majority", "worst_cluster", "best_cluster", "worst_node", "metric"),  # comparisons
        *("schema_version", "status", "scenario", "algorithm", "cluster_sizes", "rounds", "evaluated_round", "seed"),
        *("device", "data", "task", "judged_by", "also_measured", "honest", "attacked", "attacks", "timetable"),
        *("links", "energy", "privacy", "secure_aggregation", "sim_time_s", "wall_s", "target", "settlement"),
        *("diverged", "language_model", "time_use", "labels", "peak_rss_mib", "checks"),
        *("demographic_parity", "equalized_odds"),
    ]
)
"""Other names of columns, of views and, from `schema_version` on, of figures of a summary."""


def rows_of(metrics: Iterable[Metric]) -> frozenset[str]:
    """Return the names of the rows of metrics, including the rows of the head that the test set chooses."""
    return frozenset(name for each in metrics for name in (each.name, f"{each.name}_lowest_test_loss"))


def name_conflict(metric: Metric, others: Iterable[Metric]) -> str:
    """Return the other meaning of a metric's name in a run; empty if there is none.

    Args:
        metric: one that is not in KNOWN.
        others: the other metrics of its task.
    """
    name = metric.name
    if name in ROWS or name in ELSEWHERE or name.startswith("cluster_") or name.endswith("_lowest_test_loss"):
        return "something else in the records, tables and figures of a run"
    first, _, last = name.rpartition("_")
    if first in {*ROWS, *KNOWN, *(each.name for each in others)} and (last == "std" or last.isdigit()):
        return f"the {'deviation' if last == 'std' else 'cluster'} of {first} in tables"
    return ""


def metric_named(name: str) -> Metric:
    """Return the metric of this name; for an unknown name, a metric of which higher is better."""
    return KNOWN.get(name, Metric(name))


def loss_rows(metric: Metric, records_loss: bool) -> tuple[str, ...]:
    """The rows whose value is not finite where a node's training has diverged.

    Args:
        metric: metric that nodes are judged by.
        records_loss: whether the loss has its own rows; if not, an error metric is used instead.
    """
    if records_loss:
        return ("test_loss",)
    return (metric.name,) if metric.falling else ()


def metric_of(manifest: Mapping[str, Any]) -> Metric:
    """Return the metric of a run's nodes.

    Args:
        manifest: of the run.
    """
    return Metric(**manifest["metric"]) if "metric" in manifest else ACCURACY


Reduction = Literal["mean", "sum", "none"]


def reduce(losses: "torch.Tensor", reduction: Reduction) -> "torch.Tensor":
    """Return the mean or the sum of losses per sample [n]; or the losses themselves."""
    return losses if reduction == "none" else losses.sum() if reduction == "sum" else losses.mean()


class Task(Part, ABC):
    """Base of the entries of TASKS: frozen dataclasses.

    n samples have labels [n, ...] and a model's outputs [n, ...]; evaluations count for N models side by side, which
    have outputs [N, n, ...] and labels [N, n, ...].
    """

    has_classes: ClassVar[bool] = False
    """Whether each sample has one class as its label. Partitions, shifts and algorithms that go by classes work then,
    `statistics` are confusion matrices int64 [N, C, C] (row: true class), which are recorded, and fairness over classes
    is defined."""

    keeps_samples: ClassVar[bool] = False
    """Whether `statistics` are of each sample, [N, n, ...], and concatenated, for scores that cannot be summed
    (ranks of scores); otherwise they are summed over batches."""

    records_loss: ClassVar[bool] = True
    """Whether the loss is recorded in addition to the metrics; false where a metric is the loss."""

    label_dtype: ClassVar[str] = "int64"
    """numpy's name of the labels' type."""

    labels_in_words: ClassVar[str] = "any"
    """Description of valid labels, for messages."""

    measured: ClassVar[tuple[Metric, ...]]
    """All that its evaluations measure."""

    metric: Any = None
    """Name of the metric that nodes are judged by: targets, tables and figures are of it; None: the first of
    `measured`. A key of the scenario where a subclass makes it a field."""

    @property
    def judged_by(self) -> Metric:
        """The metric of that name.

        Raises:
            ScenarioError: if the task does not measure it.
        """
        found = next((each for each in self.measured if self.metric in (None, each.name)), None)
        if found is None:
            place, known = own_code.where(type(self)), ", ".join(each.name for each in self.measured) or "nothing"
            text = f"{f'{place}: ' if place else ''}{type(self).__name__} measures {known}"
            raise ScenarioError(f"metric: unknown metric {self.metric!r}. {text}. Choose one, or add it to `measured`.")
        return found

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Metrics recorded at an evaluation, `judged_by` first. Default: all measured metrics."""
        return (self.judged_by, *(each for each in self.measured if each is not self.judged_by))

    def num_outputs(self, num_classes: int, label_shape: tuple[int, ...]) -> int:
        """Return the number of values that a model returns, per label if a sample has several.

        Args:
            num_classes: the data set's.
            label_shape: of one sample's labels; () of a single one.
        """
        return num_classes

    def output_shape(self, num_outputs: int, label_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a model's outputs for one sample. Default: a row of values for every label."""
        return (*label_shape, num_outputs)

    def wrong_labels(self, labels: np.ndarray, num_classes: int) -> str:
        """Return the problem of labels [n, ...], n at least 1, `must be ..., got ...`; empty if there is none. Default:
        none.
        """
        return ""

    @abstractmethod
    def loss(self, outputs: "torch.Tensor", labels: "torch.Tensor", reduction: Reduction = "mean") -> "torch.Tensor":
        """Return the differentiable training loss.

        Args:
            outputs: of a model, float32 [n, ...].
            labels: [n, ...].
            reduction: mean or sum over samples: a scalar; none: one value per sample, [n].
        """

    @abstractmethod
    def statistics(self, outputs: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
        """Return the statistics of one batch of an evaluation, for N stacked models.

        Args:
            outputs: [N, n, ...].
            labels: [N, n, ...].
        Returns:
            [N, ...], summed over batches; or [N, n, ...] where it `keeps_samples`.
        """

    @abstractmethod
    def measures(self, statistics: np.ndarray, loss: float) -> Mapping[str, float]:
        """Return the metrics of one model from its statistics over the evaluation set.

        Args:
            statistics: [...], the sum over batches; or [samples, ...] where it `keeps_samples`.
            loss: mean over samples.
        Returns:
            Name of each of `measured` -> value; nan: not defined on these samples.
        """

    def confusion(self, statistics: np.ndarray) -> np.ndarray | None:
        """Return the confusion matrix int64 [C, C] in the statistics of one model; None without classes."""
        return statistics if self.has_classes else None

    def values(self, statistics: np.ndarray, loss: float) -> tuple[float, ...]:
        """`measures` in the order of `metrics`, as they are recorded: with a loss that is not a finite number the model
        has diverged, see Metric.number.
        """
        found: Any = self.measures(statistics, loss)
        values = [(metric, float(found[metric.name])) for metric in self.metrics]
        return tuple(value if math.isfinite(loss) else metric.number(value) for metric, value in values)
