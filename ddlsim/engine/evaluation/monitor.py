"""What measures the completed rounds of a run: evaluations of what was learned, or times of rounds.

When the nodes of a network-only run completed each round: what takes the evaluator's place there.

What chosen nodes would measure of all others at every evaluation, free of time and bytes, no estimates.

Source: Listo Zec et al., FL-IJCAI 2022, and Hagander's code, which look at a few nodes' true similarities beside those
that the nodes know of. Models are compared as they are when the evaluated round is completed.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    pass
    from ddlsim.learning.job_types import Model
    from ddlsim.learning.jobs import Job
    from ddlsim.learning.optimizing.state import LocalState
    from ddlsim.node.candidates import Snapshot


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
        local_state: "LocalState | None" = None,
        precision: str = "float32",
    ) -> "Job":
        """Predictions on an evaluation set; value: a list of EvalResult, one per model."""

    def losses(
        self,
        node: int,
        models: "Sequence[Model]",
        num_batches: int,
        rng: "np.random.Generator | None",
        common: bool = False,
        split: str = "train",
        local_state: "LocalState | None" = None,
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


class RoundTimes:
    """Writes four rows per round, of no node: the simulated time at which the first, the median and the last of the
    nodes that took part had completed it (`round_first_s`, `round_median_s`, `round_last_s`), and how many they were
    (`round_nodes`).

    Args:
        recorder: where rows go.
        num_nodes: a server, which has the number that follows theirs, is none of them.
    """

    target_reached = False
    compares_models = False

    def __init__(self, recorder: "Records", num_nodes: int):
        self.evaluated = 0  # the last round written
        self._recorder, self._num_nodes = recorder, num_nodes
        self._times_s: dict[int, array[float]] = {}

    def due(self, completed: int) -> bool:
        """Every round counts."""
        return True

    def completed(self, node: int, completed: int, population: "Population") -> None:
        """A node has completed a round."""
        if node >= self._num_nodes:
            return
        times_s = self._times_s.get(completed)
        if times_s is None:
            times_s = self._times_s[completed] = array("d")
        times_s.append(population.now_s())

    def close_complete(self, population: "Population") -> None:
        """Writes every round that no node is still on the way to."""
        while self._times_s:
            completed = min(self._times_s)
            if population.any_on_the_way_to(completed):
                return
            self._write(completed, np.sort(np.frombuffer(self._times_s.pop(completed))))

    def has_measured(self, node: int, snapshot: "Snapshot") -> bool:
        """Nothing of it is measured."""
        return True

    def write_measurements(self) -> None:
        """Nothing is measured between rounds."""

    def _write(self, completed: int, times_s: np.ndarray) -> None:
        self.evaluated, last_s = completed, times_s[-1]
        values = {"first_s": times_s[0], "median_s": float(np.median(times_s)), "last_s": last_s, "nodes": len(times_s)}
        for name, value in values.items():
            value = value if name == "nodes" else float(value)
            self._recorder.row(last_s, None, completed, f"round_{name}", value)
        self._recorder.flush()


NAME = "true_similarity_{}"
"""Of rows, with the peer's id."""

Compare = Callable[[int, Any, Mapping[int, Any], np.random.Generator], Callable[[], Mapping[int, float]]]
"""(node, what is seen of it, of the others, draws mini-batches) -> deferred similarities, see
Algorithm.similarities_of.
"""


class OracleSimilarities:
    """Writes rows of chosen nodes.

    Args:
        chosen: ids of nodes.
        compare: how a node's model is compared with others.
        recorder: where rows go.
        rng: (purpose, node, rounds completed) -> a stream of random numbers of its own.
    """

    def __init__(
        self,
        chosen: Sequence[int],
        compare: Compare,
        recorder: "Records",
        rng: Callable[[str, int, int], np.random.Generator],
    ):
        self.any_chosen = bool(chosen)
        self._chosen = chosen
        self._compare = compare
        self._recorder = recorder
        self._rng = rng

    def write(self, completed: int, snapshots: "Mapping[int, Snapshot]") -> None:
        """The rows of one evaluation; nodes that have never joined are left out."""
        seen = {node: snapshot.seen for node, snapshot in snapshots.items() if snapshot.seen is not None}
        found = {}
        for node in self._chosen:
            if node in seen:
                others = {peer: of_peer for peer, of_peer in seen.items() if peer != node}
                rng = self._rng("true similarity batches", node, completed)
                found[node] = self._compare(node, seen[node], others, rng)
        for node, similarities in found.items():
            for peer, similarity in sorted(similarities().items()):
                self._recorder.row(snapshots[node].time_s, node, completed, NAME.format(peer), similarity)
