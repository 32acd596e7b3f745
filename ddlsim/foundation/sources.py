"""Origin of user code: its source file, the SHA-256 of this file and of the user's modules that it imports, git state.

The SHA-256 covers text only. It does not cover values that a program sets at run time, such as globals or os.environ.
"""

import ast
import hashlib
import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec, resolve_name
from operator import attrgetter
from pathlib import Path
from typing import Any

from ddlsim.foundation import own_code
from ddlsim.foundation.environment import git

_STDLIB = Path(os.__file__).parent
_PACKAGES = ("site-packages", "dist-packages")
_texts: dict[str, tuple[Any, bytes]] = {}
"""Module -> its spec, which a reload replaces, and its text when first read."""


def about(cls: type) -> dict[str, Any]:
    """Return the entry of a user's class in a manifest: path, SHA-256 (see `digest_of`) and git state of its file, and
    the source text if Python code provides the class.

    A class with the attributes `written_as` and `code` stands for another class or function, with this digest.
    """
    place, definition = own_code.place_of(cls), getattr(cls, "written_as", cls)
    file = own_code.file_of(place) if place else own_code.source_file(definition)
    path = Path(file) if file and (place or Path(file).is_file()) else None
    found = {
        "path": path and str(path),
        "sha256": getattr(cls, "code", None) if hasattr(cls, "written_as") else digest_of(cls),
        "git": _git_state(path) if path else None,
    }
    if place:
        return found
    return {**found, "source": None if path and "site-packages" in path.parts else source_of(definition)}


def source_of(definition: Any) -> str | None:
    """Return the source text of a class or function, or None if Python does not keep it."""
    try:
        return inspect.getsource(definition)
    except (OSError, TypeError):
        return None


def digest_of(definition: Any) -> str | None:
    """Return the SHA-256, in hex, of the source file of a class or function and of the user's modules that it imports.

    Returns:
        None if a file alone does not define it: it is from a notebook or prompt, a lambda, or made inside a function.
    """
    place = own_code.place_of(definition)
    module = own_code.module_of(place) if place else str(getattr(definition, "__module__", ""))
    if not place and not _is_in(module, definition):
        return None
    text = own_code.text_of(place) if place and not module else _text(module)
    return None if text is None else _digest_of_text(text, _package_of(module))


def _is_in(module: str, definition: Any) -> bool:
    """Whether a module defines a class or function under its qualified name."""
    with suppress(AttributeError):
        return module in sys.modules and attrgetter(definition.__qualname__)(sys.modules[module]) is definition
    return False


def is_installed(module: str) -> bool:
    """Whether a module belongs to an installed package, Python or ddlsim; `__main__` never does."""
    if module == "__main__":
        return False
    if module.partition(".")[0] in ("torch", "ddlsim", "builtins", "numpy") or module in sys.builtin_module_names:
        return True
    file = _file_of(module)
    path = Path(file or "")
    return bool(file) and (path.is_relative_to(_STDLIB) or any(each in path.parts for each in _PACKAGES))


def _digest_of_text(text: bytes, package: str) -> str:
    """Return the SHA-256 of a text and of the user's modules that it imports.

    Args:
        text: of a source file.
        package: package of the file, for relative imports; empty: none.
    """
    helpers: dict[str, bytes] = {}
    _add_helpers(text, package, helpers)
    digest = hashlib.sha256(text)
    for name, helper in sorted(helpers.items()):
        digest.update(f"\n{name} {hashlib.sha256(helper).hexdigest()}".encode())
    return digest.hexdigest()


def _add_helpers(text: bytes, package: str, found: dict[str, bytes]) -> None:
    """Add the user's modules that a text imports, directly or through another one, with their texts."""
    for name in _imported(text, package):
        helper = None if name in found or is_installed(name.partition(".")[0]) or is_installed(name) else _text(name)
        if helper is not None:
            found[name] = helper
            _add_helpers(helper, _package_of(name), found)


def _imported(text: bytes, package: str) -> Iterator[str]:
    """Yield the names that a text imports, at any depth; some may not be modules."""
    with suppress(SyntaxError, ValueError):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                with suppress(ImportError):
                    module = resolve_name("." * node.level + (node.module or ""), package)
                    yield module
                    yield from (f"{module}.{alias.name}" for alias in node.names)


def _text(module: str) -> bytes | None:
    """Return the text of a module (if loaded: its text when first read, until a reload), or None if it has no file."""
    spec, known, file = _spec(module), _texts.get(module), _file_of(module)
    if known is not None and known[0] is spec:
        return known[1]
    with suppress(OSError):
        text = Path(file).read_bytes() if file and file.endswith(".py") else None
        if text is not None and module in sys.modules:
            _texts[module] = spec, text
        return text
    return None


def _file_of(module: str) -> str | None:
    if module in sys.modules:
        return getattr(sys.modules[module], "__file__", None)
    return getattr(_spec(module), "origin", None)


def _package_of(module: str) -> str:
    return str(getattr(sys.modules.get(module), "__package__", None) or getattr(_spec(module), "parent", None) or "")


def _spec(module: str) -> Any:
    """Return Python's spec of a module, without importing it."""
    if module in sys.modules:
        return getattr(sys.modules[module], "__spec__", None)
    above = module.rpartition(".")[0]
    with suppress(ImportError, ValueError, AttributeError):
        return find_spec(module) if not above or above in sys.modules else None
    return None


def _git_state(path: Path) -> dict[str, Any] | None:
    """Return the commit of the file's repository, and whether this file or any tracked file differs from it.

    None: the file is in no repository, or git is not installed.
    """

    folder = path.parent
    try:
        commit = git(folder, "rev-parse", "HEAD")
        changed = git(folder, "status", "--porcelain", "--untracked-files=no")
        changed = changed or git(folder, "status", "--porcelain", "--", path.name)
        ignored = not changed and not git(folder, "ls-files", "--", path.name)
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "dirty": bool(changed) or ignored}
