"""One architecture as functions of a matrix [N, P] that holds a model in every row.

Rows never mix, so every model gets the numbers that it gets alone, up to the order of sums inside a kernel. Modules
that cannot be stacked, or whose stacked values differ, are detected with the first models: these are also computed
alone (`why_not_train`, `why_not_evaluate`).
"""

import textwrap
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from ddlsim.kernels.grouped_conv import why_no_kernels
from ddlsim.kernels.launching import compile_together
from ddlsim.learning.backends.native_plan import gradients_hooked
from ddlsim.learning.backends.stacked_steps import METHODS, Gradients, Method, ModelLoss, StackedBuffers, Step
from ddlsim.learning.backends.step_graphs import SAME, is_close
from ddlsim.learning.backends.workspace import ClassMeans, ModelWorkspace, autocast, loss_function
from ddlsim.learning.bank import Row, RowValues, stacked_rows
from ddlsim.learning.dropout import seed_dropouts
from ddlsim.learning.job_types import TrainSpec
from ddlsim.learning.layout import Entry, Layout, named_tensors
from ddlsim.learning.losses import Loss
from ddlsim.learning.training_inputs import CORE, HEAD, MODEL
from ddlsim.models.sequences import Block
from ddlsim.scenario.sections import Training

Columns = slice | torch.Tensor
"""Columns of a whole model's row: a range if they are contiguous, else their numbers."""

SAME_BF16 = 5e-2
"""Largest accepted difference of gradients of a forward pass in bfloat16, whose values have three digits."""

STIR, FROM_ZERO = 0.5, 0.1
"""Amounts by which values are changed before a network is examined: up to half of a value, a tenth for a value of 0. At
the start a factor of zero may switch parts of the network off, and a second model is made if only one is known."""
NEAR_ZERO = 1e-4

OUTPUTS_HELD = 3
"""Copies of a head's outputs in memory: outputs, logarithms, and the terms of the loss."""

TRAINING, EVALUATION = "training", "evaluation"


class StackedModels:
    """Computes many models of one architecture at once.

    Args:
        workspace: a module on the device, whose structure is used; models are loaded into it for comparisons.
        loss: the task's loss that training minimizes.
        training: scenario section `training`.
        num_classes: of the data.
    """

    def __init__(self, workspace: ModelWorkspace, loss: Loss, training: Training, num_classes: int = 0):
        self.workspace = workspace
        self._num_classes = num_classes
        self.layout: Layout = workspace.layout
        self._loss = loss
        self._training = training
        self._gradients: dict[Hashable, Gradients] = {}
        self._image_bytes: dict[tuple, tuple[int, int]] = {}
        self.buffers = StackedBuffers(workspace)
        self.alone = _why_alone(workspace)
        """Reason why its models train alone in any case; empty if there is no such reason."""
        self.reasons: dict[str, str] = {}
        """Reasons found so far, about kinds of training and EVALUATION (empty: stackable); a resumed run starts with
        them.
        """
        if self.layout.predicts_with_local:
            self.reasons[EVALUATION] = "each node keeps its own buffers"

    def trained_entries(self, only: str | None) -> list[Entry]:
        """The parameters that are trained (None: all), with their columns in a whole model's row."""
        return [e for e in self._parameters() if only is None or e.name.startswith(only + ".")]

    def split(self, only: str | None, whole: torch.Tensor) -> tuple[Columns, torch.Tensor, torch.Tensor]:
        """Split models [N, P] into the trained columns, their values [N, W], and the other parameters [N, V]."""
        trained = self.trained_entries(only)
        others = [entry for entry in self._parameters() if entry not in trained]
        columns = _columns(trained, whole.device)
        return columns, whole[:, columns].clone(), whole[:, _columns(others, whole.device)]

    def _parameters(self) -> list[Entry]:
        return [entry for entry in self.layout.parts[MODEL].entries if entry.trainable]

    def use_training(self, loss: Loss, training: Training) -> None:
        """Compute gradients of another loss from now on."""
        self._loss, self._training = loss, training
        self._gradients = {}

    def named(self, only: str | None, apart: bool, matrix: torch.Tensor) -> list[tuple[str, slice, torch.Tensor]]:
        """Return name, columns and values [N, *shape] of every parameter in a matrix [N, W] over the trained columns if
        `apart`; else one entry with the matrix.
        """
        if not apart:
            return [("", slice(0, matrix.shape[1]), matrix)]
        places = [(each, slice(each.start, each.stop)) for each in _side_by_side(self.trained_entries(only))]
        return [(each.name, columns, matrix[:, columns].view(len(matrix), *each.shape)) for each, columns in places]

    def key(self, job: TrainSpec) -> Hashable:
        """Return a key that is equal for trainings with one function of the gradients."""
        objective = job.objective and job.objective.identity
        return self.layout.architecture, job.only, objective, tuple(sorted(job.targets))

    def gradients(self, job: TrainSpec) -> Gradients:
        """Return the function of the gradient of every row's loss on its own batch, for trainings like this one."""
        method = self._method(about_training(job))
        key = self.key(job), method
        if key not in self._gradients:
            self._gradients[key] = self._make_gradients(job.only, method, job)
        return self._gradients[key]

    @staticmethod
    def further_inputs(jobs: Sequence[TrainSpec], start: torch.Tensor) -> list[torch.Tensor]:
        """Return what the objective needs, see Gradients, from the trained values at the start [N, W]."""
        objective = jobs[0].objective
        found = [start.clone()] if objective and objective.keeps_start else []
        return found + [stacked_rows([job.targets[label] for job in jobs]) for label in sorted(jobs[0].targets)]

    @torch.no_grad()
    def features(self, cores: torch.Tensor, images: torch.Tensor, shared: bool) -> torch.Tensor:
        """Return the features of images from cores, in eval mode.

        Args:
            cores: [U, P_core].
            images: [n, C, H, W] for all of them if `shared`, else [U, n, C, H, W].

        Returns:
            [U, n, ...].
        """
        return self._apply(self._method(EVALUATION), CORE, cores, images, shared)

    @torch.no_grad()
    def outputs(self, heads: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """Return the outputs of heads [N, P_head] for features [N, n, ...], in eval mode: [N, n, classes]."""
        return self._apply(self._method(EVALUATION), HEAD, heads, features, False)

    @torch.no_grad()
    def image_bytes(self, image: torch.Tensor) -> tuple[int, int]:
        """Return the bytes that an image [1, ...] needs in a pass: of the input and output of the largest layer per
        core, and of the outputs per head.
        """
        key = image.shape, image.dtype
        if key not in self._image_bytes:
            sizes = [image.nbytes]
            with register_module_forward_hook(lambda _, inputs, output: sizes.append(getattr(output, "nbytes", 0))):
                outputs = self.workspace.module.eval()(image)
            self._image_bytes[key] = 2 * max(sizes), OUTPUTS_HELD * outputs.nbytes
        return self._image_bytes[key]

    def why_not_train(self, jobs: Sequence[TrainSpec], batches: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> str:
        """Return the reason why these models must be trained one by one; empty if they need not. The answer is cached.

        It is enough if one batch agrees, unchanged or mirrored: if two pixels of a maximum are equal up to rounding,
        the gradient passes through one or the other, and two correct results differ widely.

        Args:
            jobs: whose models are known; of one alone, a second model is made.
            batches: images [N, b, C, H, W] and labels [N, b] of a few steps of each of them.
        """
        about = about_training(jobs[0])
        if len(jobs) > 1:  # else cuDNN computes the convolutions
            self._compile_kernels(partial(self.compared_steps, torch.float32, METHODS[0], jobs, *batches[0]))
        tries = [pair for x, y in batches for pair in ((x, y), (x.flip(-1), y))]
        return self._tried_methods(about, lambda method: any(self._same_step(method, jobs, x, y) for x, y in tries))

    def why_not_evaluate(self, models: Sequence[tuple[Row, ...]], images: torch.Tensor) -> str:
        """Return the reason why these models must be evaluated one by one; empty if they need not. It is cached.

        Args:
            models: two or more, already computed.
            images: a few that each of them sees, [N, b, C, H, W].
        """
        self._compile_kernels(partial(self._same_outputs, METHODS[0], models, images))
        return self._tried_methods(EVALUATION, lambda method: self._same_outputs(method, models, images))

    def cannot(self, about: str, error: Exception) -> None:
        """Record that an architecture found stackable cannot be stacked for other shapes."""
        self.reasons[about] = f"{type(error).__name__}: {textwrap.shorten(str(error), 100, placeholder=' ...')}"

    def _tried_methods(self, about: str, same: Callable[[Method], bool]) -> str:
        if about not in self.reasons:
            for method in METHODS:
                self.reasons[_against(method, about)] = reason = _reason(method, same)
                if not reason:
                    break
            self.reasons[about] = reason
        return self.reasons[about]

    def _compile_kernels(self, compute: Callable[[], object]) -> None:
        """Compile the kernels that a computation with convolutions launches."""
        module, device = self.workspace.module, self.workspace.flat.device
        if any(isinstance(each, nn.Conv2d) for each in module.modules()) and not why_no_kernels(device):
            compile_together(compute)

    def _method(self, about: str) -> Method:
        """Return the first method that has been found to compute the same, else the last."""
        return next((method for method in METHODS if self.reasons.get(_against(method, about)) == ""), METHODS[-1])

    def _make_gradients(self, only: str | None, method: Method, job: TrainSpec) -> Gradients:
        chosen = self.trained_entries(only)
        trained = _side_by_side(chosen)
        fixed = _side_by_side([entry for entry in self._parameters() if entry not in chosen])
        loss = ModelLoss(self.workspace.module, self._loss, job.objective, sorted(job.targets), self._num_classes)
        return method.gradients(Step(loss, self._training, trained, fixed, self.buffers))

    def _apply(
        self, method: Method, part: str, flats: torch.Tensor, values: torch.Tensor, shared: bool
    ) -> torch.Tensor:
        submodule: nn.Module = getattr(self.workspace.module.eval(), part)
        entries = [
            replace(entry, name=entry.name.removeprefix(part + ".")) for entry in self.layout.parts[part].entries
        ]
        return method.apply(submodule, entries, flats, values, shared)

    def _same_step(self, method: Method, jobs: Sequence[TrainSpec], images: torch.Tensor, labels: torch.Tensor) -> bool:
        """Whether a step agrees in float64, in which right results differ by rounding alone; in float32 if the module
        computes in no other type.
        """
        for dtype in (torch.float64, torch.float32):
            try:
                stacked, alone = self.compared_steps(dtype, method, jobs, images, labels)
                break
            except Exception as error:
                if dtype == torch.float32 or isinstance(error, torch.OutOfMemoryError):
                    raise
        most = SAME_BF16 if dtype == torch.float32 and self._training.precision != "float32" else SAME
        return all(
            is_close(rows[0], one[0], most) and is_close(rows[1], one[1], most) and rows[2].equal(one[2])
            for *rows, one in zip(*stacked[:3], alone, strict=True)
        )

    def compared_steps(
        self, dtype: torch.dtype, method: Method, jobs: Sequence[TrainSpec], images: torch.Tensor, labels: torch.Tensor
    ) -> tuple[tuple[torch.Tensor, ...], list[tuple[torch.Tensor, ...]]]:
        """Return the results of a step of changed models, stacked, and gradients and buffers of each model alone."""
        if len(jobs) == 1:
            jobs, images, labels = [*jobs, *jobs], *(torch.cat([each, each.flip(1)]) for each in (images, labels))
        whole, local = stack_models([job.model for job in jobs]), self.buffers.local([job.local for job in jobs])
        columns, start, _ = self.split(None, whole)
        changed = whole.clone()
        changed[:, columns] = _perturbed(start)
        _, weights, others = self.split(None, changed)
        further = self.further_inputs(jobs, start)
        inputs = weights, others, *self.buffers.read(changed, local, jobs), images, labels, *further
        inputs = tuple(each.to(dtype) if each.is_floating_point() else each for each in inputs)
        stacked = self._make_gradients(None, method, jobs[0])(*inputs)
        alone = [
            self._step_alone(dtype, job, *rows) for job, *rows in zip(jobs, whole, changed, *inputs[4:6], strict=True)
        ]
        return stacked, alone

    def _step_alone(
        self,
        dtype: torch.dtype,
        job: TrainSpec,
        start: torch.Tensor,
        values: torch.Tensor,
        images: torch.Tensor,
        labels: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """The gradients [W] of a model [P] on one batch and its buffers then, [F] and [I], as PyTorch computes them."""
        workspace = self.workspace
        targets = {label: row.values().to(dtype) for label, row in job.targets.items()}
        workspace.load([RowValues(self.layout.parts[MODEL], start)])
        with workspace.in_type(dtype):
            loss_of = loss_function(workspace.module, job.objective, targets, self._loss, ClassMeans((), 0))
        workspace.load([RowValues(self.layout.parts[MODEL], values)], job.local)
        if job.seed is not None:
            seed_dropouts(workspace.dropouts.values(), job.seed, len(job.skipped))
        parameters = workspace.trained()
        with workspace.in_type(dtype):
            workspace.module.train()
            with autocast(self._training.precision, images.device):
                loss = loss_of(images, labels)
            alone = torch.autograd.grad(loss, parameters, materialize_grads=True)
            none = torch.empty(0, dtype=dtype, device=images.device)
            moved = self.buffers.gathered(named_tensors(workspace.module), none, none.long())
            return torch.cat([gradient.reshape(-1) for gradient in alone]), *(each.clone() for each in moved)

    @torch.no_grad()
    def _same_outputs(self, method: Method, models: Sequence[tuple[Row, ...]], images: torch.Tensor) -> bool:
        rows, core, head = stack_models(models), self.layout.parts[CORE].size, self.layout.parts[HEAD].size
        for seen, shared in ((images, False), (images[0], True)):  # each its own, or all the same
            features = self._apply(method, CORE, rows[:, :core], seen, shared)
            found = self._apply(method, HEAD, rows[:, core : core + head], features, False)
            for place, (model, outputs) in enumerate(zip(models, found, strict=True)):
                self.workspace.load(model)
                if not is_close(outputs, self.workspace.module.eval()(seen if shared else seen[place])):
                    return False
        return True


def about_training(job: TrainSpec) -> str:
    """Return the key of reasons about trainings with the job's loss."""
    return TRAINING if job.objective is None else f"{TRAINING} with {job.objective.loss.__qualname__}"


def stack_models(models: Sequence[tuple[Row, ...]]) -> torch.Tensor:
    """The values of models with equally many parts as a matrix [N, P]."""
    found = [stacked_rows(rows) for rows in zip(*models, strict=True)]
    return found[0] if len(found) == 1 else torch.cat(found, dim=1)


def _perturbed(weights: torch.Tensor) -> torch.Tensor:
    """Return values [N, W] with a seeded change, which differs between rows."""
    numbers = torch.rand(weights.shape, generator=torch.Generator().manual_seed(0)).to(weights.device) * 2 - 1
    return weights + numbers * torch.where(weights.abs() <= NEAR_ZERO, FROM_ZERO, STIR * weights.abs())


def _why_alone(workspace: ModelWorkspace) -> str:
    """Return the operation on gradients or random numbers for which a network has to be trained alone."""
    if workspace.draws_shared:
        return "the network draws from the random numbers that all share"
    modules = [*workspace.module.modules()]
    if any(each._backward_hooks or each._backward_pre_hooks for each in modules):
        return "a module has hooks on its gradients"
    if gradients_hooked(workspace.module):
        return "a parameter has hooks on its gradient"
    if any(isinstance(each, Block) and each.recomputed for each in modules):
        return "activations are computed again for the backward pass"
    return ""


def _side_by_side(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries with their columns in a row that holds only these entries."""
    found: list[Entry] = []
    start = 0
    for entry in entries:
        stop = start + entry.stop - entry.start
        found.append(replace(entry, start=start, stop=stop))
        start = stop
    return found


def _columns(entries: Sequence[Entry], device: torch.device) -> Columns:
    if not entries:
        return slice(0, 0)
    if all(one.stop == other.start for one, other in pairwise(entries)):
        return slice(entries[0].start, entries[-1].stop)
    return torch.cat([torch.arange(entry.start, entry.stop, device=device) for entry in entries])


def _against(method: Method, about: str) -> str:
    """Return the key of the reason against a method."""
    return f"{about}, {method.name}"


def _reason(method: Method, same: Callable[[Method], bool]) -> str:
    """Return the reason why a module cannot be computed by a method; empty if it can."""
    try:
        return "" if same(method) else "stacked it computes something else"
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # any error of a user's module that cannot be stacked
        text = textwrap.shorten(str(error), 100, placeholder=" ...")
        return f"{method.name}: {type(error).__name__}: {text}"
