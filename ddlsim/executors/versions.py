"""What must be the same in two processes for them to compute the same bits."""

import hashlib
import os
import platform
from importlib import metadata
from pathlib import Path

from ddlsim.native import PACKAGE_DIR, extension

PACKAGES = ("torch", "torchvision", "numpy", "simpy", "networkx", "pydantic")


def versions() -> dict[str, str | None]:
    """Versions of this package, of its code, of Python and of libraries."""
    code = hashlib.sha256()
    native = Path(str(extension().__file__))
    for path in (*sorted(PACKAGE_DIR.rglob("*.py")), native):
        code.update(path.name.encode())
        code.update(path.read_bytes())
    return {
        "ddlsim": version_of("ddlsim"),
        "code": code.hexdigest()[:16],
        "python": platform.python_version(),
        **{name: found for name in PACKAGES if (found := version_of(name)) is not None},
    }


def version_of(package: str) -> str | None:
    """The version of an installed package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def cpu_name() -> str:
    """The processor of this host."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def num_threads() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
