"""When the nodes of a network-only run completed each round: what takes the evaluator's place there."""

from array import array
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ddlsim.evaluation.candidates import Snapshot
    from ddlsim.evaluation.monitor import Population, Records


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
