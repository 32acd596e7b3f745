"""What must be the same in two processes for them to compute the same bits."""

import hashlib
import platform
from functools import cache
from importlib import metadata
from pathlib import Path

from ddlsim.native import PACKAGE_DIR, extension

PACKAGES = ("torch", "torchvision", "numpy", "simpy", "networkx", "pydantic")


def versions() -> dict[str, str | None]:
    """Versions of this package, of its code, of Python and of libraries."""
    return {
        "ddlsim": version_of("ddlsim"),
        "code": _code(),
        "python": platform.python_version(),
        **{name: found for name in PACKAGES if (found := version_of(name)) is not None},
    }


def _code() -> str:
    """What tells this package's code from another. Where its files have changed since this process first asked, both
    digests: it may have imported some of them before, and some after."""
    first, now = _first_code(), _code_on_disk()
    return first if first == now else f"{first}+{now}"


@cache
def _first_code() -> str:
    return _code_on_disk()


def _code_on_disk() -> str:
    code = hashlib.sha256()
    for path in (*sorted(PACKAGE_DIR.rglob("*.py")), Path(str(extension().__file__))):
        code.update(path.name.encode())
        code.update(path.read_bytes())
    return code.hexdigest()[:16]


def version_of(package: str) -> str | None:
    """The version of an installed package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
