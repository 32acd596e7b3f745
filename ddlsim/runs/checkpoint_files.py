"""Files of checkpoints, which let another process continue a run with the same records at the end.

In the folder `checkpoint` of the run's directory:

    values.log                  every value that steered the simulation or was recorded
    round-0000012/state.json    the state of the run at the end of a round that all nodes had completed
    round-0000012/rows-0.safetensors   the parameters that were in use there, by their numbers in the run
    round-0000024/...           the last two are kept, or the number of `--checkpoint-keep`

A checkpoint is written under another name, synchronized to disk and renamed, so it is whole or absent. One that cannot
be written (a full disk) costs the run nothing but that checkpoint.

values.log is a sequence of frames: length and CRC-32, then zlib-compressed lines of JSON. A line holds the values of
one wave: [number of the job, value], where a value is a list of floats or of EvalResults (learning/losses.py).
A replay takes them in place of computing. Readers stop at the length that a checkpoint names; bytes after it are left
from a process that was killed, and the next checkpoint overwrites them.
"""

import json
import os
import shutil
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.foundation.errors import RecordsDamaged
from ddlsim.foundation.strict_json import table_text

if TYPE_CHECKING:
    import torch

    from ddlsim.learning.bank import Row, Rows
    from ddlsim.learning.jobs import Cut

FRAME = struct.Struct("<II")
FRAME_CHARACTERS = 1 << 20
"""Lines are compressed together once they are this long."""

FOLDER, LOG, STATE, DRAFT = "checkpoint", "values.log", "state.json", "draft"
FORMAT = 3
SHARD_BYTES = 256_000_000
"""Parameters in one file; writing a file needs this much more memory."""


class ValueLog:
    """Collects values, and appends them to the file when a checkpoint is made.

    Args:
        path: the file.
        num_bytes: valid bytes in it; the rest is cut off.
    """

    def __init__(self, path: Path, num_bytes: int = 0):
        self._path = path
        self._lines: list[str] = []
        self._characters = 0
        self._frames: list[bytes] = []
        self.num_bytes = num_bytes

    def add(self, values: Iterable[tuple[int, Any]]) -> None:
        """Take the values of a wave of jobs, with the numbers of the jobs."""
        line = json.dumps(values, default=np.ndarray.tolist, separators=(",", ":"))
        self._lines.append(line)
        self._characters += len(line)
        if self._characters >= FRAME_CHARACTERS:
            self._seal()

    def write(self) -> int:
        """Append the collected values, synchronized to disk; return the length of the log.

        Raises:
            OSError: if it cannot be written; the next call tries again.
        """
        self._seal()
        with self._path.open("r+b" if self._path.exists() else "wb") as file:
            file.truncate(self.num_bytes)
            file.seek(self.num_bytes)
            file.writelines(self._frames)
            file.flush()
            os.fsync(file.fileno())
        self.num_bytes += sum(map(len, self._frames))
        self._frames.clear()
        return self.num_bytes

    def _seal(self) -> None:
        if self._lines:
            packed = zlib.compress("\n".join(self._lines).encode(), 1)
            self._frames.append(FRAME.pack(len(packed), zlib.crc32(packed)) + packed)
            self._lines, self._characters = [], 0


def read_log(path: Path, num_bytes: int) -> Iterator[tuple[int, Any]]:
    """Yield the jobs' numbers and values in the order in which they ran.

    Raises:
        RecordsDamaged: if the log is damaged before this length.
    """
    for packed in _frames(path, num_bytes):
        for line in zlib.decompress(packed).splitlines():
            for number, value in json.loads(line):
                yield number, [_result(*each) if isinstance(each, list) else each for each in value]


def _result(values: list[float], loss: float, confusion: list | None) -> tuple[tuple, float, np.ndarray | None]:
    return tuple(values), loss, None if confusion is None else np.array(confusion, np.int64)


def _frames(path: Path, num_bytes: int) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while file.tell() < num_bytes:
                head = file.read(FRAME.size)
                length, crc = FRAME.unpack(head) if len(head) == FRAME.size else (0, 0)
                packed = file.read(length)
                if not length or len(packed) < length or zlib.crc32(packed) != crc or file.tell() > num_bytes:
                    raise RecordsDamaged(f"{path}: is damaged before byte {file.tell()} of {num_bytes}.")
                yield packed
    except OSError as error:
        raise RecordsDamaged(f"{path}: cannot be read: {error.strerror or error}.") from error


@dataclass(frozen=True)
class State:
    """State of a run at a checkpoint.

    Args:
        rounds: ends of rounds so far, including the last exchange of some algorithms.
        completed: rounds that all participating nodes had completed; more than `rounds` if nodes that left and returned
            have skipped some.
        furthest: the number, from 0, of the latest round that a node had started.
        time_s: simulated seconds.
        cut: a Cut of learning/jobs.py, as a mapping.
        log_bytes: length of the log.
        metrics_bytes: length of metrics.jsonl.
        wall_s: wall seconds of the run so far.
        reasons: results of backends about architectures, see learning/backends/base.py: Dispatcher.
        made_with: versions and settings that must be equal for equal bits, see manifest.py: made_with.
        evaluations: evaluations so far if the checkpoint follows one; 0: it follows the end of a round.
        files: files with parameters, and the CRC-32 of each.
    """

    rounds: int
    completed: int
    furthest: int
    time_s: float
    cut: dict[str, Any]
    log_bytes: int
    metrics_bytes: int
    wall_s: float
    reasons: dict[str, dict[str, str]]
    made_with: dict[str, str | None]
    evaluations: int = 0
    files: dict[str, int] = field(default_factory=dict)


def write_checkpoint(folder: Path, state: State, rows: "list[Row]", all_rows: "Rows") -> None:
    """Write a checkpoint into the folder of checkpoints.

    Args:
        folder: of all checkpoints.
        state: of the run, without `files`.
        rows: the parameters to keep.
        all_rows: gives their values.

    Raises:
        OSError: if it cannot be written; nothing is left of it.
    """
    draft = folder / DRAFT
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    try:
        state = replace(state, files={path.name: _crc(path) for path in _write_rows(draft, rows, all_rows)})
        plain = json.loads(table_text(asdict(state)))
        (draft / STATE).write_text(table_text({"format": FORMAT, "crc": _crc_of(plain), "state": plain}) + "\n")
        for path in draft.iterdir():
            _sync(path)
        _sync(draft)
        os.replace(draft, folder / f"round-{state.rounds:07d}")
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    _sync(folder)


def checkpoints_of(directory: Path) -> list[Path]:
    """Return the checkpoints in a run's directory, the newest first."""
    found = [path for path in (directory / FOLDER).glob("round-*") if path.is_dir() and _round_of(path) >= 0]
    return sorted(found, key=_round_of, reverse=True)


def whole_checkpoints(directory: Path, warn: Callable[[str], None] = lambda _: None) -> Iterator[tuple[Path, "State"]]:
    """Yield the undamaged checkpoints in a run's directory with their states, the newest first.

    Args:
        directory: of the run.
        warn: called with a sentence on each damaged one.
    """
    for checkpoint in checkpoints_of(directory):
        try:
            state = read_state(checkpoint)
        except RecordsDamaged as error:
            warn(f"{error} Trying an earlier checkpoint.")
        else:
            yield checkpoint, state


def copy_checkpoint(checkpoint: Path, directory: Path) -> Path:
    """Copy a run's checkpoint, with the log of its values, into the directory of another run.

    Raises:
        OSError: if it cannot be copied.
    """
    folder = directory / FOLDER
    folder.mkdir(exist_ok=True)
    shutil.copyfile(checkpoint.parent / LOG, folder / LOG)
    draft = folder / DRAFT
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(checkpoint, draft, copy_function=_link_or_copy)
    return draft.rename(folder / checkpoint.name)


def _link_or_copy(source: str, target: str) -> None:
    """Link a file, which is never written again; copy it if the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def read_state(checkpoint: Path) -> State:
    """Read the state of a checkpoint, and check all of its files.

    Raises:
        RecordsDamaged: if a file is damaged.
    """
    path = checkpoint / STATE
    try:
        sealed = json.loads(path.read_text())
        state = State(**sealed["state"])
        if sealed["format"] != FORMAT:
            raise RecordsDamaged(f"{path}: has format {sealed['format']}, this ddlsim reads {FORMAT}.")
        if sealed["crc"] != _crc_of(sealed["state"]):
            raise RecordsDamaged(f"{path}: is damaged.")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordsDamaged(f"{path}: cannot be read: {error}.") from error
    for name, crc in state.files.items():
        with suppress(OSError):
            if _crc(checkpoint / name) == crc:
                continue
        raise RecordsDamaged(f"{checkpoint / name}: is damaged or missing.")
    for _ in _frames(checkpoint.parent / LOG, state.log_bytes):
        pass
    return state


def cut_of(state: State) -> "Cut":
    """Return the state of the queue of jobs."""
    from ddlsim.learning.jobs import Cut

    return Cut(**{**state.cut, "pending": tuple(state.cut["pending"])})


class StoredRows:
    """The parameters of a checkpoint, by their numbers in the run.

    Args:
        checkpoint: its folder.
        state: of the checkpoint.
    """

    def __init__(self, checkpoint: Path, state: State):
        from safetensors import safe_open

        self._files = [safe_open(checkpoint / name, "pt") for name in state.files]
        self._where = {int(key): file for file in self._files for key in file.keys()}  # noqa: SIM118  # no mapping

    @property
    def numbers(self) -> frozenset[int]:
        """Numbers of the rows in the checkpoint."""
        return frozenset(self._where)

    def values(self, row: "Row") -> "torch.Tensor":
        """Return the values of a row, float32 [P], on the CPU."""
        return self._where[row.number].get_tensor(str(row.number))


def remove_checkpoints(directory: Path, newer_than: int = -1) -> None:
    """Remove a run's checkpoints after a round; by default all, with the log."""
    if newer_than < 0:
        shutil.rmtree(directory / FOLDER, ignore_errors=True)
        return
    for path in checkpoints_of(directory):
        if _round_of(path) > newer_than:
            shutil.rmtree(path, ignore_errors=True)


def _write_rows(folder: Path, rows: "list[Row]", all_rows: "Rows") -> Iterator[Path]:
    """Write rows to files of at most SHARD_BYTES (a larger row has a separate file)."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    shards: list[list[Row]] = []
    room = 0
    for row in rows:
        if row.size * 4 > room:
            shards.append([])
            room = SHARD_BYTES
        shards[-1].append(row)
        room -= row.size * 4
    for index, shard in enumerate(shards):
        path = folder / f"rows-{index}.safetensors"
        try:
            values = all_rows.gather(shard)
            save_file({str(row.number): each.numpy() for row, each in zip(shard, values, strict=True)}, path)
        except SafetensorError as error:  # a full disk
            raise OSError(f"{path.name}: {error}") from error
        yield path


def _round_of(path: Path) -> int:
    number = path.name.removeprefix("round-")
    return int(number) if number.isdecimal() else -1


def _crc_of(state: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(state, sort_keys=True).encode())


def _crc(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            crc = zlib.crc32(piece, crc)
    return crc


def _sync(path: Path) -> None:
    """Synchronize a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
