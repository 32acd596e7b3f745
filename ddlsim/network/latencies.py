"""How long a message is on its way before its first byte, as a scenario or a caller says it."""

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
        access_ns: per node that of its own link, int64 [N].
        of_all_ns: of every message; OF_BOTH_ENDS: the sum of both its ends' access latencies.
        of_pair_ns: (src, dst) -> of a message between them; None: `of_all_ns` holds.
    """

    access_ns: np.ndarray
    of_all_ns: int = 0
    of_pair_ns: Callable[[int, int], int] | None = None

    def of(self, src: int, dst: int) -> int:
        """Of a message, or OF_BOTH_ENDS."""
        return self.of_all_ns if self.of_pair_ns is None else self.of_pair_ns(src, dst)


def latencies(latency_s: Latency, num_nodes: int) -> Latencies:
    """Latencies from seconds.

    Args:
        latency_s: one number for every message; [N] access latencies, of which a message takes its sender's and its
            receiver's; a matrix [N, N]; or a function (src, dst) -> seconds.
        num_nodes: N.
    Raises:
        ValueError: an array of another shape.
        ScenarioError: from the function, when it is asked: what it returns is no latency.
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
    """Whole nanoseconds, int64."""
    return np.rint(np.asarray(seconds, dtype=float) * NS_PER_S).astype(np.int64)


def _pair_ns(src: int, dst: int, seconds: float) -> int:
    """What a function says of a message."""
    try:
        time_s = float(seconds)
    except (TypeError, ValueError):
        raise ScenarioError(
            f"links: latency_s({src}, {dst}): expected seconds of 0 or more, got {kind_of(seconds)}."
        ) from None
    if not 0 <= time_s <= END_OF_TIME_S:
        raise ScenarioError(f"links: latency_s({src}, {dst}): expected seconds of 0 or more, got {seconds}.")
    return round(time_s * NS_PER_S)
