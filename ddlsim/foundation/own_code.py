"""Classes from a Python file or an importable module that a scenario names: `./mine.py:Mine`, `package.module:Mine`.

A file is run once, as a module of its own; its folder comes last in `sys.path`, so that it can import its neighbors.
One that has changed since is run anew.
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

from ddlsim.foundation.errors import ScenarioError

PATTERN = r"(\.py|^[A-Za-z_][\w.]*):[A-Za-z_]\w*$"
"""What the name of a class in a file ends with, or that of one in a module is."""

_PLACE = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)\Z", re.ASCII)
_IMPORT = re.compile(r"(?P<module>[A-Za-z_][\w.]*):(?P<name>[A-Za-z_]\w*)\Z", re.ASCII)
_TEXT = "__ddlsim_text__"
_trusts: ContextVar[bool] = ContextVar("trusts", default=True)
_loaded: dict[Path, tuple[str, ModuleType]] = {}
_places: "weakref.WeakKeyDictionary[Any, str]" = weakref.WeakKeyDictionary()


def is_place(name: object) -> bool:
    """Whether a name means a class in a file or module, and not an entry of a table."""
    return isinstance(name, str) and (re.search(r"\.py(:|$)", name) or _IMPORT.match(name)) is not None


def absolute(place: str, folder: Path) -> str:
    """A place whose path is relative to a folder, with its whole path; what is no place stays as it is."""
    found = _PLACE.match(place)
    return f"{(folder / Path(found['file']).expanduser()).resolve()}:{found['name']}" if found else place


def short(place: str) -> str:
    """File name and class, without folders."""
    return os.path.basename(place)


def load_class(place: str) -> type:
    """The class at a place such as "/home/me/mine.py:Mine" or "package.module:Mine".

    Raises:
        ScenarioError: there is no such file or module, running it raises, or it has no such class.
    """
    found = load_object(place)
    if not isinstance(found, type):
        file, _, name = place.rpartition(":")
        raise ScenarioError(f"{shown_path(file)} has a {type(found).__name__}, no class, of the name {name}.")
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
    """As `load_class`, of anything that can be called."""
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
        file, module = str(path), _module(path)[1]
    else:
        module = _imported(file, place)
    made = getattr(module, name, None)
    if not callable(made):
        own = [
            key for key, each in vars(module).items() if isinstance(each, type) and each.__module__ == module.__name__
        ]
        what = "has no class" if made is None else f"has a {type(made).__name__}, no class, of the name"
        raise ScenarioError(f"{shown_path(file)} {what} {name}. Classes in it: {', '.join(own) or 'none'}.")
    if not str(getattr(made, "__module__", "")).startswith("ddlsim."):
        _places[made] = f"{file}:{name}"
    return made


def _imported(name: str, place: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ScenarioError(
            f"unknown name {place!r}: importing the module {name} raises {type(error).__name__}: {error}. A class in a "
            "file is named ./mine.py:Mine."
        ) from error


def know(cls: type, place: str) -> None:
    """Makes a class that has come from another process known by the place that it was loaded from there."""
    _places[cls] = place


def is_from_outside(part: object) -> bool:
    """Whether a part's class is not ddlsim's own."""
    return type(part).__module__.partition(".")[0] != "ddlsim"


def place_of(cls: Any) -> str | None:
    """The place that a class was loaded from; None: it was not."""
    return _places.get(cls)


def digest_of(place: str) -> str:
    """SHA-256 of the file of a place, as it was run last (as it is, if it was not), in hex; empty: there is none."""
    text = text_of(place)
    return "" if text is None else hashlib.sha256(text).hexdigest()


def text_of(place: str) -> bytes | None:
    """The text of the file of a place, as it was run last (as it is, if it was not); None: there is none."""
    path = file_of(place)
    if path in _loaded:
        text: bytes = _loaded[path][1].__dict__[_TEXT]
        return text
    with suppress(OSError):
        return None if path is None else path.read_bytes()
    return None


def file_of(place: str) -> Path | None:
    """The file in which the class of a place stands; None: its module has none, or is not imported."""
    found = _PLACE.match(place)
    if found:
        return Path(found["file"])
    file = getattr(sys.modules.get(module_of(place)), "__file__", None)
    return Path(file) if file else None


def module_of(place: str) -> str:
    """The module of a place that names one; empty: it names a file."""
    return "" if _PLACE.match(place) else place.partition(":")[0]


def where(cls: Any) -> str | None:
    """File and line of a class or function, "mine.py:12"; None: its source is not there."""
    try:
        return f"{shown_path(inspect.getsourcefile(cls))}:{inspect.getsourcelines(cls)[1]}"
    except (OSError, TypeError):
        return None


def source_file(cls: Any) -> str | None:
    """The file that a class or function is written in."""
    try:
        return inspect.getsourcefile(cls)
    except (OSError, TypeError):
        return None


def shown_path(path: str | Path | None) -> str:
    """A path as a reader of messages knows it: relative to the working directory if it lies below."""
    try:
        return str(Path(path or "?").relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def user_frame(error: BaseException | None, files: "set[str] | None" = None) -> str | None:
    """An exception with the innermost line of it that lies in one of the files: "mine.py:12: KeyError: 'x'".

    Args:
        error: what was raised.
        files: paths; None: all that were loaded here.
    Returns:
        None if it has been raised without going through any of them.
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


def _module(path: Path) -> tuple[str, ModuleType]:
    """SHA-256 of a file and the module that running it has made."""
    try:
        source = path.read_bytes()
    except OSError as error:
        what = "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        raise ScenarioError(
            f"{shown_path(path)}: {what}. The path is relative to the scenario's file, or with --set to the working "
            "directory."
        ) from error
    made = _run(path, source)
    _refuse_neighbors_of_others(path, source)
    return made


def texts() -> dict[str, bytes]:
    """Path -> text of every file that a class was loaded from, for another process."""
    return {str(path): module.__dict__[_TEXT] for path, (_, module) in _loaded.items()}


def provide(path: Path, source: bytes) -> None:
    """Runs the text of a file, which need not be there, so that its classes can be unpickled.

    Raises:
        ScenarioError: running it raises.
    """
    _run(path, source)


def _run(path: Path, source: bytes) -> tuple[str, ModuleType]:
    digest = hashlib.sha256(source).hexdigest()
    if path in _loaded and _loaded[path][0] == digest:
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
    _loaded[path] = digest, module
    return _loaded[path]


def _refuse_neighbors_of_others(path: Path, source: bytes) -> None:
    """Raises ScenarioError if a file imports a neighbor, and gets that of another file that was loaded before."""
    folders = {known.parent for known in _loaded} - {path.parent}
    nodes = list(ast.walk(ast.parse(source)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    for name in dict.fromkeys(name.partition(".")[0] for name in names):
        ours = [each for each in (path.parent / f"{name}.py", path.parent / name / "__init__.py") if each.is_file()]
        with suppress(ImportError, ValueError):  # of a name that is none, or a module without a place
            spec = getattr(sys.modules.get(name), "__spec__", None) or (find_spec(name) if ours else None)
            found = Path(getattr(spec, "origin", None) or "")
            if ours and (found.parent.parent if found.name == "__init__.py" else found.parent) in folders:
                raise ScenarioError(
                    f"{shown_path(path)} imports {name} and gets {shown_path(found)}, which lies beside another file "
                    f"that was loaded before, instead of {shown_path(ours[0])}. Give one of them another name, or run "
                    "each in a process of its own."
                )
