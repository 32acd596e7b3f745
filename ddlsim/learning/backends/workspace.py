"""A model instance whose tensors are views of one flat vector; CPU threads train and evaluate with it.

If the module's layers have a native plan (native_plan.py), or those of its core (native_core.py), the plan replaces
PyTorch's operators.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from ddlsim.learning.architecture import Architecture
from ddlsim.learning.backends.native_core import NativeCore
from ddlsim.learning.backends.native_plan import NativePlan, NoPlan
from ddlsim.learning.backends.step_graphs import Function
from ddlsim.learning.bank import Row, RowValues
from ddlsim.learning.datasets import Inputs
from ddlsim.learning.dropout import replace_dropouts
from ddlsim.learning.layout import named_tensors
from ddlsim.learning.losses import Loss
from ddlsim.learning.optimizing.state import LiveState
from ddlsim.learning.optimizing.updates import Updates
from ddlsim.learning.private_steps import PrivateGradients
from ddlsim.learning.training_inputs import MODEL, LocalStep, Objective
from ddlsim.scenario.sections import Training

StepLoss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(images, labels) of a step -> its loss."""


class ModelWorkspace:
    """A module of one architecture over a flat float32 vector [P]: loading a model is one copy per part.

    Args:
        architecture: builder and layout of the module.
        device: device of the module.
    """

    def __init__(self, architecture: Architecture, device: torch.device):
        self.layout = architecture.layout
        self.draws_shared = architecture.draws_shared
        self.flat = torch.zeros(self.layout.size, device=device)
        self.local = architecture.local.to(device, copy=True)
        self._first_local = architecture.local.to(device)
        self.module = architecture.module(device)
        self.dropouts = replace_dropouts(self.module, device)
        self._plans: dict[tuple, NativePlan | NativeCore | str] = {}  # by class and the images' shape; or why not
        tensors = named_tensors(self.module)
        self._parameters: list[tuple[str, nn.Parameter, slice]] = []
        self._views: list[torch.Tensor] = []  # of the parameters, in the flat vector
        self._buffers: list[tuple[nn.Module, str, torch.Tensor]] = []
        for flat, part in ((self.flat, self.layout.parts[MODEL]), (self.local, self.layout.local)):
            for entry in part.entries:
                view = entry.view(flat)
                if entry.trainable:
                    tensors[entry.name].data = view
                    parameter = tensors[entry.name]
                    assert isinstance(parameter, nn.Parameter)
                    self._parameters.append((entry.name, parameter, slice(entry.start, entry.stop)))
                    self._views.append(view)
                else:
                    owner, _, name = entry.name.rpartition(".")
                    # .data: else a count that BatchNorm raises would make autograd refuse the statistics next to it
                    self._buffers.append((self.module.get_submodule(owner), name, view.data))
        for module, name, view in self._buffers:
            module._buffers[name] = view.data
        self.repeats = not (self._buffers or self.dropouts or self.draws_shared)
        """Whether a step depends on the batch and the weights alone, and changes nothing else."""

    @torch.no_grad()
    def load(self, parts: Sequence[Row | RowValues], local: Row | RowValues | None = None, start: int = 0) -> None:
        """Load the values of a model, whole or part by part, and a node's own buffers; or only later parts of it.

        Args:
            parts: the values.
            local: the node's own buffers; None, or a row of another architecture, loads a fresh module's.
            start: column of the first part; above 0, the own buffers that are loaded stay.
        """
        self._gather_parameters(keep=False)
        stop = start
        for params in parts:
            self.flat[stop : stop + params.size].copy_(params.values())
            stop += params.size
        for plan in self._plans.values():
            if isinstance(plan, NativePlan):
                plan.reload(core=start == 0)
        if start == 0 and self.layout.local.size:
            self.local.copy_(self.values_of_local(local))

    def values_of_local(self, local: Row | RowValues | None) -> torch.Tensor:
        """Return the values of a node's own buffers that `load` loads, float32 [P_local]."""
        own = local is not None and local.part.architecture == self.layout.architecture
        return local.values() if local is not None and own else self._first_local

    @torch.no_grad()
    def store(self, parts: Sequence[Row | None], sizes: Sequence[int], local: Row | None) -> None:
        """Write the current values to rows, in the same order as `load`, and the own buffers; None skips a row."""
        self.gather_buffers()
        start = 0
        for params, size in zip(parts, sizes, strict=True):
            if params is not None:
                params.values().copy_(self.flat[start : start + size])
            start += size
        if local is not None:
            local.values().copy_(self.local)

    def plan(self, images: Inputs) -> NativePlan | None:
        """The native plan for images [n, C, H, W] on a loaded model; None where PyTorch has to do it."""
        found = self._compiled(NativePlan, images)
        return found if isinstance(found, NativePlan) else None

    def why_no_plan(self, images: Inputs, whole: bool = True) -> str:
        """Return the reason why PyTorch has to compute the core; empty if a plan does.

        Args:
            images: [n, C, H, W].
            whole: whether a plan of the whole module is enough; else its core must have one.
        """
        core = self._compiled(NativeCore, images)
        found = self._compiled(NativePlan, images) if whole else core
        return found if isinstance(found, str) and isinstance(core, str) else ""

    def native_core(self, images: Inputs) -> AbstractContextManager:
        """Return a context in which the module's core computes natively for such images, if it has a plan."""
        found = self._compiled(NativeCore, images)
        return found if isinstance(found, NativeCore) else nullcontext()

    def _compiled(self, kind: type[NativePlan | NativeCore], images: Inputs) -> Any:
        """Return the native object for such images, or the reason why there is none."""
        if images.dtype != torch.float32:
            return f"samples are {str(images.dtype).removeprefix('torch.')}"
        key = (kind, *images.shape[1:])
        if key not in self._plans:
            try:
                self._plans[key] = kind(self.module, self.layout, self.flat, images.shape[1:])
            except NoPlan as reason:
                self._plans[key] = str(reason)
        return self._plans[key]

    def features(self, images: torch.Tensor, precision: str = "float32") -> torch.Tensor:
        """Return the core's features of images [n, C, H, W] in eval mode: rows for `outputs` of the same precision."""
        plan = self.plan(images) if precision == "float32" else None
        if plan:
            return plan.features(images)
        with autocast(precision, images.device), self.native_core(images):
            return self.module.eval().get_submodule("core")(images)

    def outputs(self, features: torch.Tensor, images: Inputs, precision: str = "float32") -> torch.Tensor:
        """The head's outputs [n, classes] in eval mode, of `features` of such images."""
        plan = self.plan(images) if precision == "float32" else None
        if plan:
            return plan.outputs(features)
        with autocast(precision, features.device):
            outputs = self.module.eval().get_submodule("head")(features)
        return outputs if precision == "float32" else outputs.float()

    def trained(self, only: str | None = None) -> list[nn.Parameter]:
        """Return the parameters to train: all that are not frozen, or only those in one part."""
        for name, parameter, _ in self._parameters:
            parameter.requires_grad_(only is None or name.startswith(only + "."))
        return [parameter for _, parameter, _ in self._parameters if parameter.requires_grad]

    def named_trained(self) -> list[tuple[str, slice, torch.Tensor]]:
        """Name, columns of the flat vector and tensor of the parameters that are trained now, as in `trained`."""
        return [(name, columns, parameter) for name, parameter, columns in self._parameters if parameter.requires_grad]

    def buffers_outside(self, only: str | None) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return the buffers of untrained parts and their values, which are restored after the training, because train
        mode changes running statistics.
        """
        if only is None:
            return []
        return [
            (columns, columns.clone())
            for flat, part in ((self.flat, self.layout.parts[MODEL]), (self.local, self.layout.local))
            for entry in part.entries
            if not entry.trainable and not entry.name.startswith(only + ".")
            for columns in (flat[entry.start : entry.stop],)
        ]

    def over_all_columns(self, values: torch.Tensor) -> torch.Tensor:
        """Values [W] of the trained columns as a flat vector [P], with zeros for buffers."""
        found = torch.zeros_like(self.flat)
        start = 0
        for _, _, columns in self._parameters:
            stop = start + columns.stop - columns.start
            found[columns] = values[start:stop]
            start = stop
        return found

    @contextmanager
    def in_type(self, dtype: torch.dtype) -> Iterator[None]:
        """Context in which the module's floating-point tensors have another type; they are copied back at its end."""
        other = {(owner, name): each for owner in self.module.modules() for name, each in owner._buffers.items()}
        views = {(owner, name) for owner, name, _ in self._buffers}
        self.module.to(dtype)
        try:
            yield
        finally:
            self.gather_buffers()
            for owner, name in other.keys() - views:
                owner._buffers[name] = other[owner, name]

    def gather_buffers(self) -> None:
        """Copy values that the module has put elsewhere, instead of writing into its tensors, back into the flat
        vectors: buffers that it has created, and values that `tensor.data = ...` has replaced.
        """
        self._gather_parameters(keep=True)
        for module, name, view in self._buffers:
            present = module._buffers[name]
            if present is not None and not _is_at(present, view):
                view.copy_(present)
                module._buffers[name] = view.data

    @torch.no_grad()
    def _gather_parameters(self, keep: bool) -> None:
        for (_, parameter, _), view in zip(self._parameters, self._views, strict=True):
            if not _is_at(parameter, view):
                if keep:
                    view.copy_(parameter)
                parameter.data = view


def _is_at(tensor: torch.Tensor, view: torch.Tensor) -> bool:
    """Whether a tensor is still in its view."""
    return tensor.data_ptr() == view.data_ptr() and tensor.shape == view.shape


def local_steps(
    workspace: ModelWorkspace,
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]],
    settings: Training,
    loss_of: StepLoss,
    only: str | None,
    state: LiveState | None = None,
    rates: Sequence[float] = (),
    proximal: float = 0.0,
    control: torch.Tensor | None = None,
    private: PrivateGradients | None = None,
    repeated: Callable[[Function], Function] | None = None,
) -> list[torch.Tensor]:
    """Train on mini-batches, in place on the workspace; return the loss of each. See optimizing/updates.py.

    Args:
        batches: (images [b, C, H, W], labels [b]) per step.
        settings: scenario section `training`.
        loss_of: the loss that is minimized, see loss_function.
        only: "core", "head", ... to train that part and keep the others, their statistics included.
        state: the optimizer's state, changed in place; None for a new optimizer.
        rates: learning rate per update.
        proximal: mu of the proximal term.
        control: [W] added to the gradient of the trained values of the whole model; None if nothing is added.
        private: computes gradients instead of `loss_of`, and no losses; None if gradients are not private.
        repeated: makes a function of a batch quicker that is called for every step, see step_graphs.py; None if a step
            depends on more than the batch and the weights.
    """
    parameters = workspace.trained(only)
    kept = workspace.buffers_outside(only)
    workspace.module.train()
    if not parameters:  # a part of frozen parameters: only its statistics move
        with torch.no_grad():
            return [loss_of(images, labels) for images, labels in batches]
    offsets = None
    if control is not None:
        each = control.split([parameter.numel() for parameter in parameters])
        offsets = [values.view(parameter.shape) for values, parameter in zip(each, parameters, strict=True)]
    hidden = {entry.name for entry in workspace.layout.parts[MODEL].entries if entry.hidden}
    updates = Updates(settings, workspace.named_trained(), rates, proximal, offsets, state, hidden=hidden)

    def gradients_of(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The loss of a batch, and its gradients; a loss may leave a part out."""
        with autocast(settings.precision, images.device):
            loss = loss_of(images, labels)
        return loss.detach(), *torch.autograd.grad(loss, parameters, materialize_grads=True)

    quick = repeated and repeated(lambda *batch: tuple(each[None] for each in gradients_of(*(own[0] for own in batch))))
    losses: list[torch.Tensor] = []
    for images, labels in batches:
        if private is not None:
            updates.take(private(images, labels, parameters))
            continue
        batch = images[None], labels[None]
        loss, *gradients = [each[0] for each in quick(*batch)] if quick else gradients_of(images, labels)
        losses.append(loss.clone() if quick else loss)  # the next step may overwrite it
        updates.take(gradients)
        del gradients  # their memory is free for the next ones
    updates.finish()
    workspace.gather_buffers()
    for columns, values in kept:
        columns.copy_(values)
    return losses


def autocast(precision: str, device: torch.device) -> AbstractContextManager:
    """Context in which forward pass and loss are computed: float32, or bf16 (bfloat16 where torch.autocast considers it
    safe).
    """
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)


def loss_function(
    module: nn.Module,
    objective: Objective | None,
    targets: Mapping[int, torch.Tensor],
    task_loss: Loss,
    means: "ClassMeans",
) -> StepLoss:
    """Return the loss of a training.

    Args:
        module: the model at its start.
        objective: of the algorithm; None for the task's loss.
        targets: by label the values that the objective compares with.
        task_loss: (outputs, labels) -> loss.
        means: gathers the features that the objective collects.
    """
    if objective is None:
        return lambda images, labels: task_loss(module(images), labels)
    start = {}
    if objective.keeps_start:
        start = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}

    def loss(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        means.next_step()
        return objective.loss(
            LocalStep(module, images, labels, len(labels) // objective.views, start, targets, task_loss, means.collect)
        )

    return loss


class ClassMeans:
    """Means of features per label over the last steps of a training.

    Args:
        labels: whose means are wanted.
        skipped: steps, the first ones, that do not count.
    """

    def __init__(self, labels: Iterable[int], skipped: int):
        self._sums: dict[int, torch.Tensor | float] = dict.fromkeys(labels, 0.0)
        self._counts = dict.fromkeys(labels, 0)
        self._skipped = skipped
        self._steps = 0

    def next_step(self) -> None:
        """Start the next step."""
        self._steps += 1

    @torch.no_grad()
    def collect(self, features: torch.Tensor, labels: torch.Tensor) -> None:
        """Count features [n, D] of labels [n], unless the step is skipped."""
        if self._steps <= self._skipped:
            return
        for label in self._sums:
            own = labels == label
            self._sums[label] = self._sums[label] + features[own].sum(dim=0)
            self._counts[label] += int(own.sum())

    def store(self, means: Mapping[int, Row | None]) -> None:
        """Write the means to rows by label; None skips one."""
        for label, row in means.items():
            if row is not None:
                row.values().copy_(torch.as_tensor(self._sums[label] / max(1, self._counts[label])))
