"""Model architectures: how a fresh module is built, what all nodes share, and how the rest is laid out in rows.

Values that are in no row (frozen parameters, buffers outside `state_dict()`) come from one draw of the architecture,
made with a seed of the run: a module is built many times, once per thread and once per start, and every build would
draw these values again.

Before a run, the task is tried on one sample: its loss, its counts and the metrics computed from them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ddlsim.foundation import own_code
from ddlsim.foundation.errors import DdlsimError, ScenarioError, cause_of, kind_of
from ddlsim.foundation.torch_state import forked_generators
from ddlsim.learning.datasets import Inputs
from ddlsim.learning.dropout import draws_from_torch
from ddlsim.learning.layout import Buffers, Layout, named_tensors
from ddlsim.learning.training_inputs import MODEL
from ddlsim.tasks import Task, label_of, task_named
from ddlsim.tasks.base import KNOWN, name_conflict


def check_task(task: Task, outputs: Tensor, labels: Tensor) -> None:
    """Check that a task accepts a model's outputs and the data's labels.

    Args:
        task: the task.
        outputs: of one sample, float32 [1, ...].
        labels: of that sample, [1, ...].

    Raises:
        ScenarioError: if its methods fail or return something else than they should; the error names the method and its
            place.
    """
    with torch.enable_grad():
        mean = _call_method(task, "loss", outputs.detach().clone().requires_grad_(), labels)
    if not isinstance(mean, Tensor) or mean.dim() or not mean.requires_grad:
        raise _wrong(task, "loss", mean, "with reduction 'mean', expected a scalar with a gradient")
    each = _call_method(task, "loss", outputs, labels, "none")
    if not isinstance(each, Tensor) or each.shape != (1,):
        raise _wrong(task, "loss", each, "with reduction 'none', expected one value per sample, [n]")
    counted = _call_method(task, "statistics", outputs[None], labels[None])
    shape = counted.shape if isinstance(counted, Tensor) else ()
    if shape[:1] != (1,) or (task.keeps_samples and shape[1:2] != (1,)):
        row = "a tensor [1, 1, ...]: one row per sample" if task.keeps_samples else "a tensor [1, ...]: one row"
        raise _wrong(task, "statistics", counted, f"for one model, expected {row} per model")
    confusion = _call_method(task, "confusion", counted[0].cpu().numpy())
    if confusion is not None and (confusion.ndim != 2 or len({*confusion.shape}) > 1 or confusion.dtype != np.int64):
        expected = "int64 [1, C, C], confusion matrices: has_classes is True (else: has_classes: ClassVar = False)"
        raise _wrong(task, "statistics", counted, f"for one model, expected {expected}")
    _check_measures(task, _call_method(task, "measures", counted[0].numpy(), float(each.sum())))


def _check_measures(task: Task, found: Any) -> None:
    measured = {metric.name: metric for metric in (*task.measured, *task.metrics)}
    names = ", ".join(measured)
    for name, metric in measured.items():
        if name not in KNOWN and (meant := name_conflict(metric, measured.values())):
            text = f"a metric of {type(task).__qualname__} is called {name}, which stands for {meant}"
            raise ScenarioError(f"task: {text}. Choose another name, such as own_{name}.")
    if not isinstance(found, dict):
        raise _wrong(task, "measures", found, f"as measures, expected a dict with {names}")
    for name in measured:
        if not isinstance(found.get(name), int | float | np.number):
            raise _wrong(task, "measures", found.get(name), f"for {name}, expected a number for each of {names}")


def _call_method(task: Task, method: str, *arguments: Any) -> Any:
    try:
        return getattr(task, method)(*arguments)
    except DdlsimError:  # its message is complete
        raise
    except Exception as error:  # any error of a user's method for inputs that it does not support
        inputs = ", ".join(_type_text(each) for each in arguments if isinstance(each, Tensor))
        text = " ".join(str(error).split())
        cause = f"{type(error).__name__} for {inputs or 'the result of statistics'}: {text:.200}"
        cure = f"It takes labels that are {task.labels_in_words}. Choose another task, or correct this method"
        raise ScenarioError(f"{_place(task, method)} raises {cause} {cure}.") from error


def _wrong(task: Task, method: str, found: Any, expected: str) -> ScenarioError:
    text = f"{_place(task, method)} returns {_type_text(found)} {expected}"
    return ScenarioError(f"{text}. ddlsim/tasks/base.py describes its arguments and results.")


def _type_text(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {_kind(value.shape, value.dtype)}"
    return kind_of(value)


def _place(task: Task, method: str) -> str:
    """ "task: mine.py:12: loss of Mine"."""
    place = own_code.where(getattr(type(task), method))
    return f"task: {f'{place}: ' if place else ''}{method} of {type(task).__qualname__}"


Build = Callable[[], nn.Module]

FEW = 4
"""Samples on which a module is tried in training: BatchNorm takes no single one."""

UNTRAINED = "untrained values"
"""Purpose of the stream that seeds the draw of an architecture's constants."""


@dataclass(frozen=True, eq=False)
class Architecture:
    """One architecture of a run; made by `read_architecture`.

    Args:
        build: makes a fresh module.
        layout: layout of its state in rows.
        seed: seed of the draw of the constants.
        constants: name -> values of the tensors that are in no row.
        local: first values of the part `local`, float32 [P_local].
        draws_shared: whether training draws from torch's generator, which all threads share (dropout.py).
    """

    build: Build
    layout: Layout
    seed: int
    constants: Mapping[str, Tensor]
    local: Tensor
    draws_shared: bool = False

    def has_same_constants(self, other: "Architecture") -> bool:
        """Whether two draws of this architecture have the same values outside of rows."""
        same = (values.equal(other.constants[name]) for name, values in self.constants.items())
        return self.local.equal(other.local) and all(same)

    def draw(self, seed: int, count: int = 1) -> list[nn.Module]:
        """Return fresh modules, drawn one after the other with torch's default initialization."""
        return draw(self.build, seed, count)

    def module(self, device: torch.device) -> nn.Module:
        """A module in float32 on a device, with the architecture's constants; its other values are arbitrary."""
        (module,) = self.draw(self.seed)
        module = module.float().to(device)
        tensors = named_tensors(module)
        for name, values in self.constants.items():
            if isinstance(tensors[name], nn.Parameter):
                tensors[name].data = values.to(device)  # on the CPU all threads read the same memory
            else:
                tensors[name].copy_(values)
        return module


def read_architecture(
    name: str,
    build: Build,
    seed: int = 0,
    buffers: Buffers = "shared",
    samples: tuple[Inputs, Tensor] | None = None,
    num_outputs: int = 1,
    task: Task | None = None,
) -> Architecture:
    """Build a module once, check it, and return what all nodes share.

    Args:
        name: for messages.
        build: makes a fresh module.
        seed: of the draw.
        buffers: whether floating-point buffers are merged and sent, or stay with each node.
        samples: inputs [n, ...] and labels [n] or [n, T] that it has to accept; None for no check.
        num_outputs: values that it has to return per label.
        task: the task; its loss and metrics are tried on that sample; None: a classification.

    Raises:
        ScenarioError: if it does not fit the samples or trains complex numbers, or see Layout.
    """
    (module,) = draw(build, seed)
    _refuse_modules(name, module)
    for key, values in (*module.named_parameters(), *module.named_buffers()):
        if values.device.type != "cpu" or (values.is_complex() and values.requires_grad):
            text = f"{key} of {name} is {values.dtype} on {values.device}, expected real numbers on the CPU"
            raise ScenarioError(f"model: {text}. Leave out `device=` and `.to(...)`; split complex parameters.")
        if getattr(values, "_post_accumulate_grad_hooks", None):  # training does not accumulate gradients
            raise ScenarioError(f"model: {key} of {name} has a post-accumulate gradient hook. Use register_hook.")
    module = module.float()
    layout = Layout(name, module, buffers)
    constants = {key: values.clone() for key, values in layout.constants(module).items()}
    local, draws_shared = layout.flatten_local(module), False
    if samples is not None:
        judged = task or task_named("classification")
        _check_outputs(name, module, *samples, num_outputs, judged)
        _check_training(name, build, seed, *samples, judged)
        draws_shared = _draws_shared(name, build, seed, samples[0])
        _refuse_hidden_state(name, build, seed, layout, samples[0])
    return Architecture(build, layout, seed, constants, local, draws_shared)


def _refuse_modules(name: str, module: nn.Module) -> None:
    """Raise ScenarioError if a module is compiled, or a BatchNorm predicts with the statistics of its batch."""
    for key, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            text = f"{key or 'the module'} of {name} is a TorchScript module that nodes cannot train and exchange"
            raise ScenarioError(f"model: {text}. Pass the torch.nn.Module that it was made from.")
        if isinstance(part, _BatchNorm) and part.running_mean is None and type(part).__module__.startswith("torch."):
            raise ScenarioError(
                f"model: {key} of {name} is a BatchNorm without running statistics (track_running_stats=False): its "
                "predictions depend on the rest of the batch. Let it keep them, or use nn.GroupNorm."
            )


def _draws_shared(name: str, build: Build, seed: int, inputs: Inputs) -> bool:
    """Whether training a module draws from torch's generator.

    Raises:
        ScenarioError: if predictions do, which no run could repeat.
    """
    (module,) = draw(build, seed)
    module, some = module.float(), inputs[:FEW].cpu()
    if draws_from_torch(module.eval(), some):
        text = f"{name} draws random numbers when it predicts, too, so no run could be repeated"
        raise ScenarioError(f"model: {text}. Let its forward draw in training alone (self.training).")
    return draws_from_torch(module.train(), some)


def _refuse_hidden_state(name: str, build: Build, seed: int, layout: Layout, inputs: Inputs) -> None:
    """Raise ScenarioError if a module in training depends on state that is in no row: nodes that the same thread trains
    one after the other would share it, and results would depend on the number of threads.
    """
    (module,) = draw(build, seed)
    module, some = module.float().train(), inputs[:FEW].cpu()
    rows = [entry.name for entry in (*layout.parts[MODEL].entries, *layout.local.entries)]
    kept = {key: values.detach().clone() for key, values in named_tensors(module).items()}
    try:
        first = _in_training(module, some)
        now = named_tensors(module)
        buffers = [key for key in layout.constants(module) if not isinstance(now[key], nn.Parameter)]
        moved = [key for key in buffers if not now[key].equal(kept[key])]
        with torch.no_grad():
            for key in rows:
                now[key].copy_(kept[key])
        same = torch.allclose(first, _in_training(module, some), atol=1e-6, rtol=1e-5, equal_nan=True)
    except Exception:  # its error is reported elsewhere
        return
    if moved or not same:
        raise ScenarioError(
            f"model: {moved[0] if moved else 'the output'} of {name} in training changes between calls with the same "
            "values and samples. Keep state in buffers of state_dict(), and draw random numbers from torch alone."
        )


def _in_training(module: nn.Module, inputs: Tensor) -> Tensor:
    """Return a module's outputs for inputs in training mode, with the same random numbers every time."""
    with torch.no_grad(), forked_generators(0):
        return module(inputs)


def _check_outputs(name: str, module: nn.Module, inputs: Inputs, labels: Tensor, num_outputs: int, task: Task) -> None:
    """Run one sample through the module and check that the task accepts its output."""
    kind = _kind(inputs.shape[1:], inputs.dtype)
    try:
        with torch.no_grad(), forked_generators():
            outputs = module.eval()(inputs[:1].cpu())
    except DdlsimError:  # its message is complete (a compiled module of other sources, for example)
        raise
    except Exception as error:  # any error of a user's module for inputs that it does not support
        raise cannot_take(name, inputs.shape[1:], inputs.dtype, error) from error
    expected: list[int] = [1, *task.output_shape(num_outputs, tuple(labels.shape[1:]))]
    found = getattr(outputs, "shape", type(outputs).__name__)
    if found != torch.Size(expected):
        found = list(found) if isinstance(found, torch.Size) else found
        labels_of = f"{num_outputs} per label (task: {label_of(task)}, labels {list(labels.shape[1:])})"
        text = f"{name} returns {found} for one sample ({kind}), expected a tensor {expected}: {labels_of}"
        raise ScenarioError(f"model: {text}. Choose another model or another task.")
    check_task(task, outputs.cpu(), labels[:1].cpu())


def _check_training(name: str, build: Build, seed: int, inputs: Inputs, labels: Tensor, task: Task) -> None:
    """Compute gradients of a few samples.

    Raises:
        ScenarioError: if no gradient is computed.
    """
    (module,) = draw(build, seed)
    some = inputs[:FEW].cpu()
    if len(some) < 2:  # too few for a BatchNorm
        return
    try:
        with torch.enable_grad(), forked_generators():
            task.loss(module.float().train()(some), labels[:FEW].cpu()).backward()
    except Exception as error:  # any error of a user's module in its backward pass
        text = f"{name} has no gradients in training: {cause_of(error)}"
        cure = "Let its forward compute with its parameters, without .detach(), .data or operations in place"
        raise ScenarioError(f"model: {text}. {cure}.") from error


def cannot_take(name: str, shape: Sequence[int], dtype: torch.dtype, error: Exception) -> ScenarioError:
    """Return the error for a model whose forward failed on a sample.

    Args:
        name: of the model.
        shape: of the sample.
        dtype: of the sample.
        error: the exception that it raised.
    """
    text = " ".join(str(error).split()).rstrip(".!")
    return ScenarioError(
        f"model: {name} cannot take the data's samples ({_kind(shape, dtype)}): {type(error).__name__}: {text:.200}. "
        "Choose another model, or convert the data: .astype('float32') for numbers (integers other than uint8 are "
        "token ids), layout='signals' for signals. Create tensors of a forward on the device of its inputs."
    )


def _kind(shape: Sequence[int], dtype: torch.dtype) -> str:
    return f"{str(dtype).removeprefix('torch.')} {list(shape)}"


def draw(build: Build, seed: int, count: int = 1) -> list[nn.Module]:
    """Draw fresh modules one after the other from one seed, on the CPU, without changing torch's own generators."""
    with forked_generators(seed):
        return [build() for _ in range(count)]
