"""When nodes are away, as a scenario says it outright; drawn and recorded absences: sessions.py, traces.py.

Every entry of CHURNS offers `absences(num_nodes, seed)`: per node its absences (start_s, end_s) in simulated seconds,
in order; a node without any is always online. They may be drawn lazily and never end: the simulation takes the next one
when the node is back. An absence that ends at infinity is for good.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt

from ddlsim.part import Part, Problem
from ddlsim.units import CountOrZero

Interval = tuple[float, float]

Absences = Mapping[int, Iterable[Interval]]
"""Node -> its absences (start_s, end_s), in order."""


@dataclass(frozen=True, kw_only=True)
class Churn(Part):
    """What every kind of churn has.

    Args:
        state: what a node that comes back remembers: `kept`, all that it knew when it left, or `lost`, nothing; then
            it starts afresh, from models drawn anew or from the start that all nodes share, as its algorithm does.
    """

    state: Literal["kept", "lost"] = "kept"

    def check(self, num_nodes: int) -> None:
        """Raises ScenarioError where this many nodes do not fit. Default: all do."""

    def problems(self, num_nodes: int, seed: int) -> Iterator[Problem]:
        """See Part; asks `check`."""
        self.check(num_nodes)
        return iter(())

    def absences(self, num_nodes: int, seed: int) -> "Absences":
        """Per node its absences, in order; a node that is never away may be left out."""
        raise NotImplementedError(f"{type(self).__name__} must define absences(num_nodes, seed)")


@dataclass(frozen=True, kw_only=True)
class Absence:
    """One node's absence.

    Args:
        node: node id.
        start_s: when it leaves, simulated seconds; 0: it is not there at the start.
        end_s: when it returns, or joins the run; .inf: never.
    """

    __pydantic_config__: ClassVar = {"strict": True, "extra": "forbid", "allow_inf_nan": True}

    node: CountOrZero
    start_s: Annotated[float, Ge(0)]
    end_s: Annotated[float, Gt(0)]


@dataclass(frozen=True, kw_only=True)
class Schedule(Churn):
    """Nodes leave and return at given times.

    Args:
        offline: list of {node, start_s, end_s}; absences of a node that overlap or touch are one.
    """

    offline: tuple[Absence, ...]

    def problems(self, num_nodes: int, seed: int) -> Iterator[Problem]:
        """Absences of nodes that do not exist, and those that end before they start."""
        for i, absence in enumerate(self.offline):
            if absence.node >= num_nodes:
                text = f"node ids are 0 to {num_nodes - 1} in this scenario, got {absence.node}"
                yield ("offline", i, "node"), text
            if absence.end_s <= absence.start_s:
                text = f"must lie after start_s ({absence.start_s:g}), got {absence.end_s:g}"
                yield ("offline", i, "end_s"), text

    def absences(self, num_nodes: int, seed: int) -> Absences:
        """Per node its absences (start, end) in simulated seconds, in order."""
        found: dict[int, list[Interval]] = {}
        for absence in self.offline:
            found.setdefault(absence.node, []).append((absence.start_s, absence.end_s))
        return {node: merged(found[node]) for node in sorted(found)}


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Intervals in order; those that touch or overlap are one, those without length are none."""
    found: list[Interval] = []
    for start_s, end_s in sorted(each for each in intervals if each[1] > each[0]):
        if found and start_s <= found[-1][1]:
            start_s, end_s = found[-1][0], max(found.pop()[1], end_s)
        found.append((start_s, end_s))
    return found
