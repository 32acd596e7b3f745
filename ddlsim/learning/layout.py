"""Layout of a model's state in flat float32 rows.

A model splits into parts: `core` and `head` (FACADE's and DePRL's words), whose composition answers queries, and any
other parts that an algorithm trains (MAPL's projection and prototypes), listed in the module's `extra_parts`. Each part
is one flat vector: its trained parameters first, then the floating-point buffers that nodes share (BatchNorm
statistics), so that merging, sending and counting concern exactly one row. The whole model is the rows of its parts in
order.

Three kinds of tensors are in no such row:

- frozen parameters (`requires_grad` is False when the module is built) and buffers outside `state_dict()`: constants of
  the architecture, the same on all nodes (architecture.py);
- integer buffers (BatchNorm's count of batches), which cannot be averaged, and, with `model.buffers: local`, all
  buffers: each node keeps its own in a row of the part `local`, which is neither merged nor sent.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Literal

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from ddlsim.foundation.errors import ScenarioError
from ddlsim.learning.dropout import draws_noise
from ddlsim.learning.training_inputs import CORE, HEAD, MODEL

LOCAL = "local"

Buffers = Literal["shared", "local"]
"""Whether floating-point buffers are merged and sent like trained parameters, or stay with each node."""

WORD = 4
"""Bytes of a column."""


@dataclass(frozen=True)
class Entry:
    """One tensor inside a row: its name in the module, shape, columns [start, stop), and whether it is trained.

    `dtype` is another than float32 only in the part `local`, whose columns then hold the tensor's bytes. `hidden` tells
    matrices between embeddings and head, see `hidden_matrices`.
    """

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int
    trainable: bool
    dtype: torch.dtype = torch.float32
    hidden: bool = False

    @property
    def size(self) -> int:
        """Number of columns."""
        return self.stop - self.start

    def view(self, flat: torch.Tensor) -> torch.Tensor:
        """The tensor inside a flat float32 vector [P] (or a row of it), sharing its memory."""
        columns = flat[self.start : self.stop]
        if self.dtype != torch.float32:
            columns = columns.view(self.dtype)[: torch.Size(self.shape).numel()]
        return columns.view(self.shape)


@dataclass(frozen=True, eq=False)
class Part:
    """One flat vector: `core`, `head`, another part, the whole `model`, or `local`, of one architecture."""

    architecture: str
    name: str
    entries: tuple[Entry, ...]

    @cached_property
    def size(self) -> int:
        """Number of float32 values, P."""
        return max((entry.stop for entry in self.entries), default=0)

    @cached_property
    def trained_sizes(self) -> tuple[int, ...]:
        """Values per trained tensor, in order; the rest are buffers."""
        return tuple(entry.stop - entry.start for entry in self.entries if entry.trainable)

    @cached_property
    def signature(self) -> tuple[tuple[int, ...], ...]:
        """The shapes in order; two parts can be merged only when these agree."""
        return tuple(entry.shape for entry in self.entries)

    @cached_property
    def trainable_columns(self) -> tuple[tuple[int, int], ...]:
        """Maximal column ranges [start, stop) that hold trained parameters."""
        ranges: list[tuple[int, int]] = []
        for entry in (entry for entry in self.entries if entry.trainable):
            touches = ranges and ranges[-1][1] == entry.start
            ranges.append((ranges.pop()[0] if touches else entry.start, entry.stop))
        return tuple(ranges)


class Layout:
    """The parts of one architecture, read from a module with submodules `core`, `head` and the names in `extra_parts`.

    Args:
        architecture: the model's name, for messages.
        module: an instance; only its names, shapes, types and `requires_grad` are used.
        buffers: treatment of floating-point buffers.

    Raises:
        ScenarioError: if the module cannot be split into these parts, or has nothing to train.
    """

    def __init__(self, architecture: str, module: nn.Module, buffers: Buffers = "shared"):
        self.architecture = architecture
        self.draws_noise = draws_noise(module)
        self.names: tuple[str, ...] = (CORE, HEAD, *getattr(module, "extra_parts", ()))
        _check(architecture, module, self.names)
        persistent = _persistent_buffers(module, self.names)
        self.parts: dict[str, Part] = {}
        whole: list[Entry] = []
        hidden, offset = {id(each) for each in hidden_matrices(module)}, 0
        for name in self.names:
            submodule = getattr(module, name)
            named = submodule.named_parameters()
            tensors = [(f"{name}.{key}", each, True) for key, each in named if each.requires_grad]
            if buffers == "shared":
                kept = [(key, each) for key, each in persistent.items() if key.startswith(name + ".")]
                tensors += [(key, each, False) for key, each in kept if each.is_floating_point()]
            part = self.parts[name] = Part(architecture, name, _entries(tensors, hidden))
            whole += [replace(each, start=each.start + offset, stop=each.stop + offset) for each in part.entries]
            offset += part.size
        self.parts[MODEL] = Part(architecture, MODEL, tuple(whole))
        local = [(key, each) for key, each in persistent.items() if buffers == "local" or not each.is_floating_point()]
        self.local = Part(architecture, LOCAL, _byte_entries(local))
        counts = {id(each.num_batches_tracked) for each in module.modules() if isinstance(each, _NormBase)}
        self.predicts_with_local = any(id(each) not in counts for _, each in local)
        """Whether predictions may depend on `local`: BatchNorm's count of batches matters in training alone."""

    @property
    def size(self) -> int:
        return self.parts[MODEL].size

    def flatten(self, module: nn.Module, part: str) -> torch.Tensor:
        """A module's values as one row of a part, float32 [P_part]."""
        tensors = named_tensors(module)
        values = [tensors[entry.name].detach().reshape(-1).float() for entry in self.parts[part].entries]
        return torch.cat(values) if values else torch.empty(0)

    def flatten_local(self, module: nn.Module) -> torch.Tensor:
        """A module's values as one row of the part `local`, float32 [P_local], bytes where types differ."""
        tensors, row = named_tensors(module), torch.zeros(self.local.size)
        for entry in self.local.entries:
            entry.view(row).copy_(tensors[entry.name])
        return row

    def constants(self, module: nn.Module) -> dict[str, torch.Tensor]:
        """A module's frozen parameters and buffers outside `state_dict()`, by name."""
        own = {entry.name for entry in (*self.parts[MODEL].entries, *self.local.entries)}
        aliases = {id(each) for name, each in named_tensors(module).items() if name in own}
        return {name: each.detach() for name, each in named_tensors(module).items() if id(each) not in aliases}


def named_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return all parameters and buffers by name; a tensor with several names occurs under each."""
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def hidden_matrices(module: nn.Module) -> list[nn.Parameter]:
    """Return the trained matrices of a module, without those of embeddings and of the head."""
    outer = [each for each in module.modules() if isinstance(each, nn.Embedding | nn.EmbeddingBag)]
    left_out = {id(each) for part in (*outer, module.get_submodule(HEAD)) for each in part.parameters()}
    return [each for each in module.parameters() if each.requires_grad and each.dim() == 2 and id(each) not in left_out]


def _persistent_buffers(module: nn.Module, names: tuple[str, ...]) -> dict[str, torch.Tensor]:
    """The buffers of `state_dict()` under their names inside the parts; of several names of one tensor the first."""
    kept = module.state_dict().keys()
    parts = tuple(f"{name}." for name in names)
    found: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for name, buffer in module.named_buffers(remove_duplicate=False):
        if name in kept and name.startswith(parts) and id(buffer) not in seen:
            seen.add(id(buffer))
            found[name] = buffer
    return found


def _check(architecture: str, module: nn.Module, names: tuple[str, ...]) -> None:
    """Check that every trained parameter and persistent buffer is in exactly one part."""
    owner: dict[int, str] = {}
    for part in names:
        for name, parameter in getattr(module, part).named_parameters():
            first = owner.setdefault(id(parameter), f"{part}.{name}")
            if parameter.requires_grad and first.split(".")[0] != part:
                text = f"{part}.{name} of {architecture} is the same tensor as {first}, but parts are sent apart"
                raise ScenarioError(f"model: {text}. Move both into one: SplitModel(module, nn.Identity()).")
    _refuse_shared_storage(architecture, module)
    inside = {id(each) for part in names for each in named_tensors(getattr(module, part)).values()}
    kept = module.state_dict().keys()
    outside = [name for name, each in module.named_parameters() if each.requires_grad and id(each) not in inside]
    outside += [name for name, each in module.named_buffers() if name in kept and id(each) not in inside]
    if outside:
        text = f"{outside[0]} of {architecture} is outside its parts ({', '.join(names)}), so it would not be sent"
        raise ScenarioError(f"model: {text}. Move it into one of them, or freeze it (requires_grad_(False)).")
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise ScenarioError(f"model: all parameters of {architecture} are frozen. Leave at least one to be trained.")


def _refuse_shared_storage(architecture: str, module: nn.Module) -> None:
    """Raise ScenarioError if a trained parameter shares memory with another one: nodes would train two copies of it."""
    found = [
        (each.data_ptr(), each.data_ptr() + _reach(each) * each.element_size(), name)
        for name, each in module.named_parameters()
        if each.requires_grad and each.numel() and each.data_ptr()
    ]
    for (_, end, first), (start, _, second) in pairwise(sorted(found)):
        if start < end:
            text = f"{second} of {architecture} shares memory with {first}, but is another parameter"
            raise ScenarioError(f"model: {text}. Tie them by one parameter (decoder.weight = encoder.weight).")


def _reach(tensor: torch.Tensor) -> int:
    """Number of values from a tensor's first value to the end of its last one in memory; it may be transposed."""
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _entries(tensors: list[tuple[str, torch.Tensor, bool]], hidden: Collection[int]) -> tuple[Entry, ...]:
    ranges = pairwise(accumulate((tensor.numel() for _, tensor, _ in tensors), initial=0))
    each = zip(tensors, ranges, strict=True)
    return tuple(
        Entry(name, tuple(one.shape), *at, trained, hidden=id(one) in hidden) for (name, one, trained), at in each
    )


def _byte_entries(tensors: list[tuple[str, torch.Tensor]]) -> tuple[Entry, ...]:
    """Entries of `local`: floating-point tensors as float32, others byte by byte."""
    found: list[Entry] = []
    start = 0
    for name, tensor in tensors:
        dtype = torch.float32 if tensor.is_floating_point() else tensor.dtype
        unit = max(1, dtype.itemsize // WORD)  # a view of another type has to start at a multiple of its size
        start = -(-start // unit) * unit
        words = -(-tensor.numel() * dtype.itemsize // (WORD * unit)) * unit
        found.append(Entry(name, tuple(tensor.shape), start, start + words, False, dtype))
        start += words
    return tuple(found)
