"""What messages hold, and the one walk over it: for its size, for its encoding, and for what else is done to it on its
way out.

A payload is a mapping from names of contents (`model`, `core`, `age`, ...) to leaves, or to mappings and lists of them.
Leaves are parameters, arrays, numbers, and deferred values.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ddlsim.units import FLOAT32_BYTES

SCALAR_BYTES = 8

Path = tuple[Any, ...]
"""Keys and positions that lead to a leaf; the first one names its content."""

Sizes = tuple[tuple[str, int], ...]
"""Bytes by content, in the order of the payload."""


def walk(value: Any, visit: Callable[[Any, Path], Any], path: Path = ()) -> Any:
    """The same mappings and lists with `visit(leaf, path)` in the place of every leaf, in the order of the payload."""
    if isinstance(value, Mapping):
        return {key: walk(child, visit, (*path, key)) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(walk(child, visit, (*path, i)) for i, child in enumerate(value))
    return visit(value, path)


def is_parameters(leaf: Any) -> bool:
    """Whether a leaf is a handle to parameters (learning/bank.py, learning/size_learner.py)."""
    return hasattr(leaf, "part")


def leaf_bytes(leaf: Any) -> int:
    """Bytes on the wire of a leaf that is sent as it is: parameters as float32, arrays, and 8 for a number."""
    if is_parameters(leaf):
        return leaf.part.size * FLOAT32_BYTES
    if isinstance(leaf, np.ndarray):
        return leaf.nbytes
    wire_bytes = getattr(leaf, "wire_bytes", None)  # of a deferred value
    return SCALAR_BYTES if wire_bytes is None else wire_bytes


def content_bytes(value: Any) -> int:
    """Bytes on the wire of one content of a payload, sent as it is: a leaf, or mappings and lists of leaves."""
    if is_parameters(value) or not isinstance(value, (dict, list, tuple, Mapping)):
        return leaf_bytes(value)
    sizes: list[int] = []
    walk(value, lambda leaf, _: sizes.append(leaf_bytes(leaf)))
    return sum(sizes)


def payload_sizes(payload: Mapping[str, Any]) -> Sizes:
    """Bytes by content of a payload that is sent as it is."""
    return tuple([(key, content_bytes(value)) for key, value in payload.items()])
