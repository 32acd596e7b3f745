"""What a node's local training minimizes, where it is not the plain loss of the task; an algorithm hands it to `train`.

An algorithm writes its loss as a function of a LocalStep, in its own file, from the terms in losses.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from ddlsim.learning.bank import Params


@dataclass(frozen=True, eq=False)
class LocalStep:
    """One mini-batch of a local training.

    Args:
        module: the model in training, a torch.nn.Module; its parts are attributes: `module.core`, `module.head`.
        images: float32 [views * b, C, H, W], view after view.
        labels: int64 [views * b], those of the batch as often.
        batch_size: b, samples in the batch.
        start: the trained parameters by name as they were when the training began, e.g. "head.weight".
        targets: what the algorithm handed over, by label.
        task_loss: (outputs, labels) -> the task's mean loss, with training.label_smoothing.
        collect: (features [n, D], labels [n]) to count them in the class means, see Objective.
    """

    module: Any
    images: "torch.Tensor"
    labels: "torch.Tensor"
    batch_size: int
    start: "Mapping[str, torch.Tensor]"
    targets: "Mapping[int, torch.Tensor]"
    task_loss: "Callable[[torch.Tensor, torch.Tensor], torch.Tensor]"
    collect: "Callable[[torch.Tensor, torch.Tensor], None]"


@dataclass(frozen=True, eq=False)
class Objective:
    """How a batch becomes a loss.

    Args:
        loss: of a step, a scalar to minimize.
        views: how often each image comes, each time augmented anew (training.augmentation).
        targets: per label parameters that the loss compares with, known when the training runs.
        class_means: whether the training also returns per label the mean of the features that the loss collects in the
            last pass over the samples.
        keeps_start: whether the loss looks at the parameters as they were at the start.
    """

    loss: "Callable[[LocalStep], torch.Tensor]"
    views: int = 1
    targets: "Mapping[int, Params]" = field(default_factory=dict)
    class_means: bool = False
    keeps_start: bool = False

    def without_targets(self) -> "Objective":
        """The same without its targets, which are known only when the training runs."""
        return replace(self, targets={})
