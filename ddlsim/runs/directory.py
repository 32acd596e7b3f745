"""The directory of a run: where it lies, how it is made and locked, what is written into it besides the records.

A lock on a run's directory: two processes never write into one.

The lock is flock(2) on the file run.lock, which the kernel lets go when the process ends in whatever way, so no lock is
ever left behind. (filelock, which torch brings, empties the file when a second process tries, and with it its holder.)
"""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlsim.foundation.errors import RecordsFailed, ScenarioError
from ddlsim.foundation.strict_json import row_text, table_text

if TYPE_CHECKING:
    from ddlsim.data import DatasetSpec, PreparedData
    from ddlsim.scenario import Scenario


LOCK = "run.lock"
_NO_LOCKS_HERE = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}
"""A file system without locks, such as some of clusters: the run goes on without one."""


class DirectoryInUse(ScenarioError):
    """Another process writes into the directory."""


@dataclass(frozen=True)
class Lock:
    """A lock that is held.

    Args:
        file: the descriptor of the open lock file.
        directory: device and inode of the directory in which it lies.
    """

    file: int
    directory: tuple[int, int]

    def guards(self, directory: Path) -> bool:
        """Whether this path still leads to the directory that is locked."""
        return _identity(directory) == self.directory

    def release(self, directory: Path) -> None:
        """Lets go; the file is taken away first, so that no process finds a lock that says nothing."""
        if self.guards(directory):
            (directory / LOCK).unlink(missing_ok=True)
        os.close(self.file)


def acquire(directory: Path) -> Lock | None:
    """Locks an existing directory for this process.

    Returns:
        The lock; None if the directory was taken away or replaced meanwhile.
    Raises:
        DirectoryInUse: if another process has it; names it and since when.
        OSError: if the file cannot be made.
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
    if identity is None or _identity(directory) != identity or _identity(path) != _key(os.fstat(file)):
        os.close(file)
        return None
    about = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    os.ftruncate(file, 0)
    os.write(file, table_text(about).encode())
    return Lock(file, identity)


def _holder(path: Path) -> str:
    """The sentence on the process that has it."""
    try:
        about = json.loads(path.read_text())
        return f"a run has been writing into it since {about['since']} (process {about['pid']} on {about['host']})"
    except (OSError, ValueError, TypeError, KeyError):  # it has only just begun
        return "another run is about to write into it"


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        return _key(path.stat())
    except OSError:
        return None


def _key(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


OF_A_RUN = {
    LOCK,
    "manifest.json",
    "manifest.draft",
    "scenario.yaml",
    "log.txt",
    "samples.jsonl",
    "metrics.jsonl",
    "contacts.jsonl",
}
"""What a run that did not get far may have left."""


@dataclass(frozen=True)
class RunDirectory:
    """A directory that this process alone writes into.

    Args:
        path: where it is.
        lock: held until the run has ended.
    """

    path: Path
    lock: Lock

    def check(self) -> None:
        """Raises RecordsFailed if the directory has been removed or replaced: everything written since is lost."""
        if not self.is_there():
            raise RecordsFailed(
                f"{self.path} has been removed or replaced by something else while the run was writing into it, so "
                "the run was ended. What it had written is where the directory is now, if anywhere."
            )

    def is_there(self) -> bool:
        """Whether the path still leads to it."""
        return self.lock.guards(self.path)


def default_path(scenario: "Scenario") -> Path:
    """runs/<scenario>/<algorithm>-s<seed>-<digest of the resolved scenario>."""
    from ddlsim.scenario import digest

    return Path("runs") / scenario.name / f"{scenario.algorithm_name}-s{scenario.seed}-{digest(scenario)}"


def complete_summary(directory: Path) -> dict[str, Any] | None:
    """The summary of a run that ended, or None."""
    try:
        summary = json.loads((directory / "summary.json").read_text())
    except (OSError, ValueError):
        return None
    return summary if isinstance(summary, dict) and summary.get("status") == "done" else None


def same_scenario(directory: Path, scenario: "Scenario") -> bool:
    """Whether the directory's run was of this very scenario, with the same code of parts from outside."""
    from ddlsim.scenario import to_yaml

    try:
        if (directory / "scenario.yaml").read_text(encoding="utf-8") != to_yaml(scenario):
            return False
        if any(directory.glob("scenario.until-*.yaml")):  # a branched run has begun in another way
            return False
    except (OSError, ValueError):
        return False
    return same_code(directory, scenario)


def same_code(directory: Path, *scenarios: "Scenario") -> bool:
    """Whether the directory's run was made with the code that parts from outside have now."""
    from ddlsim.scenario.own_parts import origins

    try:
        now = origins(*scenarios)
        if not now:
            return True
        recorded = json.loads((directory / "manifest.json").read_text()).get("plugins", ())
        return all(map(_is_identified, now)) and [*map(_code, now)] == [*map(_code, recorded)]
    except (OSError, ValueError, AttributeError):
        return False


def _is_identified(origin: dict[str, Any]) -> bool:
    """Whether it is known which state of a part's code this is."""
    return any(origin.get(key) for key in (("sha256",) if "sha256" in origin else ("distribution", "version")))


def _code(origin: dict[str, Any]) -> tuple:
    """What tells one state of a part's code from another."""
    return tuple(origin.get(key) for key in ("kind", "name", "sha256", "distribution", "version"))


@contextmanager
def run_directory(
    wanted: Path, tell: Callable[[str], None] = lambda _: None, spare: Callable[[Path], None] = lambda _: None
) -> Iterator[RunDirectory]:
    """Makes and locks the directory; an earlier run in it is moved aside, never overwritten.

    Args:
        wanted: a path; taken in full, since what runs may change the working directory.
        tell: takes a sentence on an earlier run that was moved aside.
        spare: called before it is moved; raises a ScenarioError if it should stay where it is.
    Raises:
        DirectoryInUse: if another process writes into it.
        ScenarioError: if it holds something else than a run, or cannot be made.
    """
    path = wanted.resolve() if wanted.name in ("", "..") else wanted.absolute()
    try:
        lock = _made_and_locked(path, tell, spare)
    except OSError as error:
        reason = error.strerror or error
        raise ScenarioError(
            f"--out {path}: expected a directory to be made and written to, got: {reason}. Name another path."
        ) from error
    try:
        yield RunDirectory(path, lock)
    finally:
        lock.release(path)


@contextmanager
def reopened(path: Path) -> Iterator[RunDirectory]:
    """Locks the directory of an earlier run, to go on writing into it.

    Raises:
        DirectoryInUse: if another process writes into it.
        ScenarioError: if it cannot be written to.
    """
    path = path.absolute()
    try:
        lock = acquire(path)
        if lock is None or not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise ScenarioError(f"{path}: expected a run directory to write to, got: {error.strerror or error}.") from error
    try:
        yield RunDirectory(path, lock)
    finally:
        lock.release(path)


def _made_and_locked(path: Path, tell: Callable[[str], None], spare: Callable[[Path], None]) -> Lock:
    while True:  # until no other process has come in between
        if path.exists():
            _refuse_strangers(path)
        else:
            path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        lock = acquire(path)
        if lock is None:
            continue
        try:
            held = {entry.name for entry in path.iterdir()} - {LOCK}
            if not held:
                return lock
            _refuse_strangers(path)
            spare(path)
            aside = move_aside(path)
        except BaseException:
            lock.release(path)
            raise
        lock.release(aside)
        tell(f"{path} held an earlier run{_how_it_ended(aside)}; it is now {aside}.")


def _refuse_strangers(path: Path) -> None:
    """Raises ScenarioError unless the path is a directory that is empty or holds a run, or the first files of one."""
    if not path.is_dir():
        raise ScenarioError(f"--out {path}: expected a directory, found a file. Name another path.")
    held = sorted(entry.name for entry in path.iterdir())
    if "manifest.json" not in held and not OF_A_RUN.issuperset(held):
        raise ScenarioError(
            f"--out {path}: expected an empty directory or an earlier run, found {', '.join(held[:5])}. "
            "Name a new directory."
        )


def move_aside(path: Path) -> Path:
    """Another name for a directory that is in the way; returns it."""
    number = 1
    while (aside := path.with_name(f"{path.name}.earlier-{number}")).exists():
        number += 1
    return path.rename(aside)


def remove_earlier(path: Path, scenario: "Scenario") -> None:
    """Remove runs of a scenario that were moved aside, except the latest one."""
    asides = [path.with_name(entry) for entry in os.listdir(path.parent) if entry.startswith(f"{path.name}.earlier-")]
    same = [aside for aside in asides if not aside.is_symlink() and same_scenario(aside, scenario)]
    for aside in sorted(same, key=lambda each: each.stat().st_ctime_ns)[:-1]:
        shutil.rmtree(aside, ignore_errors=True)


def _how_it_ended(directory: Path) -> str:
    """In brackets how the run in a directory ended, if it did not end well."""
    if complete_summary(directory):
        return ""
    try:
        status = json.loads((directory / "manifest.json").read_text())["status"]
    except (OSError, ValueError, TypeError, KeyError):
        return " that had hardly begun"
    return " that was killed before its end" if status == "running" else f" (status {status})"


def write_scenario(directory: Path, scenario: "Scenario") -> dict[str, Any]:
    """Write the resolved scenario to scenario.yaml; return it as the manifest keeps it, see `read_scenario`."""
    from ddlsim.scenario import to_yaml
    from ddlsim.scenario.model import to_plain

    text = to_yaml(scenario).encode()
    (directory / "scenario.yaml").write_bytes(text)
    return {"sha256": hashlib.sha256(text).hexdigest(), "scenario": to_plain(scenario)}


def samples_of(prepared: "PreparedData | DatasetSpec") -> str:
    """The lines of samples.jsonl: per node its cluster, training samples and, of classes, how many of each.

    None where no data was read.
    """
    from ddlsim.data import DatasetSpec

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
    """Writes samples.jsonl, if there are any."""
    if lines:
        (directory / "samples.jsonl").write_text(lines, encoding="utf-8")


def write_json(path: Path, value: dict, draft: Path | None = None) -> None:
    """Whole or not at all: a reader never sees half a file. Numbers that are not finite become null.

    Args:
        path: the file.
        value: what it holds.
        draft: what is written first; None: the file's name with .draft at its end, where no other process writes it.
    """
    draft = draft or path.with_suffix(".draft")
    try:
        draft.write_text(table_text(value, indent=2) + "\n", encoding="utf-8")
        os.replace(draft, path)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
