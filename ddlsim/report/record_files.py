"""JSON-lines files of a run, also of an unfinished one; links, energy, contacts, contents and samples as columns.

Sources: network/link_use.py (links), engine/meters.py (energy), network/messages/message.py (contacts and contents) and
runs/directory.py (samples).
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Self

import numpy as np

from ddlsim.devices.energy import PARTS, grams
from ddlsim.foundation.errors import DdlsimError, RecordsDamaged

NUMBER = (int, float)
MAYBE_NODE = (int, NoneType)
Kinds = Mapping[str, "type | tuple[type, ...]"]
ANYTHING: Kinds = MappingProxyType({})


def json_lines(path: Path, kinds: Kinds = ANYTHING) -> Iterator[dict]:
    """Return the objects of a JSON-lines file, none if it is missing; a last line that a crash cut short is left out.

    Args:
        path: the file.
        kinds: key -> the types that its value may have; every row must have these keys.
    Raises:
        RecordsDamaged: if another line is not JSON, or does not match `kinds`; names the line.
    """
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                found = None
            if isinstance(found, dict):
                for key, kind in kinds.items():
                    if key not in found or not isinstance(found[key], kind):
                        value = json.dumps(found.get(key))
                        raise RecordsDamaged(f"{path}:{number}: {key}: not a value of a run: {value:.60}.")
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
        raise RecordsDamaged(f"{place}: its records do not fit together, so some are damaged ({what}).") from error


KINDS = ("push", "request", "response", "ack")
CAUSES = ("aborted", "lost", "unused")
CONTACT_COLUMNS = ("src", "dst", "messages", "bytes")


@dataclass(frozen=True)
class NodeColumns:
    """Columns of a file with a row per node, float [nodes], nan where unknown; one entry if only totals were written.

    Args:
        values: name -> column.
        num_nodes: nodes of the run.
    """

    values: dict[str, np.ndarray]
    num_nodes: int

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Return the file's columns; None if the file is missing."""
        rows = list(json_lines(path))
        if not rows:
            return None
        names = [name for name in rows[0] if name not in ("node", "nodes")]
        with damage_of(path):
            table = np.array([[row[name] for name in names] for row in rows], dtype=float)
            return cls(dict(zip(names, table.T, strict=True)), sum(row.get("nodes", 1) for row in rows))

    @property
    def num_rows(self) -> int:
        """Number of rows of the file."""
        return len(next(iter(self.values.values())))

    @property
    def by_node(self) -> bool:
        """Whether each node's values are known; a server does not count as a node."""
        return self.num_rows in (self.num_nodes, self.num_nodes + 1)


class Links(NodeColumns):
    """Traffic of the nodes' links, from links.jsonl: causes of bytes, utilization, queueing."""

    def bytes_of(self, *names: str) -> dict[str, int]:
        """Sums over nodes by name, as push, aborted, ..."""
        return {name: int(self.values[f"{name}_bytes"].sum()) for name in names}

    def utilization(self, link: str) -> dict[str, float | None]:
        """Mean, median and largest share of use of `uplink` or `downlink` over nodes, 0 to 1."""
        values = self.values[f"{link}_utilization"]
        values = values[~np.isnan(values)]
        if not len(values):
            return dict.fromkeys(("mean", "median", "max"))
        spread = {"median": float(np.median(values)), "max": float(values.max())}
        return {"mean": float(values.mean()), **(spread if self.by_node else dict.fromkeys(spread))}

    def queueing_s(self) -> dict[str, float | None]:
        """Mean over messages and longest time that messages queued."""
        messages, waited_s = self.values["messages_received"], self.values["queueing_s"]
        if not messages.sum():
            return {"mean": None, "max": None}
        mean_s = np.nan_to_num(waited_s) @ messages / messages.sum()
        return {"mean": float(mean_s), "max": float(np.nanmax(self.values["max_queueing_s"]))}

    def summary(self) -> dict:
        """For summary.json."""
        use = {f"{link}_utilization": self.utilization(link) for link in ("uplink", "downlink")}
        return use | {"queueing_s": self.queueing_s()}


class Energy(NodeColumns):
    """Energy of the nodes in joules, from energy.jsonl."""

    @property
    def joules(self) -> np.ndarray:
        """All joules of each node."""
        return np.sum([self.values[name] for name in PARTS], axis=0)

    def summary(self, node_cluster: np.ndarray, gco2_per_kwh: float | None) -> dict:
        """For summary.json: sums over all nodes and a server, and means over nodes.

        Args:
            node_cluster: the cluster of each node, int [N].
            gco2_per_kwh: see `grid_of`.
        """
        joules, count = self.joules, len(node_cluster)
        total = float(joules.sum())
        sums = {name: float(self.values[name].sum()) for name in (*PARTS, "computing_s", "idle_s")}
        found = {"joules": total, **sums, "gco2": emitted(total, gco2_per_kwh)}
        if not self.by_node:
            mean = total / count if self.num_nodes == count else None  # a server is in the totals, and no node
            return found | {"node_mean": mean, "node_max": None, "clusters": None, "server": None}
        of_nodes = joules[:count]
        return found | {
            "node_mean": float(of_nodes.mean()),
            "node_max": float(of_nodes.max()),
            "clusters": (np.bincount(node_cluster, of_nodes) / np.bincount(node_cluster)).tolist(),
            "server": float(joules[count]) if len(joules) > count else None,
        }


def emitted(joules: float | None, gco2_per_kwh: float | None) -> float | None:
    """Grams of CO2 equivalents, as far as both are known."""
    return None if joules is None or gco2_per_kwh is None else float(grams(joules, gco2_per_kwh))


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
    """Return the entries of contacts.jsonl; None if the file is missing, or nothing was sent (yet).

    Raises:
        RecordsDamaged: if its rows are not run records.
    """
    parts: list[np.ndarray] = []
    for row in json_lines(path, {"round": int, **dict.fromkeys(CONTACT_COLUMNS, list)}):
        with damage_of(path):
            columns = np.array([row[name] for name in CONTACT_COLUMNS], dtype=np.int64)
            parts.append(np.vstack([np.full(columns.shape[1], row["round"]), columns]))
    if not sum(part.shape[1] for part in parts):
        return None
    found = Contacts(*np.hstack(parts))
    nodes = np.concatenate([found.src, found.dst])
    if nodes.min() < 0 or nodes.max() > num_nodes:
        raise RecordsDamaged(f"{path}: a row is of a node that the run does not have; it has {num_nodes}.")
    return found


def read_contents(directory: Path) -> tuple[np.ndarray, dict[str, np.ndarray]] | None:
    """Return the contents of a run's messages, from contents.jsonl.

    Returns:
        Rounds [R], ascending, and per content the bytes of all messages of a round, int [R], contents with most bytes
        first; None if nothing was sent or the run has not ended.
    """
    rows = list(json_lines(directory / "contents.jsonl", {"round": int, "content": str, "bytes": int}))
    if not rows:
        return None
    rounds = np.unique([row["round"] for row in rows])
    found: dict[str, np.ndarray] = {}
    for row in rows:
        found.setdefault(row["content"], np.zeros(len(rounds), np.int64))[rounds == row["round"]] += row["bytes"]
    return rounds, dict(sorted(found.items(), key=lambda item: (-item[1].sum(), item[0])))


TIME_USES = ("computing", "waiting", "transfer", "offline", "other")
"""Uses of simulated time, see engine/time_use.py."""


def read_time_use(directory: Path) -> list[dict] | None:
    """Return the rows of time_use.jsonl: one per node, a server last; or the sums, and the node that was waited for the
    longest. None if the run has not ended.
    """
    uses = {f"{name}_s": NUMBER for name in TIME_USES}
    kinds: Kinds = {"node": MAYBE_NODE, "waits_held_up": int, "held_up_s": NUMBER, **uses}
    return list(json_lines(directory / "time_use.jsonl", kinds)) or None


def time_summary(rows: list[dict] | None, num_nodes: int) -> dict | None:
    """Return the shares of time by use over all nodes, without a server, and the node that was waited for the longest.

    Args:
        rows: see `read_time_use`.
        num_nodes: without a server.
    """
    if not rows:
        return None
    by_node = rows[0]["node"] is not None
    sums = {name: sum(row[f"{name}_s"] for row in (rows[:num_nodes] if by_node else rows[:1])) for name in TIME_USES}
    longest = max(rows if by_node else rows[1:], key=lambda row: row["held_up_s"])
    waits = sum(row["waits_held_up"] for row in (rows if by_node else rows[:1]))
    waited_for = {"node": longest["node"], "waits": longest["waits_held_up"], "seconds": longest["held_up_s"]}
    total = sum(sums.values())
    return {
        "shares": {name: value / total if total else None for name, value in sums.items()},
        "waits": waits,
        "waited_for": waited_for if longest["waits_held_up"] else None,
    }


def read_timeline(directory: Path) -> tuple[tuple[float, float], list[dict]] | None:
    """Return the window of timeline.jsonl in seconds, and its periods; None if the run has not ended."""
    kinds: Kinds = {"what": str, "node": MAYBE_NODE, "start_s": NUMBER, "end_s": NUMBER}
    rows = list(json_lines(directory / "timeline.jsonl", kinds))
    return ((rows[0]["start_s"], rows[0]["end_s"]), rows[1:]) if rows else None


def read_samples(directory: Path) -> np.ndarray | None:
    """Training samples per node and class, int [N, C]; of a regression [N, 1]; None if they were not recorded."""
    path = directory / "samples.jsonl"
    rows = list(json_lines(path, {"train": int}))
    with damage_of(path):
        return np.array([row.get("classes", [row["train"]]) for row in rows], dtype=int) if rows else None
