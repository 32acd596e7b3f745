"""What tells that a file has changed: what has been read of one is kept until then."""

from pathlib import Path


def state_of(path: str) -> tuple[int, int, int] | None:
    """When a file was changed last, its size and its inode; None: it is not there."""
    try:
        about = Path(path).expanduser().stat()
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size, about.st_ino
