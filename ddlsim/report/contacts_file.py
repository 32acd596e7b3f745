"""Messages from node to node by round, from contacts.jsonl (see messages/contacts.py)."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ddlsim.errors import RecordsDamaged
from ddlsim.report.json_lines import damage_of, json_lines

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
    """The file's entries; None if there is none, or nothing was sent (yet).

    Raises:
        RecordsDamaged: if its rows are not what a run writes.
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
