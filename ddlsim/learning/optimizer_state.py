"""What a node keeps from one local training to the next: Adam's two moments or SGD's momentum, and its own buffers.

Rows of the bank, like models: immutable values that a training takes and makes anew, so a training that is aborted
leaves the node's old ones as they were. Buffers have columns there too, which stay zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from ddlsim.learning.bank import Params, Row

if TYPE_CHECKING:
    from ddlsim.scenario.model import Training


@dataclass(frozen=True)
class OptimizerState:
    """The optimizer's memory of one part of a node's model.

    Args:
        steps: steps taken so far; Adam's bias correction needs it.
        rows: one per moment: handles with a node, numbers in a job's specification, rows where it is computed.
    """

    steps: int
    rows: tuple


@dataclass(frozen=True)
class Kept:
    """What one training leaves to the next evaluations and trainings of the same node; it is never sent.

    Args:
        moments: of the model's parts, by name.
        local: the buffers that are the node's own; None: as a fresh module has them, or there are none.
    """

    moments: Mapping[str, OptimizerState] = field(default_factory=dict)
    local: Params | None = None


def rows_kept(settings: "Training") -> int:
    """How many moments stay with a node between trainings.

    Args:
        settings: scenario section `training`.
    """
    if getattr(settings, "optimizer_state", "fresh") == "fresh":
        return 0
    return 2 if settings.optimizer == "adam" else 1


class OpenOptimizerState:
    """The moments of one training while it runs: one flat tensor per moment, over the columns of the whole model.

    Args:
        before: per part what was kept, or None where nothing was.
        sizes: per part its number of values.
        count: number of moments.
        device: where the model is.
    """

    def __init__(self, before: Sequence[OptimizerState | None], sizes: Sequence[int], count: int, device: torch.device):
        self.flats = [torch.zeros(sum(sizes), device=device) for _ in range(count)]
        self._sizes = list(sizes)
        self._steps = [0 if kept is None else kept.steps for kept in before]
        for index, flat in enumerate(self.flats):
            for kept, part in zip(before, flat.split(self._sizes), strict=True):
                if kept is not None:
                    part.copy_(kept.rows[index].values())

    def steps_at(self, column: int) -> int:
        """Steps taken by the part that this column lies in."""
        for size, steps in zip(self._sizes, self._steps, strict=True):
            if column < size:
                return steps
            column -= size
        raise IndexError(column)

    def store(self, outputs: Sequence[Row | None]) -> None:
        """Writes the present moments to rows: all moments of the first part, then of the second; None skips one."""
        remaining = iter(outputs)
        for start, size in zip(_starts(self._sizes), self._sizes, strict=True):
            for flat in self.flats:
                row = next(remaining)
                if row is not None:
                    row.values().copy_(flat[start : start + size])


def torch_state(settings: "Training", steps: int, moments: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """The moments of one tensor as torch.optim keeps them; its steps then change them in place."""
    if settings.optimizer == "adam":
        return {"step": torch.tensor(float(steps)), "exp_avg": moments[0], "exp_avg_sq": moments[1]}
    return {"momentum_buffer": moments[0]}


def _starts(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[:index]) for index in range(len(sizes))]
