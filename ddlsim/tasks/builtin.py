"""Classification: each sample has one class, or one at every position of a sequence.

Multi-label prediction: each sample has any number of L labels, also none or all.

Regression: each sample has one number.

Next-token prediction: language models over characters or words.

Scores of predictions are functions of arrays, as scikit-learn and torchmetrics define them. A label with neither true
nor predicted samples has no F1, a label with only positive or only negative samples no AUROC: means over labels leave
such labels out (scikit-learn's `zero_division=nan`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from ddlsim.tasks import base
from ddlsim.tasks.base import Metric, Reduction, Task

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Classification(Task):
    """One of several classes per sample: cross-entropy, judged by accuracy.

    Args:
        metric: metric that nodes are judged by: accuracy; or f1_macro, with accuracy recorded too.
    """

    has_classes: ClassVar = True
    labels_in_words: ClassVar = "whole numbers from 0, [n] or [n, T]"
    measured: ClassVar = (base.ACCURACY, base.F1_MACRO)

    metric: Literal["accuracy", "f1_macro"] = "accuracy"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metric that nodes are judged by, accuracy, and the metrics that a subclass adds."""
        further = (each for each in self.measured if each not in Classification.measured)
        return tuple(dict.fromkeys((self.judged_by, base.ACCURACY, *further)))

    def wrong_labels(self, labels: np.ndarray, num_classes: int) -> str:
        return base.not_classes(labels, num_classes)

    def loss(self, outputs: "torch.Tensor", labels: "torch.Tensor", reduction: Reduction = "mean") -> "torch.Tensor":
        """Cross-entropy of logits [n, C] and labels int64 [n], or of [n, T, C] and [n, T] (the mean over T)."""
        from torch.nn import functional as F

        if labels.dim() == 1:
            return F.cross_entropy(outputs, labels, reduction=reduction)
        each = F.cross_entropy(outputs.flatten(0, -2), labels.flatten(), reduction="none")
        losses = each.view(len(labels), -1).mean(dim=1)
        return base.reduce(losses, reduction)

    def statistics(self, outputs: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
        """Confusion matrices int64 [N, C, C]; row: true class."""
        import torch

        count, classes = len(outputs), outputs.shape[-1]
        model = torch.arange(count, device=labels.device).view(-1, *[1] * (labels.dim() - 1))
        cells = (model * classes + labels) * classes + outputs.argmax(dim=-1)
        return _counts(cells.flatten(), count * classes * classes).view(count, classes, classes)

    def measures(self, statistics: np.ndarray, loss: float) -> Mapping[str, float]:
        return {"accuracy": float(np.trace(statistics) / statistics.sum()), "f1_macro": f1_of_confusion(statistics)}


def _counts(values: "torch.Tensor", size: int) -> "torch.Tensor":
    """Return the counts of 0 .. size-1 among values int64 [n], int64 [size]."""
    import torch

    if values.device.type == "cpu":
        return torch.bincount(values, minlength=size)
    return torch.zeros(size, dtype=torch.int64, device=values.device).index_add_(  # bincount has the host wait
        0, values, torch.ones_like(values)
    )


@dataclass(frozen=True, kw_only=True)
class MultiLabel(Task):
    """Any number of L labels per sample: binary cross-entropy of each, judged by F1 or the area under the ROC curve.

    A label is predicted where its output is above 0 (probability 1/2). Of one label per sample, [n, 1], it is binary
    classification with an AUROC.

    Args:
        metric: metric that nodes are judged by: f1_macro (mean over labels), f1_micro (of all labels' counts together),
            or auroc (mean over labels); all are recorded.
    """

    keeps_samples: ClassVar = True
    labels_in_words: ClassVar = "0 or 1 for each of L labels, [n, L]"
    measured: ClassVar = (base.F1_MACRO, base.F1_MICRO, base.AUROC)

    metric: Literal["f1_macro", "f1_micro", "auroc"] = "f1_macro"

    def num_outputs(self, num_classes: int, label_shape: tuple[int, ...]) -> int:
        """L."""
        return label_shape[0] if label_shape else num_classes

    def output_shape(self, num_outputs: int, label_shape: tuple[int, ...]) -> tuple[int, ...]:
        """[L]."""
        return (num_outputs,)

    def wrong_labels(self, labels: np.ndarray, num_classes: int) -> str:
        if labels.ndim == 2 and np.isin(labels, (0, 1)).all():
            return ""
        found = f", {labels.min()}..{labels.max()}" if labels.size else ""
        return f"must be {self.labels_in_words}, got {labels.dtype} {list(labels.shape)}{found}"

    def loss(self, outputs: "torch.Tensor", labels: "torch.Tensor", reduction: Reduction = "mean") -> "torch.Tensor":
        """Binary cross-entropy of logits [n, L] and labels [n, L], the mean over L."""
        from torch.nn import functional as F

        each = F.binary_cross_entropy_with_logits(outputs, labels.to(outputs.dtype), reduction="none").mean(dim=1)
        return base.reduce(each, reduction)

    def statistics(self, outputs: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
        """Scores and labels of every sample, float32 [N, n, 2, L]."""
        import torch

        return torch.stack([outputs, labels.to(outputs.dtype)], dim=2)

    def measures(self, statistics: np.ndarray, loss: float) -> Mapping[str, float]:
        scores, labels = statistics[:, 0], statistics[:, 1] > 0
        macro, micro = f1(scores > 0, labels, "macro"), f1(scores > 0, labels, "micro")
        return {"f1_macro": macro, "f1_micro": micro, "auroc": auroc(scores, labels)}


@dataclass(frozen=True, kw_only=True)
class Regression(Task):
    """One number per sample: squared error, judged by its mean."""

    records_loss: ClassVar = False
    label_dtype: ClassVar = "float32"
    labels_in_words: ClassVar = "finite float32 numbers, [n]"
    measured: ClassVar = (base.MSE,)

    def num_outputs(self, num_classes: int, label_shape: tuple[int, ...]) -> int:
        """One."""
        return 1

    def wrong_labels(self, labels: np.ndarray, num_classes: int) -> str:
        if labels.ndim == 1 and labels.dtype == np.float32 and np.isfinite(labels).all():
            return ""
        return f"must be {self.labels_in_words}, got {labels.dtype} {list(labels.shape)}"

    def loss(self, outputs: "torch.Tensor", labels: "torch.Tensor", reduction: Reduction = "mean") -> "torch.Tensor":
        """Squared difference of outputs [n, 1] and labels float32 [n]."""
        from torch.nn import functional as F

        return F.mse_loss(outputs.squeeze(-1), labels, reduction=reduction)

    def statistics(self, outputs: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
        """Return empty statistics, [N, 0]: the loss is sufficient."""
        return outputs.new_zeros(len(outputs), 0)

    def measures(self, statistics: np.ndarray, loss: float) -> Mapping[str, float]:
        return {"mse": loss}


IGNORED = -100
"""A label that does not count (padding), as torch.nn.functional.cross_entropy has it."""


@dataclass(frozen=True, kw_only=True)
class NextToken(Task):
    """The next token after every position of a sequence, or after its end: cross-entropy, judged by perplexity.

    A sample's loss is the mean over its positions. Labels of -100 (padding) do not count; every sample has others.

    Args:
        metric: metric that nodes are judged by: perplexity (e to the mean loss per token), or token_accuracy; both are
            recorded.
    """

    labels_in_words: ClassVar = "token ids from 0, [n, T] or [n], -100 at positions that do not count"
    measured: ClassVar = (base.PERPLEXITY, base.TOKEN_ACCURACY)

    metric: Literal["perplexity", "token_accuracy"] = "perplexity"

    def wrong_labels(self, labels: np.ndarray, num_classes: int) -> str:
        counted = labels != IGNORED
        empty = int((~counted.reshape(len(labels), -1).any(axis=1)).sum())
        if empty:
            return f"must have a token id other than -100 in every sample, got {empty} of {len(labels)} without"
        return base.not_classes(labels[counted], num_classes, labels.shape)

    def loss(self, outputs: "torch.Tensor", labels: "torch.Tensor", reduction: Reduction = "mean") -> "torch.Tensor":
        """Cross-entropy of logits [n, T, V] and labels int64 [n, T] (the mean over T), or of [n, V] and [n]."""
        losses = self._of_tokens(outputs, labels)
        if labels.dim() > 1:
            counted = (labels != IGNORED).flatten(1)
            losses = losses.flatten(1).sum(dim=1) / counted.sum(dim=1).clamp(min=1)
        return base.reduce(losses, reduction)

    def _of_tokens(self, outputs: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
        """The loss of every token, in the labels' shape; 0 where it does not count."""
        from torch.nn import functional as F

        each = F.cross_entropy(outputs.flatten(0, -2), labels.flatten(), reduction="none", ignore_index=IGNORED)
        return each.view(labels.shape)

    def statistics(self, outputs: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
        """Summed loss, right and counted tokens, float64 [N, 3]."""
        import torch

        counted = labels != IGNORED
        right = (outputs.argmax(dim=-1) == labels) & counted
        sums = (each.flatten(1).double().sum(dim=1) for each in (self._of_tokens(outputs, labels), right, counted))
        return torch.stack(list(sums), dim=1)

    def measures(self, statistics: np.ndarray, loss: float) -> Mapping[str, float]:
        total, right, counted = statistics.tolist()
        if not counted:
            return {"perplexity": math.nan, "token_accuracy": math.nan}
        return {"perplexity": perplexity(total / counted), "token_accuracy": right / counted}


def f1(predicted: np.ndarray, labels: np.ndarray, average: Literal["micro", "macro"] = "macro") -> float:
    """Harmonic mean of precision and recall of predicted labels, 2 TP / (2 TP + FP + FN).

    Args:
        predicted: bool [n, L].
        labels: bool [n, L].
        average: macro: the mean over labels; micro: of all labels' counts together.
    Returns:
        0 to 1; nan if it is defined for no label.
    """
    predicted, labels = np.asarray(predicted, bool), np.asarray(labels, bool)
    hits, wrong = (predicted & labels).sum(0), (predicted != labels).sum(0)
    if average == "micro":
        hits, wrong = hits.sum(), wrong.sum()
    return _mean_f1(np.atleast_1d(hits), np.atleast_1d(wrong))


def f1_of_confusion(confusion: np.ndarray) -> float:
    """Mean over classes of the harmonic mean of precision and recall (macro F1).

    Args:
        confusion: counts [C, C]; row = true class, column = predicted class.
    Returns:
        0 to 1; nan without samples.
    """
    confusion = np.asarray(confusion)
    hits = np.diagonal(confusion)
    return _mean_f1(hits, confusion.sum(0) + confusion.sum(1) - 2 * hits)


def _mean_f1(hits: np.ndarray, wrong: np.ndarray) -> float:
    """The mean over labels of 2 TP / (2 TP + FP + FN), of TP and FP + FN per label, each [L]."""
    under = 2 * hits + wrong
    defined = under > 0
    return float(np.mean(2 * hits[defined] / under[defined])) if defined.any() else math.nan


def auroc(scores: np.ndarray, labels: np.ndarray) -> float:
    """Area under the ROC curve: how often a positive sample scores higher than a negative one, equal ones half.

    Args:
        scores: [n, L]; one that is not a number is the lowest.
        labels: bool [n, L].
    Returns:
        The mean over labels, 0 to 1; nan if it is defined for no label.
    """
    scores, labels = np.asarray(scores, float), np.asarray(labels, bool)
    areas = [_area(np.nan_to_num(own, nan=-np.inf), true) for own, true in zip(scores.T, labels.T, strict=True)]
    known = [area for area in areas if area is not None]
    return float(np.mean(known)) if known else math.nan


def _area(scores: np.ndarray, labels: np.ndarray) -> float | None:
    """Return the area of one label, by the rank sum of its positive samples (Mann and Whitney, 1947)."""
    positives = int(labels.sum())
    negatives = len(labels) - positives
    if not positives or not negatives:
        return None
    _, which, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[which]  # from 1; equal scores share the mean of theirs
    return float((ranks[labels].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def perplexity(loss: float) -> float:
    """e to the mean loss per token in nats: of equally likely tokens their number.

    Args:
        loss: mean cross-entropy per token.
    """
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


SCORES = {"f1": f1, "f1_of_confusion": f1_of_confusion, "auroc": auroc, "perplexity": perplexity}
"""Name -> function, for `ddlsim list metrics`."""
