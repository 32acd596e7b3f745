"""What a manifest says of a part of one's own: where its code is, what tells it from other code, its repository."""

import hashlib
from pathlib import Path
from types import FunctionType
from typing import Any

from ddlsim.foundation import imports, own_code
from ddlsim.foundation.identity import Identity


def about(cls: type) -> dict[str, Any]:
    """What a manifest says of a class from outside: where its code is, its SHA-256, the state of its repository; of one
    that Python code has given also its text, unless an installed package holds it.

    The SHA-256 of a class in a file is that of the file; where it imports modules that no package holds, of their files
    as well; of one in a module that has changed and was not loaded anew there is none. That of a class that Python code
    has given is its `Identity`'s, or none where values that it goes by cannot be told.

    A class with the attribute `written_as` stands for the class or function that this names, whose digest a scenario
    has; where its `identified` is false, no digest is given.
    """
    place = own_code.place_of(cls)
    if place:
        path, module = own_code.file_of(place), own_code.module_of(place)
        sha256 = imports.digest_of_text(own_code.text_of(place), imports.package_of(module))
        return {
            "path": path and str(path),
            "sha256": sha256 if sha256 and (not module or _is_as_written(cls)) else None,
            "git": own_code.git_state(path) if path else None,
        }
    written_as = getattr(cls, "written_as", cls)
    source, file = own_code.source_of(written_as)
    if source is None:  # typed at a prompt that keeps no source
        return {"path": None, "sha256": None, "git": None, "source": None}
    path = Path(file) if file and Path(file).is_file() else None
    return {
        "path": path and str(path),
        "sha256": _digest_of(cls, source),
        "git": own_code.git_state(path) if path else None,
        "source": None if path and "site-packages" in path.parts else source,
    }


def about_editable(cls: type) -> dict[str, Any]:
    """What a manifest says of a class of a package beside its version: nothing, but where the package is none that is
    copied when it is installed (`pip install -e`), whose code changes under one version, its SHA-256, as in `about`.
    """
    sha256 = imports.digest_of(getattr(cls, "made", cls).__module__)
    return {"sha256": sha256 if _is_as_written(cls) else None} if sha256 else {}


def _is_as_written(cls: type) -> bool:
    """Whether the functions of a class, or the function that it stands for, run what stands in their file now."""
    made = getattr(cls, "made", cls)
    members = vars(made).values() if isinstance(made, type) else (made,)
    functions = (getattr(each, "__func__", each) for each in members)
    return all(own_code.is_as_written(each.__code__) for each in functions if isinstance(each, FunctionType))


def _digest_of(cls: type, source: str) -> str | None:
    """SHA-256 of a class that Python code has given; None: it does not tell all of it."""
    if hasattr(cls, "written_as"):
        return hashlib.sha256(source.encode()).hexdigest() if getattr(cls, "identified", True) else None
    identity = Identity()
    try:
        identity.maker(cls)
    except Exception:  # of a repr, say, or of values that hold each other
        return None
    return identity.sha256 if identity.known else None
