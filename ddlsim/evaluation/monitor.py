"""What measures the completed rounds of a run: evaluations of what was learned, or times of rounds."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

    from ddlsim.evaluation.candidates import Snapshot
    from ddlsim.learning.job_types import Model
    from ddlsim.learning.jobs import Job
    from ddlsim.learning.optimizing.state import Kept


class Records(Protocol):
    """Where rows go, see runs/recorder.py."""

    def row(self, time_s: float, node: int | None, round_num: int, name: str, value: Any) -> None:
        """One row; `round_num` counts completed rounds."""

    def flush(self) -> None:
        """Hands what has been written to the operating system."""


class Tester(Protocol):
    """What measures models: what measuring needs of the Compute port, see node/ports.py."""

    def test(
        self,
        models: "Sequence[Model]",
        test_set: int,
        split: str = "test",
        kept: "Kept | None" = None,
        precision: str = "float32",
    ) -> "Job":
        """Predictions on an evaluation set; value: a list of Tested, one per model."""

    def losses(
        self,
        node: int,
        models: "Sequence[Model]",
        num_batches: int,
        rng: "np.random.Generator | None",
        common: bool = False,
        split: str = "train",
        kept: "Kept | None" = None,
    ) -> "Job":
        """Mean losses on the node's samples; value: a list of floats, one per model."""

    def resolve(self, jobs: "Sequence[Job]") -> list[Any]:
        """What jobs compute, together."""


class Population(Protocol):
    """What a monitor may ask of a run; the simulation is one."""

    def any_on_the_way_to(self, completed: int) -> bool:
        """Whether a node that takes part has not yet completed so many rounds."""

    def joined(self) -> Iterator[int]:
        """All nodes that have ever been there, ascending."""

    def now_s(self) -> float:
        """Simulated seconds since the start."""

    def snapshot(self, node: int, completed: int) -> "Snapshot":
        """What a node has now; of one that has stopped after so many rounds, what it had then."""


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

    def has_measured(self, node: int, snapshot: "Snapshot") -> bool:
        """Whether what is measured of a node was last measured just so."""

    def close_complete(self, population: Population) -> None:
        """Measures every round that no node is still on the way to."""

    def write_measurements(self) -> None:
        """Writes what was measured between evaluations."""
