"""Load classes that a scenario names by a Python file or a module: `./mine.py:Mine`, `package.module:Mine`.

A file is run once as a separate module, and again if it has changed. Its folder is appended to `sys.path`, so that it
can import its neighbors.
"""

import ast
import hashlib
import importlib
import inspect
import os
import re
import sys
import traceback
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from ddlsim.foundation.errors import ScenarioError, kind_of

PATTERN = r"(\.py|^[A-Za-z_][\w.]*):[A-Za-z_]\w*$"
"""Pattern of names of classes in a file (its end) or in a module."""

_PLACE = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)\Z", re.ASCII)
_IMPORT = re.compile(r"(?P<module>[A-Za-z_][\w.]*):(?P<name>[A-Za-z_]\w*)\Z", re.ASCII)
_TEXT = "__ddlsim_text__"
_trusts: ContextVar[bool] = ContextVar("trusts", default=True)
_loaded: dict[Path, ModuleType] = {}
_places: "weakref.WeakKeyDictionary[Any, str]" = weakref.WeakKeyDictionary()


def is_place(name: object) -> bool:
    """Whether a name means a class in a file or module, and not an entry of a table."""
    return isinstance(name, str) and (re.search(r"\.py(:|$)", name) or _IMPORT.match(name)) is not None


def absolute(place: str, folder: Path) -> str:
    """Return a place with the absolute path of its file, relative to a folder before; other text unchanged."""
    found = _PLACE.match(place)
    return f"{(folder / Path(found['file']).expanduser()).resolve()}:{found['name']}" if found else place


def short(place: str) -> str:
    """Return file name and class, without folders."""
    return os.path.basename(place)


def load_class(place: str) -> type:
    """Load the class at a place such as "/home/me/mine.py:Mine" or "package.module:Mine".

    Raises:
        ScenarioError: the file, module or class is missing, or running the file raises.
    """
    found = load_object(place)
    if not isinstance(found, type):
        file, _, name = place.rpartition(":")
        raise ScenarioError(f"{shown_path(file)}: expected the class {name}, got {kind_of(found)}.")
    return found


@contextmanager
def foreign_code(trust: bool) -> Iterator[None]:
    """Within this context, import no file or module that a scenario names, unless `trust` is true.

    For run directories of other people: their scenarios may name any code. Parts of ddlsim and of installed packages
    (entry points) are not affected.
    """
    token = _trusts.set(trust)
    try:
        yield
    finally:
        _trusts.reset(token)


def load_object(place: str) -> Any:
    """Load any callable, as `load_class` does."""
    if not _trusts.get():
        raise ScenarioError(
            f"this needs the code of {place}, which the run directory names and which is not part of ddlsim. If you "
            "trust that code, pass --trust (in Python: ddlsim.load(directory, trust=True))."
        )
    found = _PLACE.match(place)
    if found is None and not _IMPORT.match(place):
        raise ScenarioError(f"expected the path of a file and the name of a class in it (./mine.py:Mine), got {place}")
    file, _, name = place.rpartition(":")
    if found:
        path = Path(file).expanduser().resolve()
        file, module = str(path), _module(path)
    else:
        module = _imported(file, place)
    target = getattr(module, name, None)
    if not callable(target):
        own = [key for key, one in vars(module).items() if isinstance(one, type) and one.__module__ == module.__name__]
        where = shown_path(file)
        what = f" has no class {name}" if target is None else f": expected the class {name}, got {kind_of(target)}"
        raise ScenarioError(f"{where}{what}. Classes in it: {', '.join(own) or 'none'}.")
    if not str(getattr(target, "__module__", "")).startswith("ddlsim."):
        _places[target] = f"{file}:{name}"
    return target


def _imported(name: str, place: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ScenarioError(
            f"unknown name {place!r}: importing the module {name} raises {type(error).__name__}: {error}. A class in a "
            "file is named ./mine.py:Mine."
        ) from error


def know(cls: type, place: str) -> None:
    """Register the place of a class that another process loaded from it."""
    _places[cls] = place


def is_from_outside(part: object) -> bool:
    """Whether a part's class is defined outside ddlsim."""
    return type(part).__module__.partition(".")[0] != "ddlsim"


def place_of(cls: Any) -> str | None:
    """Return the place that a class was loaded from, or None."""
    return _places.get(cls)


def digest_of(place: str) -> str:
    """Return the SHA-256 of `text_of` a place, in hex; empty if there is no text."""
    text = text_of(place)
    return "" if text is None else hashlib.sha256(text).hexdigest()


def text_of(place: str) -> bytes | None:
    """Return the text of a place's file at its last run, or its current text if it was not run; None if missing."""
    path = file_of(place)
    if path in _loaded:
        text: bytes = _loaded[path].__dict__[_TEXT]
        return text
    with suppress(OSError):
        return None if path is None else path.read_bytes()
    return None


def file_of(place: str) -> Path | None:
    """Return the file of a place; None if its module has no file or is not imported."""
    found = _PLACE.match(place)
    if found:
        return Path(found["file"])
    file = getattr(sys.modules.get(module_of(place)), "__file__", None)
    return Path(file) if file else None


def module_of(place: str) -> str:
    """Return the module of a place; empty if the place names a file."""
    return "" if _PLACE.match(place) else place.partition(":")[0]


def where(cls: Any) -> str | None:
    """Return file and line of a class or function, "mine.py:12", or None if it has no source."""
    with suppress(OSError, TypeError):
        return f"{shown_path(inspect.getsourcefile(cls))}:{inspect.getsourcelines(cls)[1]}"
    return None


def source_file(cls: Any) -> str | None:
    """Return the source file of a class or function, or None."""
    with suppress(OSError, TypeError):
        return inspect.getsourcefile(cls)
    return None


def shown_path(path: str | Path | None) -> str:
    """Return a path for messages, relative to the working directory if it is below."""
    try:
        return str(Path(path or "?").relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def user_frame(error: BaseException | None, files: "set[str] | None" = None) -> str | None:
    """Describe an exception with its innermost line in one of the files: "mine.py:12: KeyError: 'x'".

    Args:
        error: the exception.
        files: paths; None: all files loaded here.

    Returns:
        None if its traceback contains none of the files.
    """
    files = {str(path) for path in _loaded} if files is None else files
    text = " ".join(f"{type(error).__name__}: {error}".split())
    if isinstance(error, SyntaxError) and error.filename in files:
        return f"{shown_path(error.filename)}:{error.lineno}: {type(error).__name__}: {error.msg}"
    while error is not None:
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            if frame.filename in files:
                code = f" ({frame.line.strip()})" if frame.line else ""
                return f"{shown_path(frame.filename)}:{frame.lineno}: {text:.500}{code:.200}"
        error = error.__cause__  # SimPy raises a copy of what a process raised
    return None


def _module(path: Path) -> ModuleType:
    """Run a file and return its module."""
    try:
        source = path.read_bytes()
    except OSError as error:
        what = "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        raise ScenarioError(
            f"{shown_path(path)}: {what}. The path is relative to the scenario's file, or with --set to the working "
            "directory."
        ) from error
    target = provide(path, source)
    _refuse_neighbors_of_others(path, source)
    return target


def texts() -> dict[str, bytes]:
    """Return the text of every loaded file by path, for another process."""
    return {str(path): module.__dict__[_TEXT] for path, module in _loaded.items()}


def provide(path: Path, source: bytes) -> ModuleType:
    """Run the text of a file, which need not exist here, and return its module.

    Raises:
        ScenarioError: running it raises.
    """
    if path in _loaded and _loaded[path].__dict__[_TEXT] == source:
        return _loaded[path]
    name = f"ddlsim_own_{re.sub(r'[^0-9A-Za-z_]', '_', path.stem)}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    module = ModuleType(name)
    module.__file__ = str(path)
    module.__dict__[_TEXT] = source
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    before = sys.modules.get(name)
    sys.modules[name] = module  # dataclasses look there for the names in annotations
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        found = user_frame(error, {str(path)}) or f"{shown_path(path)}: {type(error).__name__}: {error}"
        raise ScenarioError(f"importing {shown_path(path)} raises {found}") from error
    _loaded[path] = module
    return module


def _refuse_neighbors_of_others(path: Path, source: bytes) -> None:
    """Raise ScenarioError if a file imports a neighbor but gets the neighbor of a file loaded earlier."""
    folders = {known.parent for known in _loaded} - {path.parent}
    nodes = list(ast.walk(ast.parse(source)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    for name in dict.fromkeys(name.partition(".")[0] for name in names):
        ours = [each for each in (path.parent / f"{name}.py", path.parent / name / "__init__.py") if each.is_file()]
        with suppress(ImportError, ValueError):  # invalid names, modules without a spec
            spec = getattr(sys.modules.get(name), "__spec__", None) or (find_spec(name) if ours else None)
            found = Path(getattr(spec, "origin", None) or "")
            if ours and (found.parent.parent if found.name == "__init__.py" else found.parent) in folders:
                raise ScenarioError(
                    f"{shown_path(path)} imports {name} and gets {shown_path(found)}, a neighbor of a file loaded "
                    f"earlier, instead of {shown_path(ours[0])}. Give one of them another name, or run "
                    "each in a separate process."
                )
