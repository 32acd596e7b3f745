"""What tells one maker of modules from another: its text, the values that it goes by, and what it makes.

A text alone does not: `lambda: net(hidden)` reads the same whatever `hidden` is.
"""

import enum
import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from ddlsim import own_code

_PLAIN = (type(None), bool, int, float, complex, str, bytes, enum.Enum, Path, torch.dtype, torch.device, torch.Size)


class Identity:
    """Gathers what tells a maker of modules from others.

    Attributes:
        known: whether all values that it goes by could be told; otherwise two of one digest may still differ.
    """

    def __init__(self) -> None:
        self.known = True
        self._digest = hashlib.sha256()
        self._seen: set[int] = set()

    @property
    def sha256(self) -> str:
        """In hex."""
        return self._digest.hexdigest()

    def maker(self, given: Callable[..., Any]) -> None:
        """A class or function: its text, what it holds on to (closure, defaults, arguments of a partial), and the
        values of the global names that it uses.
        """
        if id(given) in self._seen:
            return
        self._seen.add(id(given))
        if isinstance(given, functools.partial):
            self.value((given.func, given.args, given.keywords))
            return
        if isinstance(given, MethodType):
            self.value((given.__func__, given.__self__))
            return
        text = own_code.source_of(given)[0]
        self._add("text", text or "")
        if not isinstance(given, FunctionType):
            self.known &= text is not None
            return
        if text is None:
            self._add(
                "code", given.__code__.co_code, [each for each in given.__code__.co_consts if type(each) in _PLAIN]
            )
        self.value((given.__defaults__, given.__kwdefaults__))
        for cell in given.__closure__ or ():
            self.value(cell.cell_contents)
        names = dict.fromkeys(_names(given.__code__))
        self.value({name: given.__globals__[name] for name in names if name in given.__globals__})

    def module(self, module: nn.Module, with_values: bool) -> None:
        """A module: its layers, the names, types and shapes of its tensors, the texts of its own classes."""
        self._add("module", repr(module))
        for cls in dict.fromkeys(type(each) for each in module.modules()):
            if not cls.__module__.startswith("torch."):
                self._add(own_code.source_of(cls)[0] or cls.__qualname__)
        for name, values in (*module.named_parameters(), *module.named_buffers()):
            self._add(name, values.dtype, tuple(values.shape), values.requires_grad)
            if with_values:
                self._add(values.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())

    def value(self, value: Any) -> None:
        """Whatever a maker goes by."""
        if isinstance(value, _PLAIN):
            self._add(type(value).__name__, repr(value))
        elif isinstance(value, list | tuple):
            self._add(type(value).__name__, len(value))
            for each in value:
                self.value(each)
        elif isinstance(value, Mapping):
            self._add("mapping", len(value))
            for key in sorted(value, key=repr):
                self.value((key, value[key]))
        elif isinstance(value, set | frozenset):
            self.value(sorted(value, key=repr))
        elif isinstance(value, np.ndarray | np.generic) and value.dtype.kind != "O":
            self._add("array", value.dtype.str, value.shape, np.ascontiguousarray(value).tobytes())
        elif isinstance(value, torch.Tensor):
            self.value(value.detach().cpu().numpy())
        elif isinstance(value, nn.Module):
            self.module(value, with_values=True)
        elif isinstance(value, ModuleType):
            self._add("import", value.__name__)
        elif isinstance(value, BuiltinFunctionType) or _installed(value):
            self._add("installed", value.__module__, value.__qualname__)
        elif isinstance(value, type | FunctionType | MethodType | functools.partial):
            self.maker(value)
        elif " at 0x" not in repr(value):  # where an object lies in memory, as the default one tells, is no identity
            self._add(type(value).__qualname__, repr(value))
        else:
            self.known = False

    def _add(self, *values: object) -> None:
        for value in values:
            data = value if isinstance(value, bytes) else str(value).encode()
            self._digest.update(f"{len(data)} ".encode() + data)


def _names(code: CodeType) -> Iterator[str]:
    """The names that a function looks up, and those inside it."""
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names(each)


def _installed(value: Any) -> bool:
    """Whether a class or function is of a package, whose version a manifest tells, or of ddlsim."""
    if not isinstance(value, type | FunctionType):
        return False
    if (value.__module__ or "").partition(".")[0] in ("torch", "ddlsim", "builtins", "numpy"):
        return True
    file = own_code.source_file(value)
    return file is not None and "site-packages" in Path(file).parts
