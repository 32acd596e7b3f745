"""How the state of a model lies in flat float32 rows.

A model splits into parts: `core` and `head` (FACADE's and DePRL's words), whose composition answers queries, and what
else an algorithm trains beside them (MAPL's projection and prototypes), listed in the module's `extra_parts`. Each part
is one flat vector: its trainable parameters first, then its floating-point buffers and counters (BatchNorm statistics),
so that what the published codes put on the wire is exactly one row. The whole model is the rows of its parts in order.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn

from ddlsim.learning.noise import draws_noise

CORE, HEAD, MODEL = "core", "head", "model"


@dataclass(frozen=True)
class Entry:
    """One tensor inside a row: its name in the module, shape, columns [start, stop), and whether it is trained."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int
    trainable: bool


@dataclass(frozen=True, eq=False)
class Part:
    """One flat vector: `core`, `head`, another part, or the whole `model`, of one architecture."""

    architecture: str
    name: str
    entries: tuple[Entry, ...]

    @cached_property
    def size(self) -> int:
        """Number of float32 values, P."""
        return sum(entry.stop - entry.start for entry in self.entries)

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
        for entry in self.entries:
            if not entry.trainable:
                continue
            if ranges and ranges[-1][1] == entry.start:
                ranges[-1] = (ranges[-1][0], entry.stop)
            else:
                ranges.append((entry.start, entry.stop))
        return tuple(ranges)


class Layout:
    """The parts of one architecture, read off a module with submodules `core`, `head` and those of `extra_parts`.

    Args:
        architecture: the model's name, for messages.
        module: an instance; only its names and shapes are used.
    """

    def __init__(self, architecture: str, module: nn.Module):
        self.architecture = architecture
        self.draws_noise = draws_noise(module)
        self.names: tuple[str, ...] = (CORE, HEAD, *getattr(module, "extra_parts", ()))
        self.parts: dict[str, Part] = {}
        whole: list[Entry] = []
        offset = 0
        for name in self.names:
            entries, size = _entries(module, name)
            self.parts[name] = Part(architecture, name, entries)
            whole += [Entry(e.name, e.shape, e.start + offset, e.stop + offset, e.trainable) for e in entries]
            offset += size
        self.parts[MODEL] = Part(architecture, MODEL, tuple(whole))

    @property
    def size(self) -> int:
        return self.parts[MODEL].size

    def flatten(self, module: nn.Module, part: str) -> torch.Tensor:
        """A module's values as one row of a part, float32 [P_part]."""
        tensors = _named_state(module)
        return torch.cat([tensors[e.name].detach().reshape(-1).float() for e in self.parts[part].entries])


@dataclass(frozen=True, eq=False)
class Architecture:
    """What nodes of one kind train: how a fresh module is made, and how its state lies in rows."""

    build: Callable[[], nn.Module]
    layout: Layout


def _named_state(module: nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _entries(module: nn.Module, part: str) -> tuple[tuple[Entry, ...], int]:
    submodule = getattr(module, part)
    found: list[Entry] = []
    start = 0
    for trainable, tensors in ((True, submodule.named_parameters()), (False, submodule.named_buffers())):
        for name, tensor in tensors:
            stop = start + tensor.numel()
            found.append(Entry(f"{part}.{name}", tuple(tensor.shape), start, stop, trainable))
            start = stop
    return tuple(found), start
