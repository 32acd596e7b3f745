"""A task with additional metrics that are Python functions: ddlsim.run(..., metrics={"top2": f})."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from ddlsim.foundation import own_code, sources
from ddlsim.foundation.errors import ScenarioError, kind_of
from ddlsim.tasks import TASKS
from ddlsim.tasks.base import Metric, Task

if TYPE_CHECKING:
    import torch

Function = Callable[[np.ndarray, np.ndarray], float]
"""(outputs of the model [n, ...], labels [n, ...]) -> number."""


@dataclass(frozen=True, kw_only=True)
class Measured(Task):
    """Base of a task with additional metrics; its statistics are the outputs and the label of every sample.

    Args:
        of: name of the task without these metrics.
        sha256: digest of the functions' source texts; null accepts the current one.
    """

    keeps_samples: ClassVar = True
    plain: ClassVar[type[Task]]
    functions: ClassVar[Mapping[str, Function]]
    digest: ClassVar[str]

    of: str = ""
    sha256: str | None = None

    def __post_init__(self) -> None:
        if self.sha256 not in (None, self.digest):
            raise ScenarioError(f"metrics: expected the functions of the run, {self.sha256}, got {self.digest}.")
        object.__setattr__(self, "sha256", self.digest)

    @property
    def _labels_are_like_outputs(self) -> bool:
        """Whether labels have as many axes as outputs, as in a multi-label task."""
        return len(self.output_shape(1, (1,))) == 1

    def statistics(self, outputs: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
        """Outputs and labels, float32 [N, n, ..., outputs and labels]."""
        import torch

        own = labels if self._labels_are_like_outputs else labels.unsqueeze(-1)
        return torch.cat([outputs.float(), own.float()], dim=-1)

    def measures(self, statistics: np.ndarray, loss: float) -> Mapping[str, float]:
        outputs, labels = self._separate(statistics)
        found = dict(self.plain.measures(self, self._counts(statistics), loss))
        for name, function in self.functions.items():
            try:
                found[name] = float(function(outputs, labels))
            except Exception as error:  # whatever the user's function raises
                inputs = f"outputs {list(outputs.shape)} and labels {list(labels.shape)}"
                text = f"metrics: {name} raises {type(error).__name__} for {inputs}: {error!s:.200}"
                raise ScenarioError(f"{text}. Return one number for any number of samples, or nan.") from error
        return found

    def confusion(self, statistics: np.ndarray) -> np.ndarray | None:
        return self._counts(statistics) if self.has_classes else None

    def _separate(self, statistics: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Outputs [n, ...] and labels [n, ...]."""
        if self._labels_are_like_outputs:
            outputs, labels = np.split(statistics, 2, axis=-1)
        else:
            outputs, labels = statistics[..., :-1], statistics[..., -1]
        return outputs, labels.astype(self.label_dtype)

    def _counts(self, statistics: np.ndarray) -> np.ndarray:
        """Statistics of the task without additional metrics."""
        import torch

        outputs, labels = map(torch.as_tensor, self._separate(statistics))
        return self.plain.statistics(self, outputs[None], labels[None])[0].numpy()


def with_metrics(task: Task, functions: Mapping[str, Function]) -> Task:
    """Return the task with functions as additional metrics.

    Args:
        task: the task.
        functions: name -> function of the outputs of a model float32 [n, ...] and the labels [n, ...], of all samples
            of an evaluation.
    Raises:
        ScenarioError: a value is not a function, or a name is invalid or the name of a metric of the task.
    """
    known = [metric.name for metric in task.measured]
    if not isinstance(functions, Mapping):
        raise ScenarioError(f'metrics: expected a mapping such as {{"top2": function}}, got {kind_of(functions)}.')
    for name, function in functions.items():
        if not (isinstance(name, str) and name.isidentifier()) or name in known or not callable(function):
            expected = f"a name that is not {' or '.join(known)}, and a function of outputs and labels"
            raise ScenarioError(f"metrics: expected {expected}, got {name!r} and {kind_of(function)}.")
    plain, made = type(task), list(functions.values())
    text = "\n".join(f"{name} {sources.source_of(function)}" for name, function in functions.items())
    codes = [sources.digest_of(each) for each in (*made, *([plain] if own_code.is_from_outside(task) else []))]
    attributes: dict[str, Any] = {
        "plain": plain,
        "functions": dict(functions),
        "digest": hashlib.sha256(text.encode()).hexdigest()[:16],
        "measured": (*task.measured, *map(Metric, functions)),
        "written_as": staticmethod(made[0]),
        "code": None if None in codes else hashlib.sha256(" ".join(map(str, codes)).encode()).hexdigest(),
        "__module__": getattr(made[0], "__module__", __name__),
        "__doc__": plain.__doc__,
    }
    cls: Any = type("_".join((plain.__name__, *functions)), (Measured, plain), attributes)
    own = {field.name: getattr(task, field.name) for field in fields(cast(Any, task))}
    return dataclass(frozen=True, kw_only=True)(cls)(of=TASKS.name_of(task), **own)
