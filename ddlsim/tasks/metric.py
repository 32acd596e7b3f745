"""What a node is measured by, as reports need to know it: its name, its words, and which direction is better."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Metric:
    """One number per node and evaluation.

    Args:
        name: of its rows and columns, such as `accuracy`.
        title: in words, such as `mean squared error`; empty: the name.
        short: for narrow columns; empty: the name.
        higher_is_better: whether more is better; false of errors and perplexity.
        share: whether it is a share, 0 to 1, which people read in percent.
        digits: decimals in reports, where it is no share.
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
    def axis(self) -> str:
        """The label of an axis: `accuracy (%)`."""
        return f"{self.words} (%)" if self.share else self.words

    @property
    def column(self) -> str:
        """The word for a narrow column: `acc`."""
        return self.short or self.name

    @property
    def scale(self) -> int:
        """What values are multiplied by where they are shown: 100 for shares."""
        return 100 if self.share else 1

    @property
    def unit(self) -> Literal["percent", "number"]:
        """How its numbers are printed."""
        return "percent" if self.share else "number"

    @property
    def falling(self) -> bool:
        """Whether lower is better."""
        return not self.higher_is_better

    @property
    def axis_scale(self) -> str:
        """matplotlib's name of the axis: logarithmic where lower is better."""
        return "log" if self.falling else "linear"

    def text(self, value: float | None, digits: int | None = None) -> str:
        """A value for people: shares in percent without the sign, `-` for none."""
        if value is None or math.isnan(value):
            return "-"
        return f"{100 * value:.2f}" if self.share else f"{value:.{self.digits if digits is None else digits}f}"

    def number(self, value: float) -> float:
        """A value as it is recorded: of a model that has diverged the worst one, so that a mean over nodes which skips
        absent ones does not skip it.
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

ROWS = frozenset(
    {
        *(
            "test_loss",
            "validation_loss",
            VALIDATION_LOSS,
            "confusion",
            "bytes_sent",
            "evaluated_head",
            "backdoor_success",
            "joules",
        ),
        *("epsilon", "online", "aborted", "cut_off", "empty", "stopped", "secure_sum", "secure_dropouts"),
        *("round_first_s", "round_median_s", "round_last_s", "round_nodes"),
    }
)
"""Names of rows that the simulator writes beside those of metrics, and reports read."""

ELSEWHERE = frozenset(
    {
        *("round", "time_s", "bytes", "gco2", "fair_accuracy", "first_s", "median_s", "last_s", "nodes"),  # tables
        *("minority", "majority", "worst_cluster", "best_cluster", "worst_node", "metric"),  # comparisons
        *("schema_version", "status", "scenario", "algorithm", "cluster_sizes", "rounds", "evaluated_round", "seed"),
        *("device", "data", "task", "judged_by", "also_measured", "honest", "attacked", "attacks", "timetable"),
        *("links", "energy", "privacy", "secure_aggregation", "sim_time_s", "wall_s", "target", "settlement"),
        *("diverged", "labels", "peak_rss_mib", "demographic_parity", "equalized_odds"),
        *("profile", "device_seconds", "waves", "paths", "detours"),
    }
)
"""Other names of columns, of views and, from `schema_version` on, of figures of a summary."""


def rows_of(metrics: Iterable[Metric]) -> frozenset[str]:
    """Names of the rows of metrics, those of the head that the test set chooses among them."""
    return frozenset(name for each in metrics for name in (each.name, f"{each.name}_lowest_test_loss"))


def taken(metric: Metric, beside: Iterable[Metric]) -> str:
    """What a metric's name stands for already, where one looks for it; empty: for nothing.

    Args:
        metric: one that is none of KNOWN.
        beside: the others of its task.
    """
    name = metric.name
    if name in ROWS or name in ELSEWHERE or name.startswith("cluster_") or name.endswith("_lowest_test_loss"):
        return "something else in the records, tables and figures of a run"
    first, _, last = name.rpartition("_")
    if first in {*ROWS, *KNOWN, *(each.name for each in beside)} and (last == "std" or last.isdigit()):
        return f"the {'deviation' if last == 'std' else 'cluster'} of {first} in tables"
    return ""


def metric_named(name: str) -> Metric:
    """What is known of a metric by its name alone: of a task from outside that more is better."""
    return KNOWN.get(name, Metric(name))


def loss_rows(metric: Metric, records_loss: bool) -> tuple[str, ...]:
    """The rows whose value is not finite where a node's training has diverged.

    Args:
        metric: what nodes are judged by.
        records_loss: whether the loss has rows of its own; where it has none, a metric that is an error stands for it.
    """
    if records_loss:
        return ("test_loss",)
    return (metric.name,) if metric.falling else ()


def metric_of(manifest: Mapping[str, Any]) -> Metric:
    """What the nodes of a run were measured by.

    Args:
        manifest: of the run; one without `metric` is older than tasks by name.
    """
    found = manifest.get("metric")
    if isinstance(found, Mapping):
        known = {key: value for key, value in found.items() if key in Metric.__dataclass_fields__}
        return Metric(**known)
    return MSE if manifest.get("task") == "regression" else ACCURACY
