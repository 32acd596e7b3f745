"""State that a node keeps from one local training to the next: the optimizer's memory, its own buffers, its progress.

Rows of the bank, like models: immutable values that a training reads and replaces by new ones, so an aborted training
leaves the node's old ones unchanged. SGD and Adam have a row per moment, with the columns of its part (columns of
buffers stay zero), as the fast backends need them. Any other optimizer has one row per part, with all tensors and
numbers in its state for each parameter, which a step on zeros finds.
"""

from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ddlsim.foundation.errors import ScenarioError, cause_of
from ddlsim.kernels.matrices import uploaded
from ddlsim.learning.bank import Params, Row, stacked_rows, store_rows
from ddlsim.learning.layout import WORD, Entry, Part
from ddlsim.learning.optimizing.table import Optimizer
from ddlsim.learning.private_steps import PrivateSteps
from ddlsim.learning.training_inputs import Batches
from ddlsim.scenario.sections import Training

Named = Sequence[tuple[str, slice, Tensor]]
"""Name in the module, columns of the flat vector, and tensor of each parameter."""


@dataclass(frozen=True)
class OptimizerState:
    """The optimizer's memory of one part of a node's model.

    Args:
        steps: updates done so far; Adam's bias correction needs it.
        rows: one per moment, or one with all there is: handles with a node, numbers in a job's specification, rows
            where it is computed.
    """

    steps: int
    rows: tuple


LEAVES = {int, Params, Row}
"""Types of rows in a field of a specification: their numbers, their handles, and themselves."""


def leaves(value: Any) -> Iterator[Any]:
    """Rows, their numbers or their handles in a field of a specification: alone, in tuples, dicts or OptimizerState;
    None is skipped.
    """
    found: list[Any] = []
    replaced(value, found.append)
    return iter(found)


def replaced(value: Any, replacement: Callable[[Any], Any]) -> Any:
    """Return the same field with a replacement of each of its leaves."""
    kind = type(value)  # exact types, which take a fraction of the time of isinstance
    if kind is tuple or kind is list:
        return tuple([replacement(child) if type(child) in LEAVES else replaced(child, replacement) for child in value])
    if value is None:
        return None
    if kind is dict:
        return {key: replaced(child, replacement) for key, child in value.items()}
    if kind is OptimizerState:
        return OptimizerState(value.steps, replaced(value.rows, replacement))
    return replacement(value)


@dataclass(frozen=True)
class TrainingPlan:
    """Random choices of a training, drawn at its start.

    Args:
        batches: all its mini-batches.
        seed: of augmentation and dropout; None without both.
        private: clipping and noise of the gradients; None without them.
    """

    batches: Batches
    seed: int | None
    private: PrivateSteps | None


@dataclass(frozen=True)
class LocalState:
    """State that one training leaves to the next evaluations and trainings of the same node; it is never sent.

    Args:
        moments: of the model's parts, by name.
        local: the node's own buffers; None: a fresh module's, or there are none.
        batches: mini-batches that the node has trained on so far.
        unfinished: of a training in pieces all its mini-batches and random numbers; None: there is none.
        loss: the mean loss over the steps of that training.
    """

    moments: Mapping[str, OptimizerState] = field(default_factory=dict)
    local: Params | None = None
    batches: int = 0
    unfinished: "TrainingPlan | None" = None
    loss: Params | None = None


class StateRows:
    """Rows that an optimizer keeps of a part of a model.

    Args:
        settings: scenario section `training`.
    """

    def __init__(self, settings: Training):
        self._optimizer: Optimizer = settings.optimizer
        self.kept = settings.optimizer_state == "kept"
        self._found: dict[Part, tuple[Part, ...]] = {}

    def of(self, part: Part) -> tuple[Part, ...]:
        """Return the layout of each row.

        Raises:
            ScenarioError: if the optimizer does not take the part's parameters, or its state cannot be kept.
        """
        if self._optimizer.moments is not None:
            return (part,) * len(self._optimizer.moments)
        if part not in self._found:
            self._found[part] = (state_part(self._optimizer, part),)
        return self._found[part]

    def check(self, part: Part) -> None:
        """Whether the optimizer takes parameters of these shapes, and its state can be kept if it has to.

        Raises:
            ScenarioError: if not.
        """
        if self._optimizer.moments is None:
            state_part(self._optimizer, part, self.kept)


def state_part(optimizer: Optimizer, part: Part, kept: bool = True) -> Part:
    """The layout of a row that holds an optimizer's state of the trained parameters of a part.

    Entries are named "parameter:key" and keep their types; numbers are float64 or int64.

    Args:
        kept: false: only whether the optimizer works is of interest.

    Raises:
        ScenarioError: if the optimizer refuses the parameters, or has other things in its state.
    """
    trained = [entry for entry in part.entries if entry.trainable]
    tensors = {entry.name: torch.zeros(entry.shape, requires_grad=True) for entry in trained}
    if not tensors:
        return Part(part.architecture, f"{part.name} state", ())
    try:
        torch_optimizer = optimizer.make(
            list(tensors.values()), 0.1, [tensors[each.name] for each in trained if each.hidden]
        )
        for tensor in tensors.values():
            tensor.grad = torch.zeros_like(tensor)
        torch_optimizer.step()
    except Exception as error:  # any error of an optimizer for shapes that it does not support
        place = f"{optimizer.name} cannot train the {part.name} of {part.architecture}"
        raise ScenarioError(f"training.optimizer: {place}: {cause_of(error)}") from error
    entries: list[Entry] = []
    start = 0
    for name, tensor in tensors.items() if kept else ():
        for key, value in torch_optimizer.state[tensor].items():
            if value is None:
                continue
            values = _as_tensor(value)
            if values is None:
                text = f"{optimizer.name} remembers {key!r}, a {type(value).__name__}, which cannot be kept"
                raise ScenarioError(f"training.optimizer_state: {text}. Set optimizer_state: fresh.")
            start = -(-start // 2) * 2  # views of 8-byte types begin at a multiple of their size
            stop = start + -(-values.numel() * values.dtype.itemsize // WORD)
            entries.append(Entry(f"{name}:{key}", tuple(values.shape), start, stop, False, values.dtype))
            start = stop
    return Part(part.architecture, f"{part.name} state", tuple(entries))


def _as_tensor(value: Any) -> Tensor | None:
    """Return a value of an optimizer's state as a tensor; None if it is neither a tensor nor a number."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, bool | int):
        return torch.tensor(int(value), dtype=torch.int64)
    return torch.tensor(value, dtype=torch.float64) if isinstance(value, float) else None


class LiveState:
    """The optimizer's memory in one training while it runs.

    Args:
        optimizer: its optimizer.
        before: per part the kept state, or None if nothing was kept.
        sizes: per part its number of values.
        device: device of the model.
        outputs: the rows that `store` fills, allocated; moments of a model in one part change in them, without copies.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        before: Sequence[OptimizerState | None],
        sizes: Sequence[int],
        device: torch.device,
        outputs: Sequence[Row | None],
    ):
        self._optimizer = optimizer
        self._before = before
        self._sizes = list(sizes)
        self._steps = [0 if kept is None else kept.steps for kept in before]
        self._values: dict[str, Any] = {}  # of an optimizer without moments: "parameter:key" -> value
        moments = optimizer.moments or ()
        rows = [row.values() for row in outputs if row is not None]
        self._in_rows = len(sizes) == 1 and len(rows) == len(moments)
        self.flats = rows if self._in_rows else [torch.empty(sum(sizes), device=device) for _ in moments]
        """One flat tensor per moment, over the columns of the whole model."""
        for index, flat in enumerate(self.flats):
            for kept, part in zip(before, flat.split(self._sizes), strict=True):
                if kept is None:
                    part.zero_()
                else:
                    part.copy_(kept.rows[index].values())

    def steps_at(self, column: int) -> int:
        """Return the number of updates of the part that holds this column."""
        for size, steps in zip(self._sizes, self._steps, strict=True):
            if column < size:
                return steps
            column -= size
        raise IndexError(column)

    def put_into(self, torch_optimizer: torch.optim.Optimizer, parameters: Named) -> None:
        """Load an optimizer's memory of parameters: name in the module, columns of the flat vector, tensor.

        Moments are views, which its steps change in place.
        """
        if self._optimizer.moments is not None:
            for _, columns, parameter in parameters:
                moments = [flat[columns].view(parameter.shape) for flat in self.flats]
                # on a GPU steps are fused (updates.py), which count there
                step = torch.full((), float(self.steps_at(columns.start)), device=parameter.device)
                of_moments = zip(self._optimizer.moments, moments, strict=True)
                torch_optimizer.state[parameter] = {"step": step, **dict(of_moments)}
            return
        found: dict[str, dict[str, Any]] = {}
        for kept in self._before:
            if kept is None:
                continue
            row = kept.rows[0]
            for entry in row.part.entries:
                name, _, key = entry.name.rpartition(":")
                found.setdefault(name, {})[key] = entry.view(row.values()).clone()
        for name, _, parameter in parameters:
            if name in found:
                torch_optimizer.state[parameter] = {
                    key: value if value.dtype not in (torch.int64, torch.float64) or value.dim() else value.item()
                    for key, value in found[name].items()
                }

    def take_from(self, torch_optimizer: torch.optim.Optimizer, parameters: Named) -> None:
        """Take the memory back after the last step."""
        if self._optimizer.moments is None:
            for name, _, parameter in parameters:
                for key, value in torch_optimizer.state[parameter].items():
                    self._values[f"{name}:{key}"] = _as_tensor(value)

    def store(self, outputs: Sequence[Row | None]) -> None:
        """Write the current memory to rows: all moments of the first part, then of the second; None skips one."""
        if self._optimizer.moments is None:
            for row in outputs:
                if row is not None:
                    row.values().zero_()
                    for entry in row.part.entries:
                        entry.view(row.values()).copy_(self._values[entry.name])
            return
        if self._in_rows:
            return
        remaining = iter(outputs)
        for start, size in zip(_starts(self._sizes), self._sizes, strict=True):
            for flat in self.flats:
                row = next(remaining)
                if row is not None:
                    row.values().copy_(flat[start : start + size])


class StackedState:
    """The moments of one training of many models.

    Args:
        optimizer: one with moments.
        before: per model the kept state of each part, or None if nothing was kept.
        sizes: per part its number of values.
        trained: columns of a whole model that are trained, as an index.
        entries: the parameters in these columns.
        device: device of the models.

    Attributes:
        flats: one matrix [N, W] per moment.
        runs: ranges of rows whose trained parts have done equally many updates.
        parts_differ: whether the trained parts of a model have done different numbers of updates.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        before: Sequence[Sequence[OptimizerState | None]],
        sizes: Sequence[int],
        trained: "slice | Tensor",
        entries: Sequence[Entry],
        device: torch.device,
    ):
        self._optimizer, self._sizes, self._trained = optimizer, list(sizes), trained
        parts = [bisect(_starts(sizes), entry.start) - 1 for entry in entries]
        self._part_at = dict(zip(_starts([entry.size for entry in entries]), parts, strict=True))
        self._steps = [counted_steps(optimizer, kept) for kept in before]
        of_trained = [[own[part] for part in sorted({*parts})] for own in self._steps]
        self.parts_differ = any(len({*own}) > 1 for own in of_trained)
        alike = [list(rows) for _, rows in groupby(range(len(before)), of_trained.__getitem__)]
        self.runs = [slice(rows[0], rows[-1] + 1) for rows in alike]
        self._whole = [
            torch.cat(
                [
                    _stacked([None if kept is None else kept.rows[moment] for kept in of_part], size, device)
                    for of_part, size in zip(zip(*before, strict=True), sizes, strict=True)
                ],
                dim=1,
            )
            for moment in range(len(optimizer.moments or ()))
        ]
        self.flats = [whole[:, trained].contiguous() for whole in self._whole]  # as fused steps need it

    def put_into(self, torch_optimizer: torch.optim.Optimizer, pieces: Sequence[tuple[slice, slice, Tensor]]) -> None:
        """Load the memory as LiveState does; per tensor its rows, one of `runs`, and its trained columns."""
        counts = [self._steps[rows.start][self._part_at[columns.start]] for rows, columns, _ in pieces]
        fused = torch_optimizer.param_groups[0].get("fused")  # counts on the device, other implementations on the host
        steps = uploaded(np.array(counts, dtype=np.float32), pieces[0][2].device if fused else torch.device("cpu"))
        for (rows, columns, parameter), step in zip(pieces, steps, strict=True):
            moments = [flat[rows, columns].view(parameter.shape) for flat in self.flats]
            of_moments = zip(self._optimizer.moments or (), moments, strict=True)
            torch_optimizer.state[parameter] = {"step": step, **dict(of_moments)}

    def store(self, outputs: Sequence[Sequence[Row | None]]) -> None:
        """Write the current memory to rows: per model as LiveState, a launch per part and moment."""
        for whole, flat in zip(self._whole, self.flats, strict=True):
            whole[:, self._trained] = flat
        targets = iter(zip(*outputs, strict=True))
        for start, size in zip(_starts(self._sizes), self._sizes, strict=True):
            for whole in self._whole:
                store_rows(next(targets), whole[:, start : start + size])


def _stacked(rows: Sequence[Row | None], size: int, device: torch.device) -> Tensor:
    """Rows of one bank as a matrix [N, size]; zeros for None."""
    known = [(place, row) for place, row in enumerate(rows) if row is not None]
    if not known:
        return torch.zeros(len(rows), size, device=device)
    values = stacked_rows([row for _, row in known])
    if len(known) == len(rows):
        return values
    places = uploaded(np.array([place for place, _ in known], dtype=np.int64), device)
    return torch.zeros(len(rows), size, device=device).index_copy_(0, places, values)


def counted_steps(optimizer: Optimizer, kept: Sequence[OptimizerState | None]) -> tuple[int, ...]:
    """Return the number of updates of each part of a model so far, for Adam's bias correction; else zeros."""
    counts = optimizer.moments not in ((), ("momentum_buffer",))
    return tuple(state.steps if counts and state is not None else 0 for state in kept)


def _starts(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[:index]) for index in range(len(sizes))]
