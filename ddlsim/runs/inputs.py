"""What a run reads beside its scenario: the samples that its nodes are dealt, and the files that the scenario names.

A scenario names files by their paths, but what they hold counts: a run goes on, and one that is there already comes
back, only where they hold what they held then.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlsim import own_code

if TYPE_CHECKING:
    from ddlsim.data import Outline, PreparedData
    from ddlsim.scenario import Scenario

_DEALT = ("data.path", "partition.path")
"""Files of which the samples that nodes get are compared, and no bytes, where samples are read."""
_KEYS = ("path", "file", "changes", "uplinks", "downlinks", "pretrained")
"""Keys under which files are named, one or a list of them."""
_FOLDERS = ("pretrained",)
"""Those of them under which a folder may be named, all of whose files count."""


def file_digests(*scenarios: "Scenario") -> dict[str, str]:
    """The files that scenarios name, of those that are there: "key path" -> SHA-256."""
    from ddlsim.scenario.model import to_plain

    named = (each for scenario in scenarios for each in _named("", to_plain(scenario)))
    return {f"{key} {path}": _digest(found) for key, path, found in named}


def other_inputs(
    manifest: Mapping[str, Any],
    scenario: "Scenario",
    prepared: "PreparedData | Outline",
    before: "Sequence[Scenario]" = (),
) -> str:
    """What would be read now that is not what a run was made on, in words; empty: nothing.

    Args:
        manifest: of the run; what an older one does not tell is not compared.
        scenario: of the run, or of a branch of it.
        prepared: what nodes get now.
        before: what a branched run follows before that.
    """
    then, now, found = manifest["data"], prepared.about, []
    files = manifest.get("files_read") or {}
    if then.get("sha256") != now.get("sha256"):
        found.append((f"data: {scenario.data_name}", then.get("sha256"), now.get("sha256")))
    elif then.get("dealt") and then["dealt"] != now.get("dealt"):
        found.append(("partition: what nodes get of the data", then["dealt"], now.get("dealt")))
    for name, digest in file_digests(*before, scenario).items():
        by_bytes = "sha256" not in now or name.split(" ", 1)[0] not in _DEALT
        if by_bytes and files.get(name, digest) != digest:
            found.append((name.replace(" ", ": ", 1), files[name], digest))
    return "; ".join(
        f"{what} is not what the run was made on: its SHA-256 was {was}, is {now}" for what, was, now in found
    )


def same_files(directory: Path, *scenarios: "Scenario") -> bool:
    """Whether the files that scenarios name are, byte by byte, those that the run in a directory has read."""
    try:
        then = json.loads((directory / "manifest.json").read_text(encoding="utf-8")).get("files_read") or {}
        return all(then.get(name, digest) == digest for name, digest in file_digests(*scenarios).items())
    except (OSError, ValueError, AttributeError):
        return False


def _named(key: str, value: Any) -> Iterator[tuple[str, str, Path]]:
    """Dotted key, text and path of each file, or folder, that is named below a key and is there."""
    if isinstance(value, Mapping):
        for name, below in value.items():
            yield from _named(f"{key}.{name}" if key else name, below)
    elif isinstance(value, list):
        for below in value:
            yield from _named(key, below)
    elif isinstance(value, str) and (last := key.rpartition(".")[2]) in _KEYS:
        path = Path(value).expanduser()
        if path.is_file() or (last in _FOLDERS and path.is_dir()):
            yield key, value, path
    elif isinstance(value, str) and "training.augmentation" in key and own_code.is_place(value):
        code = own_code.file_of(value)
        if code is not None and code.is_file():
            yield key, value, code


def _digest(path: Path) -> str:
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.is_file())
        return hashlib.sha256(
            "".join(f"{each.relative_to(path)} {_digest(each)}\n" for each in files).encode()
        ).hexdigest()
    about = path.stat()
    return _digest_of(path.resolve(), about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=64)
def _digest_of(path: Path, changed: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
