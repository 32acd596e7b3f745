"""What an attack returns, to be sent or to be trained on, looked at before anything is."""

from typing import TYPE_CHECKING, Any

from ddlsim.errors import kind_of
from ddlsim.tasks import Task, label_of

if TYPE_CHECKING:
    import torch


def wrong_tensor(found: Any, like: "torch.Tensor") -> str:
    """Why something is no tensor of numbers in the place of another one, "a tensor [3] of ..."; empty: it is one."""
    import torch

    if not isinstance(found, torch.Tensor):
        return f"{kind_of(found)}, expected a tensor {list(like.shape)}"
    if found.shape != like.shape or not found.dtype.is_floating_point:
        return f"a tensor {list(found.shape)} of {found.dtype}, expected {list(like.shape)} of {like.dtype}"
    return ""


def wrong_samples(found: Any, inputs: "torch.Tensor", labels: "torch.Tensor", num_classes: int, task: Task) -> str:
    """Why what `poison` returns is not in the place of its input; empty if it is.

    Args:
        found: what it returns.
        inputs, labels, num_classes: what it was given.
        task: what is learned.
    """
    import torch

    if (
        not isinstance(found, tuple | list)
        or len(found) != 2
        or not all(isinstance(each, torch.Tensor) for each in found)
    ):
        return f"{kind_of(found)}, expected a pair of tensors (inputs, labels)"
    if found[0].shape != inputs.shape or found[1].shape != labels.shape:
        got, expected = ([list(each.shape) for each in pair] for pair in (found, (inputs, labels)))
        return (
            f"inputs and labels of shapes {got[0]} and {got[1]}, expected as many of each as it is given, "
            f"{expected[0]} and {expected[1]}"
        )
    for name, each, given in (("inputs", found[0], inputs), ("labels", found[1], labels)):
        if each.dtype != given.dtype:
            return f"{name} of {each.dtype}, expected {given.dtype}"
    text = task.wrong_labels(found[1].cpu().numpy(), num_classes) if len(labels) else ""
    if text and not task.wrong_labels(labels.cpu().numpy(), num_classes):
        return f"labels that {text} (task: {label_of(task)})"
    return ""
