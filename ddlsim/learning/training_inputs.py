"""Inputs that an algorithm adds to a local training: its objective, and the context in the run.

An algorithm writes its loss as a function of a LocalStep, in its own file, from the terms in losses.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

    from ddlsim.learning.bank import Params


@dataclass(frozen=True, eq=False)
class LocalStep:
    """One mini-batch of a local training.

    Args:
        module: the model in training, a torch.nn.Module; its parts are attributes: `module.core`, `module.head`.
        images: float32 [views * b, C, H, W], view after view.
        labels: int64 [views * b], the labels of the batch, repeated.
        batch_size: b, samples in the batch.
        start: the trained parameters at the start of the training by name, e.g. "head.weight".
        targets: the parameters that the algorithm passed, by label.
        task_loss: (outputs, labels) -> the task's mean loss, with training.label_smoothing.
        collect: (features [n, D], labels [n]) ; counts them in the class means, see Objective.
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
    """Loss of a local training as a function of a batch.

    Args:
        loss: of a step, a scalar to minimize.
        views: copies of each image in a batch, each augmented independently (training.augmentation).
        targets: per label the parameters that the loss compares with, known when the training runs.
        class_means: whether the training also returns per label the mean of the features that the loss collects in the
            last pass over the samples.
        keeps_start: whether the loss uses the parameters at the start.
    """

    loss: "Callable[[LocalStep], torch.Tensor]"
    views: int = 1
    targets: "Mapping[int, Params]" = field(default_factory=dict)
    class_means: bool = False
    keeps_start: bool = False

    def without_targets(self) -> "Objective":
        """Return the objective without its targets, which are known only when the training runs."""
        return replace(self, targets={})


class TrainingContext(NamedTuple):
    """Place of a training in the run, and the algorithm's additions to its gradients.

    Args:
        round_num: the round, from 0.
        rounds: of the run.
        steps: mini-batches that this node trains on in the whole run, all its trainings together.
        proximal: mu of a proximal term, in addition to that of the scenario.
        control: row added to every gradient, over the trained values of a whole model; None if nothing is added.
    """

    round_num: int = 0
    rounds: int = 1
    steps: int = 1
    proximal: float = 0.0
    control: "Params | None" = None
