"""What measures the completed rounds of a run: evaluations of what was learned, or times of rounds."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ddlsim.evaluation.candidates import Snapshot


class Population(Protocol):
    """What a monitor may ask of a run; the simulation is one."""

    def any_on_the_way_to(self, completed: int) -> bool:
        """Whether a node that takes part has not yet completed so many rounds."""

    def joined(self) -> Iterator[int]:
        """All nodes that have ever been there, ascending."""

    def now_s(self) -> float:
        """Simulated seconds since the start."""

    def snapshot(self, node: int) -> "Snapshot":
        """What a node has now."""


class Monitor(Protocol):
    """Told of every completed round."""

    evaluated: int
    """Rounds completed at the last measurement."""

    target_reached: bool
    """Whether the run should end now."""

    compares_models: bool
    """Whether snapshots need what is compared, see Algorithm.seen."""

    def due(self, completed: int) -> bool:
        """Whether so many completed rounds are measured."""

    def completed(self, node: int, completed: int, population: Population) -> None:
        """A node has completed a round that is due."""

    def close_complete(self, population: Population) -> None:
        """Measures every round that no node is still on the way to."""

    def write_measurements(self) -> None:
        """Writes what was measured between evaluations."""
