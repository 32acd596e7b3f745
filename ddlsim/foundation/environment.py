"""The environment of this process: optional packages, and the host's processor and cores."""

import importlib
import os
import platform
import subprocess
from pathlib import Path
from types import ModuleType

from ddlsim.foundation.errors import DataMissing

GIT_TIMEOUT_S = 10.0


def needed(module: str, extra: str, user: str) -> ModuleType:
    """Import a module of an optional package.

    Args:
        module: full name, such as torchvision.models.
        extra: extra of ddlsim that installs the package.
        user: the feature that needs it, for the message.

    Raises:
        DataMissing: the import fails; the text says what to install.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise DataMissing(
            f"{user} needs {package}, which cannot be imported ({error}): pip install 'ddlsim[{extra}]'."
        ) from error


def git(folder: Path, *words: str) -> str:
    """Return what a command of git prints in a folder.

    Raises:
        OSError, subprocess.SubprocessError: if git is not installed, fails, or takes longer than `GIT_TIMEOUT_S`.
    """
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=GIT_TIMEOUT_S).stdout.strip()


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_name() -> str:
    """Return the name of the host's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
