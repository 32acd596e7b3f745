"""Records of completed rounds: times of rounds in network-only runs, and true similarities at evaluations.

True similarities are the similarities to all other nodes that chosen nodes would measure at every evaluation, without
simulated time and bytes; no estimates. Source: Listo Zec et al., FL-IJCAI 2022, and Hagander's code, which compare a
few nodes' true similarities with those that the nodes know. Models are compared when the evaluated round is completed.
"""

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ddlsim.node.candidates import EvaluationCandidates, Snapshot


class Records(Protocol):
    """Destination of rows, see runs/recorder.py."""

    def row(self, time_s: float, node: int | None, round_num: int, name: str, value: Any) -> None:
        """Write one row; `round_num` counts completed rounds."""

    def training_row(self, time_s: float, node: int, round_num: int, name: str, value: float) -> None:
        """Write one row of training.jsonl, which results do not depend on."""

    def flush(self) -> None:
        """Hand written rows to the operating system."""


class Population(Protocol):
    """Nodes of a run as its monitor sees them; the simulation implements it."""

    def any_on_the_way_to(self, completed: int) -> bool:
        """Whether a node that takes part has not yet completed this number of rounds."""

    def joined(self) -> Iterator[int]:
        """Return all nodes that have ever been online, ascending."""

    def now_s(self) -> float:
        """Simulated seconds since the start."""

    def snapshot(self, node: int, completed: int) -> Snapshot:
        """Return the current snapshot of a node, or the snapshot at its stop after this number of rounds."""

    def served(self, node: int) -> "EvaluationCandidates | None":
        """Return the models that a node would answer queries with now; None for a server."""


class RoundTimes:
    """Monitor of a network-only run: writes four rows per round without a node.

    `round_first_s`, `round_median_s` and `round_last_s` are the simulated times at which the first, the median and the
    last node that took part had completed the round; `round_nodes` is the number of these nodes. Methods as in
    Evaluator.

    Args:
        recorder: destination of rows.
        num_nodes: number of nodes without a server.
    """

    target_reached = False
    compares_models = measures_start = False

    def __init__(self, recorder: Records, num_nodes: int):
        self.evaluated = 0  # the last round written
        self._recorder, self._num_nodes = recorder, num_nodes
        self._times_s: defaultdict[int, array[float]] = defaultdict(lambda: array("d"))

    def due(self, completed: int) -> bool:
        return True

    def completed(self, node: int, completed: int, population: Population) -> None:
        if node >= self._num_nodes:
            return
        self._times_s[completed].append(population.now_s())

    def close_complete(self, population: Population) -> None:
        while self._times_s:
            completed = min(self._times_s)
            if population.any_on_the_way_to(completed):
                return
            self._write(completed, np.sort(np.frombuffer(self._times_s.pop(completed))))

    def has_measured(self, node: int, snapshot: Snapshot) -> bool:
        return True

    def write_measurements(self, completed: int) -> None:
        """Nothing is measured between evaluations."""

    def _write(self, completed: int, times_s: np.ndarray) -> None:
        first_s, median_s, last_s = float(times_s[0]), float(np.median(times_s)), float(times_s[-1])
        values = {"first_s": first_s, "median_s": median_s, "last_s": last_s, "nodes": len(times_s)}
        self.evaluated = completed
        for name, value in values.items():
            self._recorder.row(last_s, None, completed, f"round_{name}", value)
        self._recorder.flush()


NAME = "true_similarity_{}"
"""Name of rows, with the peer's id."""

Compare = Callable[[int, Any, Mapping[int, Any], np.random.Generator], Callable[[], Mapping[int, float]]]
"""(node, its compared state, the others' compared state, random numbers of mini-batches) -> deferred similarities, see
Algorithm.similarities_of.
"""


@dataclass(frozen=True)
class OracleSimilarities:
    """Writes the true similarities of chosen nodes.

    Args:
        chosen: ids of nodes.
        compare: compares a node's model with others.
        recorder: destination of rows.
        rng: (purpose, node, rounds completed) -> a stream of random numbers.
    """

    chosen: Sequence[int]
    compare: Compare
    recorder: Records
    rng: Callable[[str, int, int], np.random.Generator]

    def write(self, completed: int, snapshots: Mapping[int, Snapshot]) -> None:
        """Write the rows of one evaluation; nodes that have never joined are left out."""
        seen = {node: snapshot.seen for node, snapshot in snapshots.items() if snapshot.seen is not None}
        found = {}
        for node in self.chosen:
            if node in seen:
                others = {peer: of_peer for peer, of_peer in seen.items() if peer != node}
                rng = self.rng("true similarity batches", node, completed)
                found[node] = self.compare(node, seen[node], others, rng)
        for node, similarities in found.items():
            for peer, similarity in sorted(similarities().items()):
                self.recorder.row(snapshots[node].time_s, node, completed, NAME.format(peer), similarity)
