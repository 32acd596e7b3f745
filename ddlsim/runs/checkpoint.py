"""Checkpoints of a run: what another process needs to go on where this one was, with the same records at the end.

In the folder `checkpoint` of the run's directory:

    values.log                  every value that steered the simulation or was recorded, see value_log.py
    round-0000012/state.json    where the run stood at the end of a round that all nodes had completed
    round-0000012/rows-0.safetensors   the parameters that something held there, by their numbers in the run
    round-0000024/...           the last two are kept, or as many as `--checkpoint-keep` says

A checkpoint appears whole or not at all: it is written under another name, brought to the disk and renamed. One that
cannot be written (a full disk) costs the run nothing but that checkpoint.

The log of every value that was computed for the simulation: what a replay hands out in the place of computing.

A file of frames: length and CRC-32 of what follows, then zlib-compressed entries. An entry is a job's number and the
value of the job: a list of floats, or of evaluations (learning/eval_results.py: EvalResult). Only the bytes that a
checkpoint counts are read; any bytes after them are from a process that was killed, and are overwritten.
"""

import json
import os
import re
import shutil
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.foundation.errors import RecordsDamaged, ScenarioError
from ddlsim.foundation.strict_json import table_text

if TYPE_CHECKING:
    import torch

    from ddlsim.learning.bank import Row, Rows
    from ddlsim.learning.jobs import Cut
    from ddlsim.learning.learner import Learner
    from ddlsim.runs.recorder import Recorder


FRAME = struct.Struct("<II")
ENTRY = struct.Struct("<QBI")
TESTED = struct.Struct("<dII")
FLOATS, TESTS = 0, 1
FRAME_BYTES = 1 << 20
"""Entries are compressed once they are so many bytes."""


class ValueLog:
    """Collects values, and appends them to the file when a checkpoint is made.

    Args:
        path: the file.
        num_bytes: of it that count; the file is cut there.
    """

    def __init__(self, path: Path, num_bytes: int = 0):
        self._path = path
        self._entries = bytearray()
        self._frames: list[bytes] = []
        self.num_bytes = num_bytes

    def add(self, values: Iterable[tuple[int, Any]]) -> None:
        """Takes the values of jobs by their numbers."""
        for number, value in values:
            self._entries += encoded(number, value)
        if len(self._entries) >= FRAME_BYTES:
            self._seal()

    def write(self) -> int:
        """Appends what has been collected, down to the disk; returns the length of the log.

        Raises:
            OSError: if it cannot be written; what has been collected is kept for the next time.
        """
        self._seal()
        created = not self._path.exists()
        with self._path.open("wb" if created else "r+b") as file:
            file.truncate(self.num_bytes)
            file.seek(self.num_bytes)
            for frame in self._frames:
                file.write(frame)
            file.flush()
            os.fsync(file.fileno())
        self.num_bytes += sum(map(len, self._frames))
        self._frames.clear()
        return self.num_bytes

    def _seal(self) -> None:
        if self._entries:
            packed = zlib.compress(bytes(self._entries), 1)
            self._frames.append(FRAME.pack(len(packed), zlib.crc32(packed)) + packed)
            self._entries.clear()


def check_log(path: Path, num_bytes: int) -> None:
    """Reads the log through.

    Raises:
        RecordsDamaged: if it is not whole up to this length.
    """
    for _ in _frames(path, num_bytes):
        pass


def read_log(path: Path, num_bytes: int) -> Iterator[tuple[int, Any]]:
    """The jobs' numbers and values in the order in which they ran.

    Raises:
        RecordsDamaged: if the log is not whole up to this length.
    """
    for packed in _frames(path, num_bytes):
        yield from _decoded(memoryview(zlib.decompress(packed)))


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


def encoded(number: int, value: Sequence[Any]) -> bytes:
    """One entry.

    Args:
        number: of the job.
        value: floats, or what was measured of models: values, a loss, a confusion matrix int64 [C, C] or None.
    """
    if all(type(each) is float for each in value):
        return ENTRY.pack(number, FLOATS, len(value)) + struct.pack(f"<{len(value)}d", *value)
    parts = [ENTRY.pack(number, TESTS, len(value))]
    for values, loss, confusion in value:
        assert all(type(each) is float for each in (*values, loss)), "other numbers would not come back as they are"
        classes = 0 if confusion is None else len(confusion)
        parts += [TESTED.pack(loss, len(values), classes), struct.pack(f"<{len(values)}d", *values)]
        if confusion is not None:
            assert confusion.dtype == np.int64 and confusion.ndim == 2, "a confusion matrix is int64 [C, C]"
            parts.append(np.ascontiguousarray(confusion, dtype="<i8").tobytes())
    return b"".join(parts)


def _decoded(entries: memoryview) -> Iterator[tuple[int, Any]]:
    place = 0
    while place < len(entries):
        number, tag, count = ENTRY.unpack_from(entries, place)
        place += ENTRY.size
        if tag == FLOATS:
            yield number, list(struct.unpack_from(f"<{count}d", entries, place))
            place += 8 * count
            continue
        value: list[tuple[tuple[float, ...], float, np.ndarray | None]] = []
        for _ in range(count):
            loss, measures, classes = TESTED.unpack_from(entries, place)
            values = struct.unpack_from(f"<{measures}d", entries, place + TESTED.size)
            place += TESTED.size + 8 * measures
            confusion = None
            if classes:
                found = np.frombuffer(entries, "<i8", classes * classes, place)
                confusion, place = found.astype(np.int64).reshape(classes, classes), place + found.nbytes
            value.append((values, loss, confusion))
        yield number, value


FOLDER, LOG, STATE, DRAFT = "checkpoint", "values.log", "state.json", "draft"
FORMAT = 2
KEPT = 2
ALL = sys.maxsize
SHARD_BYTES = 256_000_000
"""Parameters in one file; so much memory is needed beside them while it is written."""

_EVERY = re.compile(r"(\d+(?:\.\d+)?)\s*([smhr])$", re.ASCII)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Every:
    """How often a checkpoint is made, at the end of a round that all nodes have completed.

    Args:
        wall_s: at the first such end after so many seconds; or
        rounds: whenever so many rounds have ended since the last. Neither: never.
        keep: so many are kept, the newest, also when the run is done, so that it can be branched; and there is one
            before the first node begins its last round. None: the last two, until the run is done.
    """

    wall_s: float | None = None
    rounds: int | None = None
    keep: int | None = None

    @property
    def never(self) -> bool:
        """Whether no checkpoints are made."""
        return self.wall_s is None and self.rounds is None


DEFAULT = Every(wall_s=600.0)


def parse_every(text: str, keep: str | None = None) -> Every:
    """`30s`, `10m`, `1h`, `50r` (rounds) or `0` (never); and how many are kept, a number or `all`.

    Raises:
        ScenarioError: if it is none of these.
    """
    if keep is not None and keep != "all" and not (keep.isdecimal() and int(keep) > 0):
        raise ScenarioError(f"--checkpoint-keep {keep[:40]}: expected a number from 1 or all.")
    return replace(_parse_every(text), keep=None if keep is None else ALL if keep == "all" else int(keep))


def _parse_every(text: str) -> Every:
    if text.strip() == "0":
        return Every()
    match = _EVERY.match(text.strip())
    if match is not None:
        amount, unit = float(match[1]), match[2]
        if unit != "r" and amount > 0:
            return Every(wall_s=amount * _SECONDS[unit])
        if amount >= 1 and amount.is_integer():
            return Every(rounds=int(amount))
    raise ScenarioError(
        f"--checkpoint-every {text[:40]}: expected wall time such as 30s, 10m or 1h, rounds such as 50r, or 0 for no "
        "checkpoints."
    )


@dataclass(frozen=True)
class State:
    """Where a run stood.

    Args:
        rounds: ends of rounds until then, the last exchange of some algorithms included.
        completed: rounds that all nodes that took part had completed; more than `rounds` where nodes that left and
            returned have skipped some.
        furthest: the number, from 0, of the latest round that a node had begun.
        time_s: simulated seconds.
        cut: see learning/jobs.py, as a mapping.
        log_bytes: length of the log.
        metrics_bytes: length of metrics.jsonl.
        wall_s: wall seconds that the run had taken.
        reasons: what backends had found out about architectures, see learning/backends/base.py: Dispatcher.
        made_with: what must be the same for the same bits, see manifest.py: made_with.
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
    files: dict[str, int]


class Checkpoints:
    """Makes a run's checkpoints; told of every round that all nodes have completed.

    Args:
        directory: of the run.
        every: how often.
        learner: what computes.
        recorder: writes metrics.jsonl.
        last_round: number of rounds of each node.
        made_with: see State.
        wall_s: wall seconds that the run has taken so far.
        tell: takes a sentence on a checkpoint that could not be written.
        rounds: ends of rounds so far.
        log_bytes: of the log that count.
    """

    def __init__(
        self,
        directory: Path,
        every: Every,
        learner: "Learner",
        recorder: "Recorder",
        last_round: int,
        made_with: dict[str, str | None],
        wall_s: Callable[[], float],
        tell: Callable[[str], None],
        rounds: int = 0,
        log_bytes: int = 0,
    ):
        self._folder = directory / FOLDER
        self._every, self._learner, self._recorder = every, learner, recorder
        self._last_round = last_round
        self._made_with, self._wall_s, self._tell = made_with, wall_s, tell
        self._log = ValueLog(self._folder / LOG, log_bytes)
        self._rounds = self._last_rounds = rounds
        self._last_s = time.monotonic()
        self._failing = False
        self.spent_s = 0.0
        learner.jobs.on_values = self._log.add

    def round(self, time_s: float, completed: int, furthest: int, now: bool = False) -> None:
        """All nodes have completed a round.

        Args:
            time_s: simulated seconds.
            completed, furthest: see State.
            now: make a checkpoint whether it is time or not.
        """
        self._rounds += 1
        every, due = self._every, now
        if every.rounds is not None:
            due |= self._rounds - self._last_rounds >= every.rounds
        if every.wall_s is not None:
            due |= time.monotonic() - self._last_s >= every.wall_s
        if every.keep is not None:  # from here the run can be given more rounds; nodes are rarely two rounds apart
            due |= self._last_round - 3 <= furthest < self._last_round - 1
        if due:
            self._make(time_s, completed, furthest)

    def _make(self, time_s: float, completed: int, furthest: int) -> None:
        start = time.perf_counter()
        try:
            self._write(time_s, completed, furthest)
            self._failing = False
        except OSError as error:
            if not self._failing:
                self._tell(
                    f"WARNING: no checkpoint can be written to {self._folder}: {error.strerror or error}. "
                    "The run goes on; earlier checkpoints are kept."
                )
            self._failing = True
        self._last_rounds, self._last_s = self._rounds, time.monotonic()
        self.spent_s += time.perf_counter() - start

    def _write(self, time_s: float, completed: int, furthest: int) -> None:
        from ddlsim.learning.jobs import cut_here, known_rows

        jobs, rows = self._learner.jobs, self._learner.rows
        jobs.settle()
        self._folder.mkdir(exist_ok=True)
        log_bytes = self._log.write()
        cut = cut_here(jobs, rows)
        draft = self._folder / DRAFT
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        try:
            files = {path.name: _crc(path) for path in _write_rows(draft, known_rows(rows), rows)}
            state = State(
                self._rounds,
                completed,
                furthest,
                time_s,
                asdict(cut),
                log_bytes,
                self._recorder.num_bytes(),
                self._wall_s(),
                {name: dict(found) for name, found in self._learner.backends.reasons.items()},
                self._made_with,
                files,
            )
            (draft / STATE).write_text(_sealed(asdict(state)))
            for path in draft.iterdir():
                _sync(path)
            _sync(draft)
            os.replace(draft, self._folder / f"round-{self._rounds:07d}")
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        _sync(self._folder)
        for old in _newest_first(self._folder)[self._every.keep or KEPT :]:
            shutil.rmtree(old, ignore_errors=True)


def checkpoints_of(directory: Path) -> list[Path]:
    """The checkpoints in a run's directory, the newest first."""
    return _newest_first(directory / FOLDER)


def copy_checkpoint(checkpoint: Path, directory: Path) -> Path:
    """A run's checkpoint, with the log of its values, as the first one of another run's directory.

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
    """Another name of a file that is never written to again; a copy where the file system has no such names."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def read_state(checkpoint: Path) -> State:
    """A checkpoint, all of whose files have been read and found whole.

    Raises:
        RecordsDamaged: if one is not.
    """
    path = checkpoint / STATE
    try:
        sealed = json.loads(path.read_text())
        said = sealed["state"]
        if sealed["format"] != FORMAT:
            raise RecordsDamaged(f"{path}: has format {sealed['format']}, this ddlsim reads {FORMAT}.")
        if sealed["crc"] != _crc_of(said):
            raise RecordsDamaged(f"{path}: is damaged.")
        state = State(**said)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordsDamaged(f"{path}: cannot be read: {error}.") from error
    for name, crc in state.files.items():
        with suppress(OSError):
            if _crc(checkpoint / name) == crc:
                continue
        raise RecordsDamaged(f"{checkpoint / name}: is damaged or missing.")
    check_log(checkpoint.parent / LOG, state.log_bytes)
    return state


def cut_of(state: State) -> "Cut":
    """Where the queue of jobs stood."""
    from ddlsim.learning.jobs import Cut

    return Cut(**{**state.cut, "pending": tuple(state.cut["pending"])})


class StoredRows:
    """The parameters of a checkpoint by their numbers in the run.

    Args:
        checkpoint: its folder.
        state: what it says.
    """

    def __init__(self, checkpoint: Path, state: State):
        from safetensors import safe_open

        self._files = [safe_open(checkpoint / name, "pt") for name in state.files]
        self._where = {int(key): file for file in self._files for key in file.keys()}  # noqa: SIM118  # no mapping

    @property
    def numbers(self) -> frozenset[int]:
        """Of the rows that are there."""
        return frozenset(self._where)

    def values(self, row: "Row") -> "torch.Tensor":
        """A row's values, float32 [P], on the CPU."""
        return self._where[row.number].get_tensor(str(row.number))


def remove_checkpoints(directory: Path, newer_than: int = -1) -> None:
    """Removes a run's checkpoints, or those behind a round; all: with the log."""
    if newer_than < 0:
        shutil.rmtree(directory / FOLDER, ignore_errors=True)
        return
    for path in checkpoints_of(directory):
        if _round_of(path) > newer_than:
            shutil.rmtree(path, ignore_errors=True)


def _write_rows(folder: Path, rows: "list[Row]", all_rows: "Rows") -> Iterator[Path]:
    """Writes rows to files of at most SHARD_BYTES (one row more than that has a file of its own)."""
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
        except Exception as error:  # of the library's own kind where the disk is full
            if isinstance(error, OSError) or type(error).__name__ == "SafetensorError":
                raise OSError(f"{path.name}: {error}") from error
            raise
        yield path


def _newest_first(folder: Path) -> list[Path]:
    found = [path for path in folder.glob("round-*") if path.is_dir() and _round_of(path) >= 0]
    return sorted(found, key=_round_of, reverse=True)


def _round_of(path: Path) -> int:
    number = path.name.removeprefix("round-")
    return int(number) if number.isdecimal() else -1


def _sealed(state: dict[str, Any]) -> str:
    said = json.loads(table_text(state))
    return table_text({"format": FORMAT, "crc": _crc_of(said), "state": said}) + "\n"


def _crc_of(said: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(said, sort_keys=True).encode())


def _crc(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            crc = zlib.crc32(piece, crc)
    return crc


def _sync(path: Path) -> None:
    """Brings a file or the names in a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
