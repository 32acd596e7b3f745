"""Values that are computed only when they are needed."""

from collections.abc import Callable
from typing import Any


class Deferred:
    """A value that is computed when it is first asked for, by calling this.

    Until then the work waits, and everything alike that other nodes ask for meanwhile runs with it in one wave.

    Args:
        compute: makes the value.
        wire_bytes: what it counts in a message; None: as one number.
    """

    def __init__(self, compute: Callable[[], Any], wire_bytes: int | None = None):
        self.wire_bytes = wire_bytes
        self._compute: Callable[[], Any] | None = compute
        self._value: Any = None

    def __call__(self) -> Any:
        if self._compute is not None:
            self._value, self._compute = self._compute(), None
        return self._value

    def then(self, change: Callable[[Any], Any]) -> "Deferred":
        """A function of this value, as late."""
        return Deferred(lambda: change(self()))
