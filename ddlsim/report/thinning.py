"""Which of many numbers are shown where not all have room."""

import numpy as np


def evenly(count: int, most: int) -> np.ndarray:
    """At most so many of the numbers 0 .. count-1, evenly spaced, the first and the last among them; int, ascending."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))
