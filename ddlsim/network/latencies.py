"""Latency of messages before their first byte, as set by a scenario or a caller."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddlsim.foundation.errors import ScenarioError, kind_of
from ddlsim.foundation.units import END_OF_TIME_S

NS_PER_S = 1_000_000_000
OF_BOTH_ENDS = -1

Latency = float | Sequence[float] | np.ndarray | Callable[[int, int], float]


@dataclass(frozen=True)
class Latencies:
    """Latencies in nanoseconds.

    Args:
        access_ns: latency of each node's own link, int64 [N].
        of_all_ns: latency of every message; OF_BOTH_ENDS: the sum of both its ends' access latencies.
        of_pair_ns: (src, dst) -> latency of a message between them; None: `of_all_ns` applies.
    """

    access_ns: np.ndarray
    of_all_ns: int = 0
    of_pair_ns: Callable[[int, int], int] | None = None

    def of(self, src: int, dst: int) -> int:
        """Return the latency of a message, or OF_BOTH_ENDS."""
        return self.of_all_ns if self.of_pair_ns is None else self.of_pair_ns(src, dst)


def latencies(latency_s: Latency, num_nodes: int) -> Latencies:
    """Convert latencies from seconds.

    Args:
        latency_s: one number for every message; [N] access latencies, of which a message takes its sender's and its
            receiver's; a matrix [N, N]; or a function (src, dst) -> seconds.
        num_nodes: N.
    Raises:
        ValueError: an array of another shape.
        ScenarioError: from the function, when called, if its result is not a valid latency.
    """
    none = np.zeros(num_nodes, dtype=np.int64)
    if callable(latency_s):
        return Latencies(none, of_pair_ns=lambda src, dst: _pair_ns(src, dst, latency_s(src, dst)))
    table_ns = to_ns(latency_s)
    if table_ns.ndim == 0:
        return Latencies(none, int(table_ns))
    if table_ns.shape == (num_nodes,):
        return Latencies(table_ns, OF_BOTH_ENDS)
    if table_ns.shape == (num_nodes, num_nodes):
        return Latencies(none, of_pair_ns=lambda src, dst: int(table_ns[src, dst]))
    raise ValueError(
        f"latency_s must be one number, [{num_nodes}] or [{num_nodes}, {num_nodes}], got {list(table_ns.shape)}"
    )


def to_ns(seconds: Any) -> np.ndarray:
    """Convert to whole nanoseconds, int64."""
    return np.rint(np.asarray(seconds, dtype=float) * NS_PER_S).astype(np.int64)


def _pair_ns(src: int, dst: int, seconds: float) -> int:
    """Return a function's latency of a message."""
    try:
        time_s = float(seconds)
    except (TypeError, ValueError):
        raise ScenarioError(
            f"links: latency_s({src}, {dst}): expected seconds of 0 or more, got {kind_of(seconds)}."
        ) from None
    if not 0 <= time_s <= END_OF_TIME_S:
        raise ScenarioError(f"links: latency_s({src}, {dst}): expected seconds of 0 or more, got {seconds}.")
    return round(time_s * NS_PER_S)
