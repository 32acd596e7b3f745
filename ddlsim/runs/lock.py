"""A lock on a run's directory: two processes never write into one.

The lock is flock(2) on the file run.lock, which the kernel lets go when the process ends in whatever way, so no lock is
ever left behind. (filelock, which torch brings, empties the file when a second process tries, and with it its holder.)
"""

import errno
import fcntl
import json
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from ddlsim.errors import ScenarioError
from ddlsim.strict_json import table_text

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
