"""The modules that Python code imports, and which of them are a user's own: those that no package holds."""

import ast
import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec, resolve_name
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

_STDLIB = Path(os.__file__).parent
_DDLSIM = Path(__file__).parent
_FOLDERS = ("site-packages", "dist-packages")
_loaded: dict[str, tuple[Any, bytes]] = {}
"""Module -> its spec, which is another one when it is loaded anew, and its text then."""


def is_installed(value: Any) -> bool:
    """Whether a module, class or function is of a package, whose version a manifest tells, or of Python or ddlsim."""
    if isinstance(value, ModuleType):
        return is_installed_module(value.__name__)
    name = getattr(value, "__module__", None)
    if isinstance(value, FunctionType):  # one of a user's that functools.wraps has given the name of another
        name = value.__globals__.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    named = isinstance(value, type | FunctionType) or (
        callable(value) and getattr(module, getattr(value, "__name__", ""), None) is value  # numpy.mean, for one
    )
    return named and module is not None and is_installed_module(module.__name__)


def is_installed_module(name: str) -> bool:
    """As `is_installed`, of a module by its name; `__main__` is the user's, also where `python -m` runs a package."""
    if name == "__main__":
        return False
    if name.partition(".")[0] in ("torch", "ddlsim", "builtins", "numpy") or name in sys.builtin_module_names:
        return True
    file = getattr(sys.modules.get(name), "__file__", None) or getattr(_spec(name), "origin", None)
    return bool(file) and is_of_package(str(file))


def package_of(name: str) -> str:
    """The package that a module's relative imports begin at; empty: none."""
    return str(getattr(sys.modules.get(name), "__package__", None) or getattr(_spec(name), "parent", None) or "")


def is_of_package(file: str) -> bool:
    """Whether a file belongs to an installed package, Python or ddlsim."""
    path = Path(file)
    return path.is_relative_to(_STDLIB) or path.is_relative_to(_DDLSIM) or any(each in path.parts for each in _FOLDERS)


def digest_of(name: str) -> str:
    """SHA-256 of a module's file and of those of the own modules that it imports, in hex; empty: it is installed, or
    has no file.
    """
    text = _text(name)
    return "" if text is None else digest_of_text(text, package_of(name))


def digest_of_text(text: bytes | None, package: str) -> str:
    """SHA-256 of a file, in hex; where it imports modules of its own, of these as well. Empty: there is none.

    Args:
        text: of the file.
        package: that it is a part of, for relative imports; empty: none.
    """
    if text is None:
        return ""
    helpers: dict[str, bytes] = {}
    _add_helpers(text, package, helpers)
    digest = hashlib.sha256(text)
    for name, helper in sorted(helpers.items()):
        digest.update(f"\n{name} {hashlib.sha256(helper).hexdigest()}".encode())
    return digest.hexdigest()


def _add_helpers(text: bytes, package: str, found: dict[str, bytes]) -> None:
    """Adds the own modules that a text imports, and those that they import, with their texts."""
    for name in _imported(text, package):
        helper = None if name in found else _text(name)
        if helper is not None:
            found[name] = helper
            _add_helpers(helper, package_of(name), found)


def _imported(text: bytes, package: str) -> Iterator[str]:
    """Names that a text imports, anywhere in it; some of them may be no modules."""
    with suppress(SyntaxError, ValueError):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                with suppress(ImportError):
                    module = resolve_name("." * node.level + (node.module or ""), package)
                    yield module
                    yield from (f"{module}.{alias.name}" for alias in node.names)


def _text(name: str) -> bytes | None:
    """The text of an own module, of a loaded one that which was there when it was asked for first; None: it has none,
    or is installed.
    """
    if is_installed_module(name.partition(".")[0]):
        return None
    spec, known = _spec(name), _loaded.get(name)
    if known is not None and known[0] is spec:
        return known[1]
    file = getattr(sys.modules.get(name), "__file__", None) or getattr(spec, "origin", None)
    if not file or is_of_package(file) or not file.endswith(".py"):
        return None
    with suppress(OSError):
        text = Path(file).read_bytes()
        if name in sys.modules and spec is not None:
            _loaded[name] = spec, text
        return text
    return None


def _spec(name: str) -> Any:
    """What Python finds of a module, without importing any."""
    if name in sys.modules:
        return getattr(sys.modules[name], "__spec__", None)
    above = name.rpartition(".")[0]
    with suppress(ImportError, ValueError, AttributeError):
        return find_spec(name) if not above or above in sys.modules else None
    return None
