"""Find, check and load the compiled modules `ddlsim._native` and `ddlsim._cuda`; nothing else imports them.

In the repository's root the source tree hides an installed package. The tree has no compiled module after a plain
install, so the module is then looked for in the installed distribution. A module older than its C++ sources is
refused: every module carries a hash of csrc/ from its build (cmake/stamp.cmake), compared with the csrc next to the
package.
"""

import functools
import hashlib
import importlib
import importlib.util
import os
import sys
import warnings
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

from ddlsim.foundation.errors import DataMissing

PACKAGE_DIR = Path(__file__).resolve().parents[1]
SOURCE_PATTERNS = ("*.cpp", "*.h", "*.inc", "*.cu", "*.cuh")
HOW_TO_BUILD = "Build it in the repository's root with `pip install .` (or `pip install -e .` to edit the sources)."


@functools.cache
def extension() -> ModuleType:
    """Return the module `ddlsim._native`.

    Raises:
        DataMissing: it is not built for this Python, or it is older than the C++ sources next to the package.
    """
    module = _load("_native")
    if module is None:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise DataMissing(
            f"ddlsim's compiled module (ddlsim._native for Python {version}) is missing: looked in {PACKAGE_DIR} "
            f"and in the installed packages of {sys.prefix}. {HOW_TO_BUILD}"
        )
    _refuse_stale(module)
    return module


@functools.cache
def cuda() -> ModuleType | None:
    """Return the module `ddlsim._cuda`, or None if its kernels cannot be used (`why_no_cuda`)."""
    return None if why_no_cuda() else _load("_cuda")


@functools.cache
def why_no_cuda() -> str:
    """Return why the CUDA kernels cannot be used here; empty if they can.

    A device of an architecture that they were not built for is found out by loading one of them, not by a launch that
    fails in the middle of a run.
    """
    module = _load("_cuda")
    if module is None:
        return "they are not built"
    _refuse_stale(module)
    return module.why_unusable()


def source_stamp(csrc: Path) -> str:
    """Return the hash of the C++ and CUDA sources below `csrc`, as cmake/stamp.cmake computes it."""
    names = sorted({path.relative_to(csrc).as_posix() for pattern in SOURCE_PATTERNS for path in csrc.rglob(pattern)})
    lines = [f"{name} {hashlib.sha256((csrc / name).read_bytes()).hexdigest()}\n" for name in names]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _load(name: str) -> ModuleType | None:
    full_name = f"ddlsim.{name}"
    try:
        return importlib.import_module(full_name)
    except ModuleNotFoundError as error:
        if error.name != full_name:
            raise
    path = _find_installed(name)
    if path is None:
        return None
    spec = importlib.util.spec_from_file_location(full_name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[full_name] = module
    setattr(sys.modules["ddlsim"], name, module)
    return module


def _find_installed(name: str) -> Path | None:
    """Return the file of a compiled module in an installed ddlsim that the source tree hides."""
    folders = [Path(str(each.locate_file("ddlsim"))) for each in metadata.distributions(name="ddlsim")]
    folders += [Path(entry) / "ddlsim" for entry in sys.path if entry]
    paths = (folder / f"{name}{suffix}" for folder in folders for suffix in EXTENSION_SUFFIXES)
    return next((path for path in paths if path.is_file()), None)


def _refuse_stale(module: ModuleType) -> None:
    csrc = PACKAGE_DIR.parent / "csrc"
    if not (csrc / "module.cpp").is_file() or module.source_stamp == source_stamp(csrc):
        return
    text = f"ddlsim's compiled module {module.__file__} was built from other sources than {csrc}. {HOW_TO_BUILD}"
    if os.environ.get("DDLSIM_ALLOW_STALE") == "1":
        warnings.warn(text, RuntimeWarning, stacklevel=3)
        return
    raise DataMissing(f"{text} (DDLSIM_ALLOW_STALE=1 uses it anyway.)")
