"""Communication counters per ordered pair of nodes."""

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np


@dataclass(frozen=True)
class Traffic:
    """One entry per ordered pair that had traffic, sorted by (src, dst); int64 arrays [pairs].

    `messages`, `payload_bytes` and `header_bytes` are of messages that arrived and were of use, `wasted_bytes` of all
    others that have ended (link_use.py tells them apart), `in_flight_bytes` of those still on their way. All bytes that
    were put on the wire are the sum of the four.
    """

    src: np.ndarray
    dst: np.ndarray
    messages: np.ndarray
    payload_bytes: np.ndarray
    header_bytes: np.ndarray
    wasted_bytes: np.ndarray
    in_flight_bytes: np.ndarray

    @property
    def on_the_wire(self) -> np.ndarray:
        """All bytes that were put on the wire, [pairs]."""
        return self.payload_bytes + self.header_bytes + self.wasted_bytes + self.in_flight_bytes

    def __len__(self) -> int:
        return len(self.src)

    def rows(self) -> Iterator[dict[str, int]]:
        """The pairs as dictionaries of plain integers, keys in the order of the fields."""
        names = [field.name for field in fields(self)]
        for values in zip(*(getattr(self, name).tolist() for name in names), strict=True):
            yield dict(zip(names, values, strict=True))

    def total(self) -> dict[str, int | None]:
        """The sums over all pairs as one row of no pair, and the number of pairs."""
        sums = {field.name: int(getattr(self, field.name).sum()) for field in fields(self)}
        return {**sums, "src": None, "dst": None, "pairs": len(self)}


def with_flying(
    ended: dict[str, np.ndarray], flying: tuple[np.ndarray, np.ndarray, np.ndarray], num_nodes: int
) -> Traffic:
    """Traffic of what has ended, as columns sorted by pair, and of what is on its way.

    Args:
        ended: the fields of Traffic but `in_flight_bytes`.
        flying: (src, dst, bytes on the wire so far) of messages, int64; several may have one pair.
        num_nodes: N.
    """
    src, dst, num_bytes = flying
    if not len(src):
        return Traffic(**ended, in_flight_bytes=np.zeros(len(ended["src"]), dtype=np.int64))
    of_ended, of_flying = ended["src"] * num_nodes + ended["dst"], src * num_nodes + dst
    pairs = np.union1d(of_ended, of_flying)
    columns = {"src": pairs // num_nodes, "dst": pairs % num_nodes}
    for name in ("messages", "payload_bytes", "header_bytes", "wasted_bytes"):
        columns[name] = np.zeros(len(pairs), dtype=np.int64)
        columns[name][np.searchsorted(pairs, of_ended)] = ended[name]
    in_flight = np.zeros(len(pairs), dtype=np.int64)
    np.add.at(in_flight, np.searchsorted(pairs, of_flying), num_bytes)
    return Traffic(**columns, in_flight_bytes=in_flight)
