"""Scores of predictions: pure functions of arrays, as scikit-learn and torchmetrics define them.

Where a label has neither true nor predicted samples its F1 is not defined, and where it has only positive or only
negative ones its AUROC is not: means over labels leave such labels out (scikit-learn's `zero_division=nan`).
"""

import math
from typing import Literal

import numpy as np


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
        scores: [n, L]; one that is no number is the lowest.
        labels: bool [n, L].
    Returns:
        The mean over labels, 0 to 1; nan if it is defined for no label.
    """
    scores, labels = np.asarray(scores, float), np.asarray(labels, bool)
    areas = [_area(np.nan_to_num(own, nan=-np.inf), true) for own, true in zip(scores.T, labels.T, strict=True)]
    known = [area for area in areas if area is not None]
    return float(np.mean(known)) if known else math.nan


def _area(scores: np.ndarray, labels: np.ndarray) -> float | None:
    """Of one label, by the rank sum of its positive samples (Mann and Whitney, 1947)."""
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
