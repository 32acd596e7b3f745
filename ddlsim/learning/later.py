"""Values that are computed elsewhere, on a device or in another process, while the simulation goes on."""

from collections.abc import Callable, Sequence
from typing import Any


class Later:
    """A value that is computed elsewhere, perhaps still under way.

    Args:
        values: waits for a list of values, this one among them; the same object for all values of the list.
        place: of this one.
    """

    def __init__(self, values: Callable[[], Sequence[Any]], place: int):
        self._values = values
        self._place = place

    def get(self) -> Any:
        """Waits for it."""
        return self._values()[self._place]


def laters(values: Callable[[], Sequence[Any]], count: int) -> list[Later]:
    """So many values that one function waits for; it is called at most once."""
    once = _once(values)
    return [Later(once, place) for place in range(count)]


def _once(fetch: Callable[[], Sequence[Any]]) -> Callable[[], Sequence[Any]]:
    still, found = [fetch], []

    def get() -> Sequence[Any]:
        if still:
            found.append(still[0]())
            still.clear()  # with all that it holds
        return found[0]

    return get
