"""Units and upper bounds: YAML uses Mbit/s and ms, the code uses bytes per second and seconds."""

from typing import TYPE_CHECKING, Annotated, TypeVar

from annotated_types import Ge, Le

if TYPE_CHECKING:
    import numpy as np


BITS_PER_BYTE = 8
FLOAT32_BYTES = 4

MAX_STEP_S, MAX_LATENCY_MS, MAX_MBPS = 1e9, 1e9, 5e8
"""Exclusive upper bounds of keys and files. Rates are counted in 2^-16 bytes/s; 62 bits hold 563 Tbit/s."""
END_OF_TIME_S = 9e9
"""Longest simulated time: it is counted in nanoseconds, of which 64 bits hold 292 years."""

MAX_COUNT, MAX_STEPS, MAX_UNITS = 10**9, 10**6, 10**6
"""Upper bounds of counts, of local steps per round (whose batches are drawn at once), and of units per layer."""
MAX_NODES = 10**7
"""Upper bound of nodes of a scenario."""
Count = Annotated[int, Ge(1), Le(MAX_COUNT)]
CountOrZero = Annotated[int, Ge(0), Le(MAX_COUNT)]
StepCount = Annotated[int, Ge(1), Le(MAX_STEPS)]
Number = TypeVar("Number", float, "np.ndarray")
UnitCount = Annotated[int, Ge(1), Le(MAX_UNITS)]


def mbps_to_bytes_per_s(mbps: Number) -> Number:
    """Convert Mbit/s (10^6 bits) to bytes/s."""
    return mbps * 1e6 / BITS_PER_BYTE


def ms_to_s(ms: Number) -> Number:
    """Convert milliseconds to seconds."""
    return ms / 1e3
