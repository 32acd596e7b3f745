"""What must be the same in two processes for them to compute the same bits."""

import hashlib
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
