"""What messages hold, and the one walk over it: for its size, for its encoding, and for what else is done to it on its
way out.

A payload is a mapping from names of contents (`model`, `core`, `age`, ...) to leaves, or to mappings and lists of them.
Leaves are parameters, arrays and tensors, numbers, texts and bytes, deferred values, and objects that say their size.
"""

from collections.abc import Callable, Mapping
from numbers import Number
from typing import Any

import numpy as np

from ddlsim.errors import DdlsimError
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
        made = (walk(child, visit, (*path, i)) for i, child in enumerate(value))
        return type(value)._make(made) if hasattr(value, "_make") else type(value)(made)
    return visit(value, path)


def is_parameters(leaf: Any) -> bool:
    """Whether a leaf is a handle to parameters (learning/bank.py, learning/size_learner.py)."""
    return hasattr(leaf, "part")


def as_sent(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A payload as it is when it is sent, whatever its sender changes in place afterwards.

    Mappings and lists are made anew, arrays and tensors copied; the arrays can only be read, since all receivers share
    them.

    Raises:
        DdlsimError: a leaf whose size on the wire cannot be told.
    """
    return {
        name: value if is_parameters(value) else walk(value, _leaf_as_sent, (name,)) for name, value in payload.items()
    }


def _leaf_as_sent(leaf: Any, path: Path) -> Any:
    if is_parameters(leaf) or leaf is None or isinstance(leaf, (Number, str, bytes, np.generic)):
        return leaf
    if hasattr(leaf, "wire_bytes"):  # of a deferred value, or an object that says its size
        return leaf
    if isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject:
        made = leaf.copy()
        made.setflags(write=False)
        return made
    if _is_tensor(leaf):
        return leaf.detach().clone()
    if isinstance(leaf, bytearray):
        return bytes(leaf)
    what = "an array of objects" if isinstance(leaf, np.ndarray) else f"a {type(leaf).__name__}"
    raise DdlsimError(
        f"the content {path[0]} of a message holds {what}, whose bytes on the wire cannot be told. Send parameters, "
        "arrays, tensors, numbers, texts, bytes, or mappings, lists and tuples of them, or an object with an "
        "attribute wire_bytes."
    )


def leaf_bytes(leaf: Any) -> int:
    """Bytes on the wire of a leaf that is sent as it is: parameters as float32, arrays and tensors as they are, texts
    in UTF-8, and 8 for a number.
    """
    if is_parameters(leaf):
        return leaf.part.size * FLOAT32_BYTES
    if isinstance(leaf, np.ndarray) or _is_tensor(leaf):
        return leaf.nbytes
    if isinstance(leaf, str):
        return len(leaf.encode())
    if isinstance(leaf, bytes):
        return len(leaf)
    wire_bytes = getattr(leaf, "wire_bytes", None)  # of a deferred value
    return SCALAR_BYTES if wire_bytes is None else wire_bytes


def _is_tensor(leaf: Any) -> bool:
    """Whether it is a torch.Tensor, without importing torch."""
    return hasattr(leaf, "element_size")


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
