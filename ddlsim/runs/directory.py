"""The directory of a run: its path, its lock, and the files in it that are not records.

A lock keeps two processes from writing into one directory. It is flock(2) on the file run.lock, which the kernel
releases when the process ends in any way, so no stale lock remains. (filelock, which torch installs, empties the file
when a second process tries, and so deletes the name of the holder.)
"""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ddlsim.data.dataset_spec import DatasetSpec
from ddlsim.data.prepared import PreparedData
from ddlsim.foundation.errors import RecordsFailed, ScenarioError
from ddlsim.foundation.strict_json import row_text, table_text, write_whole
from ddlsim.runs.branch_history import Stage
from ddlsim.scenario import Scenario, digest, to_yaml
from ddlsim.scenario.model import to_plain
from ddlsim.scenario.parts import origins

LOCK = "run.lock"
_NO_LOCKS_HERE = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}
"""Errors of a file system without locks, such as some of clusters: the run continues without one."""

FIRST_FILES = {
    *(LOCK, "manifest.json", "manifest.json.draft", "scenario.yaml", "log.txt"),
    *("samples.jsonl", "metrics.jsonl", "contacts.jsonl", "training.jsonl"),
}
"""Files that a run may leave that ended early."""


class DirectoryInUse(ScenarioError):
    """Another process writes into the directory."""


@dataclass(frozen=True)
class RunDirectory:
    """A directory that only this process writes into, because it holds the lock.

    Args:
        path: of the directory.
        lock: the descriptor of the open lock file.
        identity: device and inode of the directory.
    """

    path: Path
    lock: int
    identity: tuple[int, int]

    def check(self) -> None:
        """Raise RecordsFailed if the directory has been removed or replaced: everything written since is lost."""
        if not self.is_there():
            raise RecordsFailed(
                f"{self.path} has been removed or replaced during the run, so the run was ended. Its records are in "
                "the directory that was moved, if it still exists."
            )

    def is_there(self) -> bool:
        """Whether the path still leads to the locked directory."""
        return _identity(self.path) == self.identity

    def release(self) -> None:
        """Remove the lock file, then release the lock, so that no process finds a lock file without a holder."""
        if self.is_there():
            (self.path / LOCK).unlink(missing_ok=True)
        os.close(self.lock)


def acquire(directory: Path) -> RunDirectory | None:
    """Lock an existing directory for this process; None if it was removed or replaced meanwhile.

    Raises:
        DirectoryInUse: if another process has locked it; names the process and the time.
        OSError: if the lock file cannot be made.
    """
    identity = _identity(directory)
    path = directory / LOCK
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise DirectoryInUse(f"--out {directory}: {_holder(path)}. Wait for its end, or name another path.") from None
    except OSError as error:
        if error.errno not in _NO_LOCKS_HERE:
            os.close(file)
            raise
    about = os.fstat(file)
    if identity is None or _identity(directory) != identity or _identity(path) != (about.st_dev, about.st_ino):
        os.close(file)
        return None
    holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    os.ftruncate(file, 0)
    os.write(file, table_text(holder).encode())
    return RunDirectory(directory, file, identity)


def _holder(path: Path) -> str:
    """Describe the process that holds a lock."""
    about = read_json(path)
    if not about:  # it has just started
        return "another run is about to write into it"
    return f"a run has been writing into it since {about['since']} (process {about['pid']} on {about['host']})"


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def default_path(scenario: Scenario) -> Path:
    """runs/<scenario>/<algorithm>-s<seed>-<digest of the resolved scenario>."""
    return Path("runs") / scenario.name / f"{scenario.algorithm_name}-s{scenario.seed}-{digest(scenario)}"


def complete_summary(directory: Path) -> dict[str, Any] | None:
    """Return the summary of a complete run, or None."""
    summary = read_json(directory / "summary.json")
    return summary if summary.get("status") == "done" else None


def same_scenario(directory: Path, scenario: Scenario, stages: Sequence[Stage] = ()) -> bool:
    """Whether the directory's run followed this scenario, after these stages, with the same user-defined code."""
    try:
        files = [directory / "scenario.yaml", *directory.glob("scenario.until-*.yaml")]
        found = {path.name: path.read_text(encoding="utf-8") for path in files}
    except (OSError, ValueError):
        return False
    expected = {stage.file: to_yaml(stage.scenario) for stage in stages} | {"scenario.yaml": to_yaml(scenario)}
    return found == expected and same_code(directory, *(stage.scenario for stage in stages), scenario)


def same_code(directory: Path, *scenarios: Scenario) -> bool:
    """Whether user-defined parts still have the code with which the directory's run was made."""
    now = origins(*scenarios)
    if not now:
        return True
    keys = ("kind", "name", "sha256", "distribution", "version")
    then = read_json(directory / "manifest.json").get("plugins", ())
    same = [[each.get(key) for key in keys] for each in now] == [[each.get(key) for key in keys] for each in then]
    return same and all(each.get("sha256" if "sha256" in each else "distribution") for each in now)


@contextmanager
def run_directory(
    wanted: Path, notify: Callable[[str], None] = lambda _: None, spare: Callable[[Path], None] = lambda _: None
) -> Iterator[RunDirectory]:
    """Make and lock a directory; an earlier run in it is moved aside, never overwritten.

    Args:
        wanted: a path; made absolute, since user code may change the working directory.
        notify: prints a sentence on an earlier run that was moved aside.
        spare: called before the move; raises a ScenarioError to prevent it.
    Raises:
        DirectoryInUse: if another process writes into it.
        ScenarioError: if it holds files that do not belong to a run, or cannot be made.
    """
    path = wanted.resolve() if wanted.name in ("", "..") else wanted.absolute()
    with _locked(f"--out {path}", lambda: _make_and_lock(path, notify, spare)) as place:
        yield place


@contextmanager
def reopened(path: Path) -> Iterator[RunDirectory]:
    """Lock the directory of an earlier run, to continue it.

    Raises:
        DirectoryInUse: if another process writes into it.
        ScenarioError: if it cannot be written to.
    """
    path = path.absolute()

    def lock() -> RunDirectory:
        place = acquire(path)
        if place is None or not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return place

    with _locked(str(path), lock) as place:
        yield place


@contextmanager
def _locked(where: str, lock: Callable[[], RunDirectory]) -> Iterator[RunDirectory]:
    try:
        place = lock()
    except OSError as error:
        reason = error.strerror or error
        raise ScenarioError(f"{where}: expected a directory to write to, got: {reason}. Name another path.") from error
    try:
        yield place
    finally:
        place.release()


def _make_and_lock(path: Path, notify: Callable[[str], None], spare: Callable[[Path], None]) -> RunDirectory:
    while True:  # until no other process interferes
        if path.exists():
            _refuse_other_files(path)
        else:
            path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        place = acquire(path)
        if place is None:
            continue
        try:
            if {entry.name for entry in path.iterdir()} == {LOCK}:
                return place
            _refuse_other_files(path)
            spare(path)
            aside = move_aside(path)
        except BaseException:
            place.release()
            raise
        replace(place, path=aside).release()
        notify(f"{path} held an earlier run; it is now {aside}.")


def _refuse_other_files(path: Path) -> None:
    """Raise ScenarioError unless the path is an empty directory, or holds a run or the first files of one."""
    if not path.is_dir():
        raise ScenarioError(f"--out {path}: expected a directory, got a file. Name another path.")
    held = sorted(entry.name for entry in path.iterdir())
    if "manifest.json" not in held and not FIRST_FILES.issuperset(held):
        raise ScenarioError(
            f"--out {path}: expected an empty directory or an earlier run, found {', '.join(held[:5])}. "
            "Name a new directory."
        )


def move_aside(path: Path) -> Path:
    """Rename a directory to <name>.earlier-<number>; return the new path."""
    number = 1
    while (aside := path.with_name(f"{path.name}.earlier-{number}")).exists():
        number += 1
    return path.rename(aside)


def remove_earlier(path: Path, scenario: Scenario) -> None:
    """Remove runs of a scenario that were moved aside, except the latest one."""
    asides = [path.with_name(entry) for entry in os.listdir(path.parent) if entry.startswith(f"{path.name}.earlier-")]
    same = [aside for aside in asides if not aside.is_symlink() and same_scenario(aside, scenario)]
    for aside in sorted(same, key=lambda each: each.stat().st_ctime_ns)[:-1]:
        shutil.rmtree(aside, ignore_errors=True)


def write_scenario(directory: Path, scenario: Scenario) -> dict[str, Any]:
    """Write the resolved scenario to scenario.yaml; return it for the manifest, see `read_scenario`."""
    text = to_yaml(scenario).encode()
    (directory / "scenario.yaml").write_bytes(text)
    return {"sha256": hashlib.sha256(text).hexdigest(), "scenario": to_plain(scenario)}


def samples_of(prepared: PreparedData | DatasetSpec) -> str:
    """Return the lines of samples.jsonl: each node's cluster, training samples and samples per class.

    Empty for a network-only run.
    """
    if isinstance(prepared, DatasetSpec):
        return ""
    counts, rows = prepared.class_counts(), []
    for node, (cluster, (_, labels)) in enumerate(zip(prepared.node_cluster, prepared.node_train, strict=True)):
        row = {"node": node, "cluster": int(cluster), "train": len(labels)}
        if counts is not None:
            row["classes"] = counts[node].tolist()
        rows.append(row_text(row))
    return "".join(f"{row}\n" for row in rows)


def write_samples(directory: Path, lines: str) -> None:
    """Write samples.jsonl, if there are lines."""
    if lines:
        (directory / "samples.jsonl").write_text(lines, encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; empty if the file cannot be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_json(path: Path, value: dict) -> None:
    """Write JSON to a draft and rename it, so that no reader sees half a file. Non-finite numbers become null."""
    write_whole(path, (table_text(value, indent=2) + "\n").encode())
