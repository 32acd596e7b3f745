"""Networks of plain layers as native plans: a whole local training, or all features of a batch, in one native call.

For small models most of a PyTorch step on one CPU thread is the overhead of operators. A plan computes the same in
registers (csrc/train), layer after layer, image after image; the numbers differ from PyTorch's by rounding alone.

A plan covers: convolutions of stride 1 with zeros around the image, each followed by at most one group or batch
normalization, ReLU and 2x2 max pooling; then linear layers with ReLU between them; and dropout of features and of
outputs of linear layers. `network_of` reports why a module has no plan; that of its core may then be used under
PyTorch's autograd (native_core.py). DDLSIM_NATIVE_TRAINING=0 turns plans off.

Only a SplitModel without hooks has a plan as a whole, because its layers are then all that its forward computes. Return
SplitModel(core, head) for native training.
"""

import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from ddlsim.foundation import native
from ddlsim.learning.dropout import CounterDropout
from ddlsim.learning.layout import Layout
from ddlsim.learning.optimizing.state import LiveState
from ddlsim.learning.optimizing.table import SGD, AdamW
from ddlsim.learning.training_inputs import CORE, HEAD, MODEL, Batches
from ddlsim.models.from_python import MODULE_HOOKS
from ddlsim.models.split import SplitModel
from ddlsim.scenario.sections import Training


class NoPlan(Exception):
    """A module has no native plan; the text is the reason."""


class NativePlan:
    """A native plan over the flat vector of one module, for one thread.

    Args:
        module: its tensors are views of `flat`.
        layout: their places in it.
        flat: float32 [P], the module's values.
        image_shape: (C, H, W).

    Raises:
        NoPlan: if the module has no plan for such images.
    """

    def __init__(self, module: nn.Module, layout: Layout, flat: torch.Tensor, image_shape: Sequence[int]):
        self._flat = flat
        self._stale = {CORE, HEAD}
        self._plan = compiled(module, layout, flat, image_shape, (CORE, HEAD))

    def reload(self, core: bool = True) -> None:
        """The flat vector has changed: all of it, or the head alone."""
        self._stale |= {CORE, HEAD} if core else {HEAD}

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """Return the core's features of images [n, C, H, W]: rows for `outputs`, in the plan's own order."""
        images = images.contiguous()
        found = torch.empty(len(images), self._plan.feature_stride)
        self._load()
        self._plan.features(images.data_ptr(), len(images), found.data_ptr())
        return found

    def outputs(self, features: torch.Tensor) -> torch.Tensor:
        """The head's logits [n, classes] of such rows."""
        found = torch.empty(len(features), self._plan.num_outputs)
        self._load()
        self._plan.outputs(features.data_ptr(), len(features), found.data_ptr())
        return found

    def train(
        self,
        images: torch.Tensor,
        labels: torch.Tensor,
        batches: Batches,
        settings: Training,
        only: str | None,
        moments: LiveState | None,
        rates: Sequence[float],
        proximal: float = 0.0,
        control: torch.Tensor | None = None,
        dropout_keys: Sequence[int] = (),
    ) -> float:
        """Train with mean cross-entropy on the flat vector, in place; return the mean loss over steps, or None if the
        compiled module does not compute it. See workspace.py: local_steps.

        Args:
            images: [n, C, H, W], of which `batches` holds rows.
            labels: int64 [n].
            batches: rows of each step.
            settings: scenario section `training`.
            only: "core" or "head" to train that part alone.
            moments: the optimizer's state, changed in place.
            rates: learning rate per step.
            proximal: mu of the proximal term.
            control: [P] added to every gradient; None if nothing is added.
            dropout_keys: of the module's dropouts, see dropout.py.
        """
        flats = [flat.data_ptr() for flat in moments.flats] if moments else []
        first_head = len(self._flat) - 1  # the head has the last column
        rule = settings.optimizer
        adam = not isinstance(rule, SGD)
        optimizer = native.extension().Optimizer(
            adam=adam,
            decoupled=isinstance(rule, AdamW) or getattr(rule, "decoupled_weight_decay", False),
            rates=list(rates),
            momentum=0.0 if adam else rule.momentum,
            weight_decay=rule.weight_decay,
            weights_decay_alone=settings.weight_decay_on == "weights",
            betas=rule.betas if adam else (0.0, 0.0),
            epsilon=rule.eps if adam else 0.0,
            proximal=proximal,
            clip_norm=math.inf if settings.clip_norm is None else settings.clip_norm,
            clip_value=math.inf if settings.clip_value is None else settings.clip_value,
            control=0 if control is None else control.data_ptr(),
            label_smoothing=settings.label_smoothing,
            moments=[*flats, 0, 0][:2],
            trained=[only in (None, part) for part in (CORE, HEAD)],
            steps=[moments.steps_at(column) if moments else 0 for column in (0, first_head)],
        )
        addresses = [tensor.data_ptr() for tensor in (self._flat, images, labels)]
        loss = self._plan.train(*addresses, len(labels), batches.rows, batches.sizes, optimizer, list(dropout_keys))
        self._stale = {CORE, HEAD}
        return loss

    def _load(self) -> None:
        if self._stale:
            self._plan.load(self._flat.data_ptr(), CORE in self._stale, HEAD in self._stale)
            self._stale = set()


def compiled(
    module: nn.Module, layout: Layout, flat: torch.Tensor, image_shape: Sequence[int], parts: Sequence[str]
) -> Any:
    """Return the compiled plan of a module, or of its core alone; for the arguments see NativePlan.

    Raises:
        NoPlan: if it is not on the CPU, takes no images, has hooks, or what plans do not cover.
    """
    if flat.device.type != "cpu":
        raise NoPlan(f"it is on {flat.device.type}")
    if len(image_shape) != 3:
        raise NoPlan("its inputs are not images")
    if HEAD in parts and type(module) is not SplitModel:
        raise NoPlan("it is not a SplitModel (ddlsim.models.split), whose forward is head(core(x))")
    if has_hooks(module if HEAD in parts else module.get_submodule(CORE)):
        raise NoPlan("it has hooks")  # which may also make a layer's weight of other parameters
    network, made = network_of(module, layout, parts), native.extension()
    try:
        convs = [made.ConvSpec(**spec) for spec in network.convs]
        linears = [made.LinearSpec(**spec) for spec in network.linears]
        sizes = len(flat), network.core_linears
        return made.Plan(tuple(image_shape), convs, linears, *sizes, network.dropouts)
    except ValueError as error:
        raise NoPlan(str(error)) from None


def network_of(module: nn.Module, layout: Layout, parts: Sequence[str] = (CORE, HEAD)) -> "Network":
    """Return the layers of a module with forward head(core(x)), or of its core alone, in the form that a plan takes.

    Raises:
        NoPlan: if it has what plans do not cover.
    """
    if os.environ.get("DDLSIM_NATIVE_TRAINING") == "0":
        raise NoPlan("turned off by DDLSIM_NATIVE_TRAINING=0")
    if HEAD in parts and layout.names != (CORE, HEAD):
        raise NoPlan(f"it has parts in addition to core and head: {', '.join(layout.names[2:])}")
    columns = {entry.name: entry.start for entry in layout.parts[MODEL].entries if entry.trainable}
    for name, _ in module.named_parameters():
        if name.partition(".")[0] in parts and name not in columns:
            raise NoPlan(f"some of its parameters are frozen: {name}")
    dropouts = [layer for layer in module.modules() if type(layer) is CounterDropout]
    network = Network(columns, {id(layer): number for number, layer in enumerate(dropouts)})
    for part in parts:
        network.part = part
        for name, layer in layers(getattr(module, part), part):
            network.take(name, layer)
    network.check()
    return network


def layers(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    """The layers of nested nn.Sequential in order, by their full names."""
    if type(module) is not nn.Sequential:
        yield name, module
        return
    for child_name, child in module._modules.items():  # named_children leaves out repeated modules
        if child is not None:
            yield from layers(child, f"{name}.{child_name}")


class Network:
    """A module as the native plan takes it, layer after layer.

    Args:
        columns: first column of each trained parameter.
        dropouts: number of each dropout in the module, by id.

    Attributes:
        convs, linears: keyword arguments of the layers, see csrc/train/network.h.
        core_linears: how many linear layers are in the core.
        dropouts: share and number of the dropouts of features.
        part: CORE or HEAD, whose layers are taken.
    """

    def __init__(self, columns: dict[str, int], dropouts: dict[int, int]):
        self._columns = columns
        self._numbers = dropouts
        self.dropouts: list[tuple[float, int]] = []
        self.convs: list[dict] = []
        self.linears: list[dict] = []
        self.core_linears = 0
        self._flat = False
        self.part = CORE

    def take(self, name: str, layer: nn.Module) -> None:
        """Add a layer.

        Raises:
            NoPlan: if it does not fit.
        """
        taker = self._TAKERS.get(type(layer))
        if taker is None:
            raise NoPlan(f"{name} is a {type(layer).__name__}")
        if any(f"{name}.{own}" not in self._columns for own, _ in layer.named_parameters()):
            raise NoPlan(f"{name}, a {type(layer).__name__}, comes several times")
        fault = taker(self, name, layer)  # type: ignore[operator]
        if fault:
            raise NoPlan(f"{name}, a {type(layer).__name__}, {fault}")

    def check(self) -> None:
        """Raise NoPlan if a head has no linear layer, or a core alone no convolution."""
        if self.part == HEAD and len(self.linears) == self.core_linears:
            raise NoPlan("its head has no linear layer")
        if self.part == CORE and not self.convs:  # for one product per layer PyTorch is faster
            raise NoPlan("its core has no convolution")

    def _conv(self, name: str, layer: nn.Conv2d) -> str | None:
        if self._flat or self.part == HEAD or self.dropouts:
            return "comes after the images are flattened"
        if layer.stride != (1, 1) or layer.dilation != (1, 1) or layer.groups != 1 or layer.padding_mode != "zeros":
            return "has a stride, dilation, groups, or padding with other things than zeros"
        padding: Any = layer.padding
        if isinstance(padding, str):
            if padding == "same" and any(size % 2 == 0 for size in layer.kernel_size):
                return "pads one side more than the other"
            padding = [size // 2 if padding == "same" else 0 for size in layer.kernel_size]
        shape = {"inputs": layer.in_channels, "outputs": layer.out_channels, "kernel": layer.kernel_size}
        plain = {"groups": 0, "scale": -1, "shift": -1, "epsilon": 0.0, "running": [0, 0], "momentum": 0.0}
        places = {"padding": tuple(padding), **self._places(name, layer), "relu": False, "pool": False}
        self.convs.append({**shape, **places, **plain})
        return None

    def _group_norm(self, name: str, layer: nn.GroupNorm) -> str | None:
        return self._normalize(name, layer.num_groups, layer.eps)

    def _batch_norm(self, name: str, layer: nn.BatchNorm2d) -> str | None:
        if layer.running_mean is None or layer.running_var is None or layer.momentum is None:
            return "has no running statistics, or averages them over all batches"
        fault = self._normalize(name, 0, layer.eps)
        if not fault:
            running = [layer.running_mean.data_ptr(), layer.running_var.data_ptr()]
            self.convs[-1].update(running=running, momentum=layer.momentum)
        return fault

    def _normalize(self, name: str, groups: int, epsilon: float) -> str | None:
        if self.part == HEAD:
            return "is in the head"
        if any(f"{name}.{own}" not in self._columns for own in ("weight", "bias")):
            return "has no weight and bias"
        conv = self._open_conv()
        if not conv or conv["groups"] or conv["running"][0] or conv["relu"] or conv["pool"]:
            return "does not follow a convolution directly"
        places = {"scale": self._columns[f"{name}.weight"], "shift": self._columns[f"{name}.bias"]}
        conv.update(groups=groups, epsilon=epsilon, **places)
        return None

    def _relu(self, name: str, layer: nn.ReLU) -> str | None:
        before = self.linears[-1] if self.linears else self._open_conv()
        if not before:
            return "does not follow a convolution or linear layer"
        before["relu"] = True
        return None

    def _max_pool(self, name: str, layer: nn.MaxPool2d) -> str | None:
        conv = self._open_conv()
        if not conv or conv["pool"]:
            return "does not follow a convolution"
        sizes = [
            value if isinstance(value, tuple) else (value, value)
            for value in (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
        ]
        if sizes != [(2, 2), (2, 2), (0, 0), (1, 1)] or layer.ceil_mode or layer.return_indices:
            return "pools other windows than 2x2"
        conv["pool"] = True
        return None

    def _flatten(self, name: str, layer: nn.Flatten) -> str | None:
        if (layer.start_dim, layer.end_dim) != (1, -1):
            return "flattens other dimensions than all of an image"
        self._flat = True
        return None

    def _linear(self, name: str, layer: nn.Linear) -> str | None:
        if not self._flat:
            return "does not follow Flatten"
        shape = {"inputs": layer.in_features, "outputs": layer.out_features}
        self.linears.append({**shape, **self._places(name, layer), "relu": False, "dropouts": []})
        self.core_linears += self.part == CORE
        return None

    def _dropout(self, name: str, layer: nn.Dropout | CounterDropout) -> str | None:
        if not layer.p:
            return None
        if type(layer) is nn.Dropout or layer.p >= 1:
            return "draws from a generator that all threads share" if layer.p < 1 else "drops everything"
        drawn = layer.p, self._numbers[id(layer)]
        if any(drawn in each["dropouts"] for each in self.linears) or drawn in self.dropouts:
            return "comes several times"
        if self.linears:
            self.linears[-1]["dropouts"].append(drawn)
        else:
            self.dropouts.append(drawn)
        return None

    def _open_conv(self) -> dict | None:
        """The last convolution, unless its images have been flattened, or values of them dropped."""
        return self.convs[-1] if self.convs and not self._flat and not self.dropouts else None

    def _places(self, name: str, layer: nn.Module) -> dict[str, int]:
        return {"weight": self._columns[f"{name}.weight"], "bias": self._columns.get(f"{name}.bias", -1)}

    _TAKERS = {  # noqa: RUF012
        nn.Conv2d: _conv,
        nn.GroupNorm: _group_norm,
        nn.BatchNorm2d: _batch_norm,
        nn.ReLU: _relu,
        nn.MaxPool2d: _max_pool,
        nn.Flatten: _flatten,
        nn.Linear: _linear,
        nn.Dropout: _dropout,
        CounterDropout: _dropout,
    }


def has_hooks(module: nn.Module) -> bool:
    """Whether anything is hooked on a module, its submodules or parameters, or takes the place of a forward."""
    hooked = any(getattr(each, name) for each in module.modules() for name in MODULE_HOOKS)
    return hooked or any("forward" in vars(each) for each in module.modules()) or gradients_hooked(module)


def gradients_hooked(module: nn.Module) -> bool:
    """Whether a parameter has a hook on its gradient."""
    return any(each._backward_hooks for each in module.parameters())
