"""Communication counters per ordered pair of nodes."""

from collections.abc import Iterable, Iterator
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


def with_flying(ended: dict[str, np.ndarray], flying: Iterable[tuple[int, int, int]]) -> Traffic:
    """Traffic of what has ended, as columns sorted by pair, and of what is on its way.

    Args:
        ended: the fields of Traffic but `in_flight_bytes`.
        flying: (src, dst, bytes on the wire so far) of each message.
    """
    by_pair: dict[tuple[int, int], int] = {}
    for src, dst, num_bytes in flying:
        if num_bytes:
            by_pair[src, dst] = by_pair.get((src, dst), 0) + num_bytes
    known = {name: np.asarray(column, dtype=np.int64) for name, column in ended.items()}
    if not by_pair:
        return Traffic(**known, in_flight_bytes=np.zeros(len(known["src"]), dtype=np.int64))
    src, dst = np.array(list(by_pair), dtype=np.int64).T
    width = int(max(src.max(), dst.max(), known["src"].max(initial=0), known["dst"].max(initial=0))) + 1
    of_ended, of_flying = known["src"] * width + known["dst"], src * width + dst
    pairs = np.union1d(of_ended, of_flying)
    columns = {"src": pairs // width, "dst": pairs % width}
    for name in ("messages", "payload_bytes", "header_bytes", "wasted_bytes"):
        columns[name] = np.zeros(len(pairs), dtype=np.int64)
        columns[name][np.searchsorted(pairs, of_ended)] = known[name]
    in_flight = np.zeros(len(pairs), dtype=np.int64)
    in_flight[np.searchsorted(pairs, of_flying)] = list(by_pair.values())
    return Traffic(**columns, in_flight_bytes=in_flight)
