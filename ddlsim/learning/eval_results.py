"""Results of evaluations: the counts of a task, accumulated batch after batch, and the metrics computed from them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from ddlsim.kernels.transfers import downloaded
from ddlsim.tasks import Task

Loss = Callable[..., torch.Tensor]
"""(outputs, labels, reduction) -> loss, see tasks/base.py: Task.loss."""


class EvalResult(NamedTuple):
    """One model on an evaluation set.

    Args:
        values: of the task's metrics, in their order.
        loss: mean over samples.
        confusion: counts int64 [C, C], row: true class; None of a task without classes.
    """

    values: tuple[float, ...]
    loss: float
    confusion: np.ndarray | None = None


class MetricSum:
    """The statistics of N models.

    Args:
        task: defines the counts.
        count: N.
        device: device of the counts.
    """

    def __init__(self, task: Task, count: int, device: torch.device):
        self._task = task
        self._batches: list[torch.Tensor] = []
        self._losses = torch.zeros(count, dtype=torch.float64, device=device)
        self._samples = 0

    def add(self, outputs: torch.Tensor, labels: torch.Tensor, losses: torch.Tensor) -> None:
        """Count one batch.

        Args:
            outputs: [N, n, ...].
            labels: [N, n, ...].
            losses: summed over the batch, [N].
        """
        found = self._task.statistics(outputs, labels)
        if self._batches and not self._task.keeps_samples:
            self._batches[0] = self._batches[0] + found
        else:
            self._batches.append(found)
        self._losses += losses
        self._samples += labels.shape[1]

    def results(self) -> list[EvalResult]:
        """Return the metrics of each model, computed from the counts."""
        return self.results_later()()

    def results_later(self) -> Callable[[], list[EvalResult]]:
        """Start copying the counts to the host; return a function that waits for them and returns the result of
        `results`.
        """
        statistics = downloaded(torch.cat(self._batches, dim=1) if self._task.keeps_samples else self._batches[0])
        losses, samples = downloaded(self._losses), self._samples

        def get() -> list[EvalResult]:
            found = []
            for own, total in zip(statistics(), losses().tolist(), strict=True):
                loss = total / samples
                confusion = own if self._task.has_classes else None
                found.append(EvalResult(self._task.values(own, loss), loss, confusion))
            return found

        return get
