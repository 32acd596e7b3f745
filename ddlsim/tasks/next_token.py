"""Next-token prediction: language models over characters or words."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from ddlsim.tasks.base import Reduction, Task
from ddlsim.tasks.labels import not_classes
from ddlsim.tasks.metric import PERPLEXITY, TOKEN_ACCURACY
from ddlsim.tasks.scores import perplexity

if TYPE_CHECKING:
    import torch

IGNORED = -100
"""A label that does not count (padding), as torch.nn.functional.cross_entropy has it."""


@dataclass(frozen=True, kw_only=True)
class NextToken(Task):
    """The next token after every position of a sequence, or after its end: cross-entropy, judged by perplexity.

    A sample's loss is the mean over its positions. Labels of -100 (padding) do not count; every sample has others.

    Args:
        metric: what nodes are judged by: perplexity (e to the mean loss per token), or token_accuracy; both are
            recorded.
    """

    labels_in_words: ClassVar = "token ids from 0, [n, T] or [n], -100 at positions that do not count"
    measured: ClassVar = (PERPLEXITY, TOKEN_ACCURACY)

    metric: Literal["perplexity", "token_accuracy"] = "perplexity"

    def wrong_labels(self, labels: np.ndarray, num_classes: int) -> str:
        """See Task."""
        counted = labels != IGNORED
        empty = int((~counted.reshape(len(labels), -1).any(axis=1)).sum())
        if empty:
            return (
                "must hold at least one token id that is not -100 in every sample, got "
                f"{empty} of {len(labels)} without. Leave these samples out"
            )
        return not_classes(labels[counted], num_classes, labels.shape)

    def loss(self, outputs: "torch.Tensor", labels: "torch.Tensor", reduction: Reduction = "mean") -> "torch.Tensor":
        """Cross-entropy of logits [n, T, V] and labels int64 [n, T] (the mean over T), or of [n, V] and [n]."""
        losses = self._of_tokens(outputs, labels)
        if labels.dim() > 1:
            counted = (labels != IGNORED).flatten(1)
            losses = losses.flatten(1).sum(dim=1) / counted.sum(dim=1).clamp(min=1)
        if reduction == "none":
            return losses
        return losses.sum() if reduction == "sum" else losses.mean()

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
        """See Task."""
        total, right, counted = statistics.tolist()
        if not counted:
            return {"perplexity": math.nan, "token_accuracy": math.nan}
        return {"perplexity": perplexity(total / counted), "token_accuracy": right / counted}
