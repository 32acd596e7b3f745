"""The log of every value that was computed for the simulation: what a replay hands out in the place of computing.

A file of frames: length and CRC-32 of what follows, then zlib-compressed entries. An entry is a job's number and what
the job computed: a list of floats, or of what was measured of models (learning/tested.py: Tested). Only what a
checkpoint counts (a length in bytes) is ever read; what lies behind is left from a process that was killed, and is
overwritten.
"""

import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ddlsim.errors import RecordsDamaged

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
