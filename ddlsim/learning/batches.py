"""Mini-batches of local steps, as sample indices."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np


class Batches(Sequence[np.ndarray]):
    """Mini-batches as one array, because pending trainings of all nodes hold theirs and arrays have an overhead.

    Args:
        rows: int64 [n], sample indices, batch after batch.
        ends: where each batch ends in it.
    """

    __slots__ = ("ends", "rows")

    def __init__(self, rows: np.ndarray, ends: tuple[int, ...]):
        self.rows, self.ends = rows, ends

    @classmethod
    def of(cls, batches: Iterable[np.ndarray]) -> "Batches":
        """Return mini-batches from arrays of sample indices."""
        batches = list(batches)
        ends = np.cumsum([len(batch) for batch in batches]).tolist()
        return cls(np.concatenate(batches) if batches else np.empty(0, np.int64), tuple(ends))

    @property
    def sizes(self) -> list[int]:
        """Samples of each."""
        return [stop - start for start, stop in zip((0, *self.ends), self.ends, strict=False)]

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        stop = self.ends[place]
        return self.rows[self.ends[place - 1] if place % len(self) else 0 : stop]


def batches_per_pass(num_samples: int, batch_size: int, drop_last: bool = False) -> int:
    """Mini-batches in one pass over the data; `drop_last` leaves a smaller last one out unless it is the only one."""
    return max(1, num_samples // batch_size) if drop_last else -(-num_samples // batch_size)


def draw_batches(
    rng: np.random.Generator, num_samples: int, batch_size: int, count: int, drop_last: bool = False
) -> Batches:
    """Draw `count` mini-batches of sample indices, without replacement inside a pass over the data.

    As a PyTorch DataLoader with shuffle: the last batch of a pass may be smaller, then a new shuffle starts; every call
    starts a new pass (FACADE's code makes a new loader each round).

    Args:
        rng: the node's stream; two calls with equal streams give equal batches.
        num_samples: how many samples the node holds, >= 1.
        batch_size: samples per batch.
        count: number of batches.
        drop_last: whether a smaller last batch of a pass is left out, unless it is the only one.
    """
    per_pass = batches_per_pass(num_samples, batch_size, drop_last)
    in_pass = min(num_samples, per_pass * batch_size)
    ends = _ends(in_pass, batch_size, per_pass, count)
    passes = [rng.permutation(num_samples)[:in_pass] for _ in range(-(-count // per_pass))]
    rows = np.concatenate(passes)[: ends[-1]].copy() if passes else np.empty(0, np.int64)  # lets the rest of a pass go
    return Batches(rows, ends)


def batches_in_order(num_samples: int, batch_size: int, count: int) -> Batches:
    """Return the first `count` mini-batches of one pass over the samples in their order, as a PyTorch DataLoader
    without shuffle.
    """
    ends = _ends(num_samples, batch_size, batches_per_pass(num_samples, batch_size), count)
    return Batches(np.arange(ends[-1] if ends else 0), ends)


@lru_cache(maxsize=10_000)
def _ends(in_pass: int, batch_size: int, per_pass: int, count: int) -> tuple[int, ...]:
    """Return the ends of batches in passes over `in_pass` samples; nodes with equally many samples share them."""
    return tuple(
        number // per_pass * in_pass + min((number % per_pass + 1) * batch_size, in_pass) for number in range(count)
    )
