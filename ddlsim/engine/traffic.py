"""Communication counters per ordered pair of nodes."""

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np


@dataclass(frozen=True)
class Traffic:
    """One entry per ordered pair that had traffic, sorted by (src, dst); int64 arrays [pairs].

    `messages`, `payload_bytes` and `header_bytes` are of messages that arrived; `wasted_bytes` is what was put on the
    wire for messages that did not. All bytes on the wire are the sum of the three.
    """

    src: np.ndarray
    dst: np.ndarray
    messages: np.ndarray
    payload_bytes: np.ndarray
    header_bytes: np.ndarray
    wasted_bytes: np.ndarray

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
