"""Packages that ddlsim needs for a part of what it does, imported where that is used."""

import importlib
from types import ModuleType

from ddlsim.foundation.errors import DataMissing


def needed(module: str, extra: str, user: str) -> ModuleType:
    """A module of an optional package.

    Args:
        module: its full name, such as torchvision.models.
        extra: of ddlsim that installs the package.
        user: what needs it, the beginning of the message.
    Raises:
        DataMissing: if it cannot be imported; says what to install.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise DataMissing(
            f"{user} needs {package}, which cannot be imported ({error}): pip install 'ddlsim[{extra}]'."
        ) from error
