"""When nodes are away."""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt


@dataclass(frozen=True, kw_only=True)
class Absence:
    """One node's absence.

    Args:
        node: node id.
        start_s: when it leaves, simulated seconds.
        end_s: when it returns.
    """

    node: Annotated[int, Ge(0)]
    start_s: Annotated[float, Ge(0)]
    end_s: Annotated[float, Gt(0)]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Nodes leave and return at given times.

    Args:
        offline: list of {node, start_s, end_s}.
    """

    offline: tuple[Absence, ...]

    def absences(self, num_nodes: int, seed: int) -> dict[int, list[tuple[float, float]]]:
        """Per node its absences (start, end) in simulated seconds, in order."""
        found: dict[int, list[tuple[float, float]]] = {}
        for absence in sorted(self.offline, key=lambda a: (a.node, a.start_s)):
            found.setdefault(absence.node, []).append((absence.start_s, absence.end_s))
        return found
