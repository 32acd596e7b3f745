"""JSON-lines files of a run, also of an unfinished or killed one.

Messages between nodes are read by round from contacts.jsonl (see network/messages/message.py).
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType, NoneType

import numpy as np

from ddlsim.foundation.errors import DdlsimError, RecordsDamaged

NUMBER = (int, float)
MAYBE_NUMBER = (int, float, NoneType)
MAYBE_NODE = (int, NoneType)
_WORDS = {int: "a whole number", float: "a number", str: "text", list: "a list", dict: "an object", NoneType: "null"}
_MISSING = object()
ANYTHING: Mapping[str, type] = MappingProxyType({})


def json_lines(path: Path, kinds: "Mapping[str, type | tuple[type, ...]]" = ANYTHING) -> Iterator[dict]:
    """Return the objects of a JSON-lines file; a last line that a crash cut short is left out.

    Args:
        path: the file.
        kinds: key -> the types that its value may have; every row must have these keys.
    Raises:
        RecordsDamaged: if another line is not JSON, or does not match `kinds`; names the line.
    """
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                found = None
            if isinstance(found, dict):
                for key, kind in kinds.items():
                    if not isinstance(found.get(key, _MISSING), kind):
                        raise RecordsDamaged(f"{path}:{number}: {_wrong(found, key, kind)}.")
                yield found
            elif line.endswith("\n"):
                raise RecordsDamaged(f"{path}:{number}: not a JSON object: {line[:60].strip()!r}.")


def torn_line(path: Path) -> int | None:
    """The number of the last line if it was cut short, else None."""
    text = path.read_bytes()
    return None if not text or text.endswith(b"\n") else text.count(b"\n") + 1


@contextmanager
def damage_of(place: Path) -> Iterator[None]:
    """Report the file and line of a record that is valid JSON but not a run record."""
    try:
        yield
    except DdlsimError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, MemoryError) as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise RecordsDamaged(
            f"{place}: its records do not fit together, so some of them are damaged ({what})."
        ) from error


def _wrong(row: dict, key: str, kind: "type | tuple[type, ...]") -> str:
    if key not in row:
        return f"no {key!r} in this row"
    kinds = kind if isinstance(kind, tuple) else (kind,)
    words = " or ".join(dict.fromkeys(_WORDS[one] for one in kinds if one is not int or float not in kinds))
    return f"{key}: expected {words}, got {json.dumps(row[key])[:60]}"


COLUMNS = ("src", "dst", "messages", "bytes")


@dataclass(frozen=True)
class Contacts:
    """One entry per round and ordered pair that exchanged messages in it, all int arrays [entries].

    `round` counts completed rounds, as in metrics.jsonl; `bytes` are payloads and headers as handed to the network.
    """

    round: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    messages: np.ndarray
    bytes: np.ndarray

    @cached_property
    def rounds(self) -> np.ndarray:
        """Rounds in which any message was sent, ascending."""
        return np.unique(self.round)


def read_contacts(path: Path, num_nodes: int) -> Contacts | None:
    """Return the file's entries; None if the file is missing, or nothing was sent (yet).

    Raises:
        RecordsDamaged: if its rows are not run records.
    """
    if not path.is_file():
        return None
    parts: list[np.ndarray] = []
    for row in json_lines(path, {"round": int, **dict.fromkeys(COLUMNS, list)}):
        with damage_of(path):
            columns = np.array([row[name] for name in COLUMNS], dtype=np.int64)
            parts.append(np.vstack([np.full(columns.shape[1], row["round"]), columns]))
    if not parts:
        return None
    found = Contacts(*np.hstack(parts))
    nodes = np.concatenate([found.src, found.dst])
    if len(nodes) and not (nodes.min() >= 0 and nodes.max() <= num_nodes):
        raise RecordsDamaged(f"{path}: a row is of a node that the run does not have; it has {num_nodes}.")
    return found if len(found.src) else None
