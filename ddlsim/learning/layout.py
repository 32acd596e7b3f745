"""How the state of a model lies in flat float32 rows.

A model splits into two parts, `core` and `head` (FACADE's and DePRL's words). Each part is one flat vector: its
trainable parameters first, then its floating-point buffers and counters (BatchNorm statistics), so that what the
published codes put on the wire is exactly one row. The whole model is the core's row followed by the head's.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn

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
    """One flat vector: `core`, `head` or the whole `model`, of one architecture."""

    architecture: str
    name: str
    entries: tuple[Entry, ...]

    @cached_property
    def size(self) -> int:
        """Number of float32 values, P."""
        return sum(entry.stop - entry.start for entry in self.entries)

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
    """The parts of one architecture, read off a module with submodules `core` and `head`.

    Args:
        architecture: the model's name, for messages.
        module: an instance; only its names and shapes are used.
    """

    def __init__(self, architecture: str, module: nn.Module):
        core, offset = _entries(module, CORE, 0)
        head, _ = _entries(module, HEAD, 0)
        shifted = tuple(
            Entry(e.name, e.shape, e.start + offset, e.stop + offset, e.trainable) for e in head
        )
        self.architecture = architecture
        self.parts = {
            CORE: Part(architecture, CORE, core),
            HEAD: Part(architecture, HEAD, head),
            MODEL: Part(architecture, MODEL, core + shifted),
        }

    @property
    def size(self) -> int:
        return self.parts[MODEL].size

    def flatten(self, module: nn.Module, part: str) -> torch.Tensor:
        """A module's values as one row of a part, float32 [P_part]."""
        tensors = _named_state(module)
        return torch.cat([tensors[e.name].detach().reshape(-1).float() for e in self.parts[part].entries])


def _named_state(module: nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _entries(module: nn.Module, part: str, start: int) -> tuple[tuple[Entry, ...], int]:
    submodule = getattr(module, part)
    found = []
    for trainable, tensors in ((True, submodule.named_parameters()), (False, submodule.named_buffers())):
        for name, tensor in tensors:
            stop = start + tensor.numel()
            found.append(Entry(f"{part}.{name}", tuple(tensor.shape), start, stop, trainable))
            start = stop
    return tuple(found), start
