"""What tells the code of a part from other code: its text, the values that it goes by, the modules that it imports.

A text alone does not: `lambda: net(hidden)` and `nn.Linear(8, WIDTH)` read the same whatever `hidden` and `WIDTH` are.
Nothing of an installed package is looked into; a manifest tells their versions.
"""

import copyreg
import dataclasses
import dis
import enum
import functools
import hashlib
import inspect
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.foundation import imports, own_code

if TYPE_CHECKING:
    from torch import nn


_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Path()))
_WRAPPERS = (staticmethod, classmethod, functools.partial, functools.cached_property, property)
MODULE_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""What a module keeps of functions that were hooked on it."""
_LOOKUPS = ("globals", "eval", "exec")
"""Built-in functions whose outcome may be any value of the module."""
_KINDS = (type, FunctionType, MethodType, *_WRAPPERS)


class Identity:
    """Gathers what tells a maker of modules, or the class of a part, from others.

    Attributes:
        known: whether all values that it goes by could be told; otherwise two of one digest may still differ.
    """

    def __init__(self) -> None:
        self.known = True
        self._digest = hashlib.sha256()
        self._seen: dict[int, tuple[int, Any]] = {}  # id -> its number; holds it, so that no other gets its id

    @property
    def sha256(self) -> str:
        """In hex."""
        return self._digest.hexdigest()

    def maker(self, given: Any) -> None:
        """A class or function: its text, what it holds on to (closure, defaults, arguments of a partial), and the
        values of the global names that it uses; of a class also its bases, its attributes, and as much of each method.
        """
        if self._known_already(given):
            return
        if isinstance(given, _WRAPPERS):
            self.value(_inside(given))
        elif isinstance(given, MethodType):
            self.value((given.__func__, given.__self__))
        elif isinstance(given, FunctionType):
            self._function(given)
        elif isinstance(given, type):
            self._class(given)
        else:
            self.known = False

    def module(self, module: "nn.Module", with_values: bool) -> None:
        """A module: its layers, the names, types and shapes of its tensors, its own classes.

        Args:
            module: a torch.nn.Module.
            with_values: whether the values of its tensors and of its other attributes count.
        """
        from torch import nn

        self._add("module", repr(module))
        usual = vars(nn.Module())
        for each in module.modules():
            own = {name: value for name, value in vars(each).items() if name not in usual}
            for hooks in (getattr(each, name) for name in MODULE_HOOKS):
                if hooks:
                    self._add("hooks", len(hooks))
                    self.value(list(hooks.values()))
            if imports.is_installed(type(each)):  # what it shows is not all that it does: heads of attention
                for name, value in own.items():
                    self._attribute(each, name, value)
                continue
            self.maker(type(each))
            if with_values:
                self.value(own)
        for name, values in (*module.named_parameters(), *module.named_buffers()):
            self._add(name, values.dtype, tuple(values.shape), values.requires_grad)
            if with_values:
                self.value(values)

    def _attribute(self, module: "nn.Module", name: str, value: Any) -> None:
        """Of a module of a package: what is plain, and what is not the package's, such as an activation of one's own.
        The rest is tensors, and what the package makes of them.
        """
        if isinstance(value, MethodType) and value.__self__ is module:
            value = value.__func__
        if _is_plain(value) or isinstance(value, _KINDS) or not imports.is_installed(type(value)):
            self.value((name, value))

    def value(self, value: Any) -> None:
        """Whatever a maker goes by."""
        kind = type(value)
        if kind in _PLAIN:  # one of a class that is made from these may do something else
            self._add(kind.__name__, repr(value))
        elif kind in (list, tuple) or _is_bare_namedtuple(value):
            self._add(kind.__name__, len(value), getattr(value, "_fields", ""))
            for each in value:
                self.value(each)
        elif kind in (dict, MappingProxyType, OrderedDict, defaultdict):
            self._add("mapping", len(value))
            self.value(getattr(value, "default_factory", None))
            for each in value.items():
                self.value(each)
        elif kind in (set, frozenset):
            self._unordered(value)
        elif (kind is np.ndarray or isinstance(value, np.generic)) and not value.dtype.hasobject:
            self._add("array", value.dtype.descr, value.shape, np.ascontiguousarray(value).tobytes())
        elif isinstance(value, ModuleType):
            self._add("import", value.__name__, imports.digest_of(value.__name__))
        elif isinstance(value, BuiltinFunctionType):
            self._add("built in", value.__module__, value.__qualname__)
            if not isinstance(value.__self__, ModuleType):
                self.value(value.__self__)
        elif imports.is_installed(value):
            self._add("installed", value.__module__, value.__qualname__ if isinstance(value, type) else value.__name__)
        elif isinstance(value, _KINDS):
            self.maker(value)
        elif not self._of_torch(value):
            self._object(value)

    def _unordered(self, values: set | frozenset) -> None:
        """A set, whose order is another one in every process."""
        digests = []
        for each in values:
            own = Identity()
            own.value(each)
            self.known &= own.known
            digests.append(own.sha256)
        self._add("set", *sorted(digests))

    def _function(self, given: FunctionType) -> None:
        """See `maker`; of what a decorator of a package has made of a function, that function."""
        code = given.__code__
        if hasattr(given, "__wrapped__") and imports.is_of_package(code.co_filename):
            self.value([cell.cell_contents for cell in given.__closure__ or () if type(cell.cell_contents) in _PLAIN])
            self.value(given.__wrapped__)
            return
        text = own_code.source_of(code if hasattr(given, "__wrapped__") else given)[0]  # its own, not what it wraps
        self._add("text", text or "")
        if text is None or code.co_name == "<lambda>" or not own_code.is_as_written(code):  # a line may hold several
            self._code(code)
        self.value((given.__defaults__, given.__kwdefaults__))
        if own := {name: value for name, value in vars(given).items() if name != "__wrapped__"}:
            self.value(own)
        for cell in given.__closure__ or ():
            self.value(cell.cell_contents)
        names, imported, attributes = _used(code)
        self.known &= not _reads_elsewhere(given, names, imported, attributes)
        for name in names:
            if name in given.__globals__:
                value = given.__globals__[name]
                self.value((name, value))
                if isinstance(value, ModuleType) and not imports.is_installed(value):
                    self.value({each: vars(value)[each] for each in attributes if each in vars(value)})
        for name in imported:
            digest = imports.digest_of(name)
            self.known &= bool(digest) or imports.is_installed_module(name)
            self._add("import", name, digest)

    def _code(self, code: CodeType) -> None:
        """What stands for a text that is not kept, or is another one by now than what was loaded."""
        self._add("code", code.co_code, code.co_names)
        for each in code.co_consts:
            if isinstance(each, CodeType):
                self._code(each)
            else:
                self.value(each)

    def _class(self, given: type) -> None:
        """See `maker`."""
        text = own_code.source_of(given)[0]
        self.known &= text is not None
        self._add("text", text or "")
        self.value(given.__bases__)
        for name, member in sorted(vars(given).items()):
            method = isinstance(member, FunctionType | staticmethod | classmethod)
            if (method or not name.startswith(("__", "_abc_"))) and not _written_by_dataclass(member):
                self.value((name, member))
        for field in vars(given).get("__dataclass_fields__", {}).values():
            if field.default_factory is not dataclasses.MISSING:
                self.value((field.name, field.default_factory))

    def _object(self, value: Any) -> None:
        """An object: its class and attributes, if Python code alone makes up both, otherwise what it can be made anew
        from. One that shows where something lies in memory, or of a package's class that keeps what it has computed,
        counts as unknown: a generator of random numbers, a graph, has another state after every use.
        """
        cls = type(value)
        alone = cls is not object and all(each is object or not imports.is_installed(each) for each in cls.__mro__)
        if not alone and (" at 0x" in repr(value) or _keeps_results(cls)):
            self.known = False
        elif self._known_already(value):
            return
        elif hasattr(value, "__dict__") and (alone or isinstance(value, SimpleNamespace)):
            self.value((cls, vars(value), _in_slots(value)))
        else:
            self._remade(value)

    def _remade(self, value: Any) -> None:
        """What `copy` and `pickle` make such an object from: what it is shown as may be half of it."""
        cls = type(value)
        self._add(cls.__qualname__)
        try:
            reduced = copyreg.dispatch_table[cls](value) if cls in copyreg.dispatch_table else value.__reduce_ex__(4)
        except Exception:
            self.known = False
            return
        if isinstance(reduced, str):
            self._add(reduced)
            return
        parts = [list(each) if isinstance(each, Iterator) else each for each in reduced]
        for part in parts:
            if cls.__module__.startswith("scipy.sparse") and isinstance(
                part, dict
            ):  # but what it has found of its order
                self.value({name: each for name, each in part.items() if not name.startswith("_has_")})
            else:
                self.value(part)

    def _of_torch(self, value: Any) -> bool:
        """Whether it is a tensor or module, which it takes then; without torch there are none."""
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(value, torch.Tensor | torch.nn.Module):
            return False
        if isinstance(value, torch.Tensor):
            flat = value.detach().cpu().contiguous().reshape(-1)
            self._add("tensor", value.dtype, tuple(value.shape), flat.view(torch.uint8).numpy().tobytes())
        else:
            self.module(value, with_values=True)
        return True

    def _known_already(self, given: Any) -> bool:
        """Whether it was told before; that it comes again, and which one it is, counts."""
        if id(given) in self._seen:
            self._add("again", self._seen[id(given)][0])
            return True
        self._seen[id(given)] = len(self._seen), given
        return False

    def _add(self, *values: object) -> None:
        for value in values:
            data = value if isinstance(value, bytes) else str(value).encode()
            self._digest.update(f"{len(data)} ".encode() + data)


def _is_plain(value: Any) -> bool:
    """Whether a value is one, or a list of such, that is told by itself; or a function or class of a package."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, (*_PLAIN, enum.Enum)) or (callable(value) and imports.is_installed(value))


def _is_bare_namedtuple(value: Any) -> bool:
    """Whether `collections.namedtuple` alone has made its class, which has no text."""
    kind = type(value)
    return kind.__bases__ == (tuple,) and hasattr(kind, "_fields") and own_code.source_of(kind)[0] is None


def _in_slots(value: Any) -> dict[str, Any]:
    """What an object of an own class holds beside its `__dict__`."""
    found = {}
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            private = name.startswith("__") and not name.endswith("__")
            held = f"_{cls.__name__.lstrip('_')}{name}" if private else name
            if name not in ("__dict__", "__weakref__") and hasattr(value, held):
                found[held] = getattr(value, held)
    return found


def _keeps_results(cls: type) -> bool:
    """Whether objects of a class of a package hold more once they have been used."""
    members = (member for each in cls.__mro__ if imports.is_installed(each) for member in vars(each).values())
    return any(
        isinstance(each, functools.cached_property) or "lazy_property" in type(each).__name__ for each in members
    )


def _inside(given: Any) -> tuple[Any, ...]:
    """What a wrapper holds."""
    if isinstance(given, property):
        return given.fget, given.fset, given.fdel
    if isinstance(given, functools.partial):
        return given.func, given.args, given.keywords
    return (given.func if isinstance(given, functools.cached_property) else given.__func__,)


def _used(code: CodeType) -> tuple[list[str], list[str], list[str]]:
    """The global names that a function and those inside it look up, the modules that they import, and all names."""
    names, imported, every = [], [], list(code.co_names)
    for each in dis.get_instructions(code):
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            names.append(each.argval)
        elif each.opname == "IMPORT_NAME":
            imported.append(each.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            for own, further in zip((names, imported, every), _used(inner), strict=True):
                own += further
    return list(dict.fromkeys(names)), list(dict.fromkeys(imported)), list(dict.fromkeys(every))


def _reads_elsewhere(given: FunctionType, names: list[str], imported: list[str], every: list[str]) -> bool:
    """Whether a function can go by values that no name in it stands for: globals(), os.environ, sys.modules.

    Args:
        given: the function.
        names, imported, every: what `_used` finds in it.
    """
    own = given.__globals__
    knows_sys = "sys" in imported or any(own.get(name) is sys for name in names)
    return (
        any(name in _LOOKUPS and name not in own for name in names)
        or bool({"environ", "environb", "getenv", "getenvb"}.intersection(every))
        or ("modules" in every and (knows_sys or own.get("modules") is sys.modules))
    )


def _written_by_dataclass(member: Any) -> bool:
    """Whether a method is none of the class's text."""
    code = getattr(inspect.unwrap(member), "__code__", None) if isinstance(member, FunctionType) else None
    return code is not None and code.co_filename == "<string>"
