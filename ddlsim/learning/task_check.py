"""Tries a task on one sample before anything is run: its loss, what it counts, and what that comes to."""

from typing import Any

import numpy as np
import torch

from ddlsim import own_code
from ddlsim.errors import ScenarioError, kind_of
from ddlsim.tasks import Task
from ddlsim.tasks.metric import KNOWN, taken


def check_task(task: Task, outputs: torch.Tensor, labels: torch.Tensor) -> None:
    """Whether a task can do with a model's outputs and the data's labels.

    Args:
        task: what is learned.
        outputs: of one sample, float32 [1, ...].
        labels: of that sample, [1, ...].

    Raises:
        ScenarioError: if its methods fail or return something else than they should; says which one, and where it is.
    """
    each = _check_loss(task, outputs, labels)
    counted = _tried(task, "statistics", outputs[None], labels[None])
    if not isinstance(counted, torch.Tensor) or not counted.dim() or len(counted) != 1:
        raise _wrong(task, "statistics", "for one model", "a tensor [1, ...]: one row per model", counted)
    if task.keeps_samples and (counted.dim() < 2 or counted.shape[1] != 1):
        raise _wrong(task, "statistics", "for one model and one sample", "a tensor [1, 1, ...]", counted)
    if task.has_classes and not _are_confusions(counted):
        expected = "int64 [1, C, C], confusion matrices: has_classes is True (else: has_classes: ClassVar = False)"
        raise _wrong(task, "statistics", "for one model", expected, counted)
    _check_measures(task, _tried(task, "measures", counted[0].numpy(), float(each.sum())))


def _are_confusions(counted: torch.Tensor) -> bool:
    return counted.dim() == 3 and counted.shape[1] == counted.shape[2] and counted.dtype == torch.int64


def _check_loss(task: Task, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The loss of each sample."""
    with torch.enable_grad():
        mean = _tried(task, "loss", outputs.detach().clone().requires_grad_(), labels)
    if not isinstance(mean, torch.Tensor) or mean.dim():
        raise _wrong(task, "loss", "with reduction 'mean'", "a scalar", mean)
    if not mean.requires_grad:
        raise ScenarioError(
            f"{_place(task, 'loss')} returns a scalar without a gradient, so that nothing could be learned. Compute it "
            "from `outputs` with torch, without .item(), .detach() or argmax."
        )
    each = _tried(task, "loss", outputs, labels, "none")
    if not isinstance(each, torch.Tensor) or each.shape != (1,):
        raise _wrong(task, "loss", "with reduction 'none'", "one value per sample, [n]", each)
    return each


def _check_measures(task: Task, found: Any) -> None:
    measured = {metric.name: metric for metric in (*task.measured, *task.metrics)}
    names = list(measured)
    for name, metric in measured.items():
        if name not in KNOWN and (meant := taken(metric, measured.values())):
            raise ScenarioError(
                f"task: a metric of {type(task).__qualname__} is called {name}, which stands for {meant}. Choose "
                f"another name, such as own_{name}."
            )
    if not isinstance(found, dict):
        raise _wrong(task, "measures", "", f"a dict with {', '.join(names)}", found)
    lacking = [name for name in names if name not in found]
    if lacking:
        raise ScenarioError(
            f"{_place(task, 'measures')} returns {', '.join(map(str, found)) or 'an empty dict'}, expected "
            f"{', '.join(names)}. Return {lacking[0]!r} as well, or take it out of `measured` and `metrics`."
        )
    for name in names:
        if not isinstance(found[name], int | float | np.number):
            raise _wrong(task, "measures", f"for {name}", "a number", found[name])


def _tried(task: Task, method: str, *arguments: Any) -> Any:
    try:
        return getattr(task, method)(*arguments)
    except Exception as error:  # whatever a method of a user's does with what it is not made for
        given = ", ".join(_shown(each) for each in arguments if isinstance(each, torch.Tensor))
        text = " ".join(str(error).split())
        raise ScenarioError(
            f"{_place(task, method)} raises {type(error).__name__}: {text:.200} It was given "
            f"{given or 'what statistics returns'}, and takes labels that are {task.labels_in_words}. Choose the task "
            "that fits the data, or mend this method."
        ) from error


def _wrong(task: Task, method: str, when: str, expected: str, found: Any) -> ScenarioError:
    shown = f"{_shown(found)}{f' {when}' if when else ''}"
    return ScenarioError(
        f"{_place(task, method)} returns {shown}, expected {expected}. What it takes and returns is written in "
        "ddlsim/tasks/base.py."
    )


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor {str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return kind_of(value)


def _place(task: Task, method: str) -> str:
    """ "task: mine.py:12: loss of Mine"."""
    place = own_code.where(getattr(type(task), method))
    return f"task: {f'{place}: ' if place else ''}{method} of {type(task).__qualname__}"
