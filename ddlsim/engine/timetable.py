"""When the nodes of a network-only run were through with each round: what takes the evaluator's place there."""

from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ddlsim.engine.evaluation import Awaited

if TYPE_CHECKING:
    from ddlsim.engine.node import Node


class Timetable:
    """Writes four rows per round, of no node: the simulated time at which the first, the median and the last of those
    who took part had completed it (`round_first_s`, `round_median_s`, `round_last_s`), and how many they were
    (`round_nodes`).

    Args:
        recorder: where rows go.
        nodes: all nodes.
    """

    def __init__(self, recorder, nodes: "Sequence[Node]"):
        self._recorder = recorder
        self._awaited = Awaited(nodes)
        self.evaluated = 0  # the last round written
        self._times_s: dict[int, array] = {}

    def due(self, completed: int) -> bool:
        """Every round counts."""
        return True

    def completed(self, node: "Node", completed: int, take: Callable) -> None:
        """A node has completed a round."""
        self._times_s.setdefault(completed, array("d")).append(node.now_s)

    def close_complete(self, take: Callable) -> None:
        """Writes every round that nobody is still on the way to."""
        for completed in sorted(self._times_s):
            if self._awaited.anybody(completed):
                return
            self._write(completed, np.sort(np.frombuffer(self._times_s.pop(completed))))

    def _write(self, completed: int, times_s: np.ndarray) -> None:
        self.evaluated, last_s = completed, times_s[-1]
        values = {"first_s": times_s[0], "median_s": float(np.median(times_s)), "last_s": last_s, "nodes": len(times_s)}
        for name, value in values.items():
            value = value if name == "nodes" else float(value)
            self._recorder.row(last_s, None, completed, f"round_{name}", value)
        self._recorder.flush()
