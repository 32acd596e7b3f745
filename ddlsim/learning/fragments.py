"""Fragments: named columns of a model's parameters that nodes send, merge and update like a part.

A layer is a module of the first numbered list in a parameter's name that has several modules with parameters
(`core.0`, `transformer.h.11`), or else the module that has the parameter. Fragments get the layers of a part in turn
(`strided`) or in consecutive blocks (`sequential`), as in Douillard et al., "Streaming DiLoCo with overlapping
communication" (arXiv 2501.18512). BatchNorm statistics belong to their layer.

A random fragment is a share of all columns, drawn without replacement, so its bytes are always equal. Beton et al.,
"Improving the efficiency of distributed training using sparse parameter averaging" (SPARTA, 2025), draw each column
independently.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal

import numpy as np

from ddlsim.foundation.rng import stream

Order = Literal["strided", "sequential"]
"""Assignment of layers to fragments."""

Ranges = tuple[tuple[int, int], ...]
"""Columns [start, stop), ascending."""


@dataclass(frozen=True)
class Fragment:
    """Columns of a part.

    Args:
        name: its name.
        size: number of columns.
        ranges: the columns; empty if they are drawn.
        layers: names of its layers.
        drawn: seed, number of the draw, and columns of the part, if the columns are drawn.
    """

    name: str
    size: int
    ranges: Ranges = ()
    layers: tuple[str, ...] = ()
    drawn: tuple[int, int, int] | None = None

    @property
    def columns(self) -> "Ranges | np.ndarray":
        """The columns: ranges, or int64 [size] if they are drawn."""
        return self.ranges if self.drawn is None else _drawn(*self.drawn, self.size)

    def tensors_in(self, tensors: Sequence) -> list[tuple[int, int]]:
        """Return, for each tensor in the fragment, its index in the part and its first column in the fragment."""
        found, at = [], 0
        for start, stop in self.ranges:
            found += [(i, each.start - start + at) for i, each in enumerate(tensors) if start <= each.start < stop]
            at += stop - start
        return found


def layers_of(tensors: Sequence) -> dict[str, Ranges]:
    """Return the columns of each layer, in the order of the part."""
    modules: dict[str, set[str]] = defaultdict(set)
    for tensor in tensors:
        path = tensor.name.split(".")
        for i, name in enumerate(path):
            if name.isdigit():
                modules[".".join(path[:i])].add(name)
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for tensor in tensors:
        path = tensor.name.split(".")
        numbered = (i for i, name in enumerate(path) if name.isdigit() and len(modules[".".join(path[:i])]) > 1)
        last = next(numbered, len(path) - 2)
        found[".".join(path[: last + 1])].append((tensor.start, tensor.stop))
    return {name: _joined(ranges) for name, ranges in found.items()}


def fragments_of(layers: dict[str, Ranges], count: int, order: Order) -> tuple[Fragment, ...]:
    """Assign layers to fragments, of which there are at most as many as layers."""
    names, found = list(layers), []
    for i in range(count):
        own = names[i::count] if order == "strided" else names[len(names) * i // count : len(names) * (i + 1) // count]
        ranges = _joined([each for name in own for each in layers[name]])
        name = own[0] if len(names) == count else f"fragment {i}"
        found.append(Fragment(name, sum(stop - start for start, stop in ranges), ranges, tuple(own)))
    return tuple(found)


def equal_fragments(size: int, count: int) -> tuple[Fragment, ...]:
    """Return consecutive fragments of nearly equal size of a part without known layers."""
    ends = [size * i // count for i in range(count + 1)]
    return tuple(
        Fragment(f"fragment {i}", stop - start, ((start, stop),)) for i, (start, stop) in enumerate(pairwise(ends))
    )


def _joined(ranges: Sequence[tuple[int, int]]) -> Ranges:
    """Return ranges in ascending order, with adjacent ranges joined."""
    found: list[tuple[int, int]] = []
    for start, stop in sorted(set(ranges)):
        found.append((found.pop()[0] if found and found[-1][1] >= start else start, stop))
    return tuple(found)


@lru_cache(maxsize=8)
def _drawn(seed: int, number: int, size: int, count: int) -> np.ndarray:
    """Return `count` different columns of `size`, ascending; all nodes share one array."""
    return np.sort(stream(seed, "random fragment", number).choice(size, count, replace=False, shuffle=False))
