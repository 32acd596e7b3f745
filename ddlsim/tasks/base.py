"""The contract of a task that a scenario can name.

A task is asked for everything that depends on what is learned: the loss that training lowers, how many outputs a model
has, what an evaluation counts, what becomes of these counts, and whether more or less of it is better.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from ddlsim import own_code
from ddlsim.errors import ScenarioError
from ddlsim.part import Part
from ddlsim.tasks.metric import Metric

if TYPE_CHECKING:
    import torch

Reduction = Literal["mean", "sum", "none"]


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
    """Whether `statistics` are of each sample, [N, n, ...], and laid one behind the other, for what cannot be summed
    (ranks of scores); otherwise they are summed over batches."""

    records_loss: ClassVar[bool] = True
    """Whether the loss is recorded beside the metrics; false where a metric is the loss."""

    label_dtype: ClassVar[str] = "int64"
    """numpy's name of the labels' type."""

    labels_in_words: ClassVar[str] = "any"
    """Which labels it takes, for messages."""

    measured: ClassVar[tuple[Metric, ...]]
    """All that its evaluations measure."""

    metric: Any = None
    """Name of the metric that nodes are judged by: targets, tables and figures are of it; None: the first of
    `measured`. A key of the scenario where a subclass makes it a field."""

    @property
    def judged_by(self) -> Metric:
        """The metric of that name.

        Raises:
            ScenarioError: if there is none.
        """
        found = next((each for each in self.measured if self.metric in (None, each.name)), None)
        if found is None:
            place, known = own_code.where(type(self)), ", ".join(each.name for each in self.measured) or "nothing"
            raise ScenarioError(
                f"metric: unknown metric {self.metric!r}. {f'{place}: ' if place else ''}{type(self).__name__} "
                f"measures {known}. Choose one of these, or add a Metric of that name to `measured`."
            )
        return found

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What is recorded at an evaluation, `judged_by` first. Default: all that is measured."""
        return (self.judged_by, *(each for each in self.measured if each is not self.judged_by))

    def num_outputs(self, num_classes: int, label_shape: tuple[int, ...]) -> int:
        """How many values a model returns, per label where a sample has several.

        Args:
            num_classes: what the data set says.
            label_shape: of one sample's labels; () of a single one.
        """
        return num_classes

    def output_shape(self, num_outputs: int, label_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Of a model's outputs for one sample. Default: a row of values for every label."""
        return (*label_shape, num_outputs)

    def wrong_labels(self, labels: np.ndarray, num_classes: int) -> str:
        """What is wrong with labels [n, ...], n at least 1, `must be ..., got ...`; empty if nothing is. Default:
        nothing."""
        return ""

    @abstractmethod
    def loss(self, outputs: "torch.Tensor", labels: "torch.Tensor", reduction: Reduction = "mean") -> "torch.Tensor":
        """What training lowers, differentiable.

        Args:
            outputs: of a model, float32 [n, ...].
            labels: [n, ...].
            reduction: mean or sum over samples: a scalar; none: one value per sample, [n].
        """

    @abstractmethod
    def statistics(self, outputs: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
        """What an evaluation counts in one batch, for N models side by side.

        Args:
            outputs: [N, n, ...].
            labels: [N, n, ...].
        Returns:
            [N, ...], summed over batches; or [N, n, ...] where it `keeps_samples`.
        """

    @abstractmethod
    def measures(self, statistics: np.ndarray, loss: float) -> Mapping[str, float]:
        """What the statistics of one model come to over its evaluation set.

        Args:
            statistics: [...], the sum over batches; or [samples, ...] where it `keeps_samples`.
            loss: mean over samples.
        Returns:
            Name of each of `measured` -> value; nan: not defined on these samples.
        """

    def values(self, statistics: np.ndarray, loss: float) -> tuple[float, ...]:
        """`measures` in the order of `metrics`, as they are recorded: with a loss that is no finite number the model
        has diverged, see Metric.number.
        """
        found: Any = self.measures(statistics, loss)
        values = [(metric, float(found[metric.name])) for metric in self.metrics]
        return tuple(value if math.isfinite(loss) else metric.number(value) for metric, value in values)
