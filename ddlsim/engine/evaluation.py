"""When and how a run is measured. Measuring costs no simulated time and steers nothing but the stop at a target."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from ddlsim.engine.node import Node
    from ddlsim.engine.true_similarities import TrueSimilarities
    from ddlsim.learning.kinds import Model, Tested

SELECTION_BATCHES = 100
"""Local mini-batches on which a node picks among several models for an evaluation (FACADE's code)."""

METRIC_OF = {"classification": "accuracy", "regression": "mse"}
"""Task -> what its nodes are measured by: the share of samples classified right, or the mean squared error."""

Choice = Literal["train_loss", "validation_loss", "lowest_test_loss"]


@dataclass(frozen=True)
class Serving:
    """What a node would answer queries with.

    Args:
        models: candidates, whole models in parts.
        choose: the data whose loss picks one of several candidates. `lowest_test_loss` peeks at the test set.
    """

    models: "Sequence[Model]"
    choose: Choice = "train_loss"


@dataclass(frozen=True)
class Snapshot:
    """What a node held when it completed an evaluated round."""

    time_s: float
    bytes_sent: int
    serving: Serving | None  # None: a server
    seen: Any = None  # what true_similarities.py compares


@dataclass(frozen=True)
class Evaluated:
    """Outcome of one evaluation of all nodes.

    Args:
        completed: rounds completed.
        time_s: simulated time when the last node was there.
        bytes_sent: bytes all nodes had put on the wire when each was there.
        metric: what was measured, see `METRIC_OF`.
        values: per node; nan for nodes that have not joined yet.
    """

    completed: int
    time_s: float
    bytes_sent: int
    metric: str
    values: np.ndarray

    def reaches(self, target: float) -> bool:
        """Whether the mean over all nodes is as good as the target, or better."""
        return bool(np.nanmean(self.values) <= target if self.metric == "mse" else self.values.mean() >= target)


class Awaited:
    """Whether somebody is still on the way to a round. Asked after every completion, it looks at each node only once or
    twice per round: it remembers whom it found.

    Args:
        nodes: all nodes.
    """

    def __init__(self, nodes: "Sequence[Node]"):
        self._nodes = nodes
        self._found_at: dict[int, int] = {}

    def anybody(self, completed: int) -> bool:
        """Whether a node that takes part has not yet completed so many rounds."""
        nodes = self._nodes
        start = self._found_at.pop(completed, 0)
        for at in chain(range(start, len(nodes)), range(start)):
            node = nodes[at]
            if node.completed_rounds < completed and node.online and not node.done and node.first_round < completed:
                self._found_at[completed] = at
                return True
        return False


class Evaluator:
    """Collects snapshots of a round and evaluates when every node that took part has one.

    Args:
        nodes: all nodes.
        learner: see learning/learner.py.
        recorder: where rows go.
        test_set: per node what it is tested on: its cluster, or itself.
        metric: what is measured, see `METRIC_OF`.
        rng: (purpose, node) -> its stream of random numbers.
        due: whether so many completed rounds are evaluated.
        on_evaluated: called with every outcome.
        similarities: what chosen nodes would measure is written at every evaluation.
    """

    def __init__(
        self,
        nodes: "Sequence[Node]",
        learner,
        recorder,
        test_set: np.ndarray,
        metric: str,
        rng: Callable[[str, int], np.random.Generator],
        due: Callable[[int], bool],
        on_evaluated: Callable[[Evaluated], None],
        similarities: "TrueSimilarities",
    ):
        self.due = due
        self._nodes = nodes
        self._awaited = Awaited(nodes)
        self._learner = learner
        self._recorder = recorder
        self._test_set = test_set
        self._metric = metric
        self._rng = rng
        self._on_evaluated = on_evaluated
        self._similarities = similarities
        self._open: dict[int, dict[int, Snapshot]] = {}
        self.evaluated = 0  # rounds completed at the last evaluation

    def completed(self, node: "Node", completed: int, take: Callable[["Node"], Snapshot]) -> None:
        """A node has completed a round that is due."""
        self._open.setdefault(completed, {})[node.id] = take(node)

    def close_complete(self, take: Callable[["Node"], Snapshot]) -> None:
        """Evaluates every open round for which nobody is still on the way; absent nodes count as they are now.

        Nodes that have not joined yet are left out.
        """
        for completed in sorted(self._open):
            if self._awaited.anybody(completed):
                return
            snapshots = self._open.pop(completed)
            self.evaluated = completed
            for node in self._nodes:
                taken = snapshots.get(node.id)
                is_server = taken is not None and taken.serving is None  # by now what it sent last is out
                if is_server or (taken is None and node.joined):
                    snapshots[node.id] = take(node)
            self._evaluate(completed, dict(sorted(snapshots.items())))

    def _evaluate(self, completed: int, everybody: dict[int, Snapshot]) -> None:
        snapshots = {node: snapshot for node, snapshot in everybody.items() if snapshot.serving is not None}
        tests = [
            self._learner.test(snapshot.serving.models, int(self._test_set[node]))
            for node, snapshot in snapshots.items()
        ]
        choices = [self._enqueue_choice(node, snapshot.serving) for node, snapshot in snapshots.items()]
        self._learner.jobs.force([*tests, *(job for job in choices if job is not None)])
        values = np.full(len(self._test_set), np.nan)
        for (node, snapshot), test, choice in zip(snapshots.items(), tests, choices, strict=True):
            lowest = int(np.argmin([loss for _, loss in test.value]))
            chosen = lowest if choice is None else int(np.argmin(choice.value))
            values[node] = self._write(node, completed, snapshot, test.value, chosen, lowest)
        for node in everybody.keys() - snapshots.keys():  # a server has bytes, but nothing to be tested
            self._recorder.row(everybody[node].time_s, node, completed, "bytes_sent", everybody[node].bytes_sent)
        self._similarities.write(completed, snapshots)
        self._recorder.flush()
        if not snapshots:  # a server alone: no node has joined yet
            return
        time_s = max(snapshot.time_s for snapshot in snapshots.values())
        bytes_sent = sum(snapshot.bytes_sent for snapshot in everybody.values())
        self._on_evaluated(Evaluated(completed, time_s, bytes_sent, self._metric, values))

    def _enqueue_choice(self, node: int, serving: Serving):
        if len(serving.models) == 1 or serving.choose == "lowest_test_loss":
            return None
        split = "train" if serving.choose == "train_loss" else "validation"
        rng = self._rng("evaluation batches", node)
        return self._learner.losses(node, serving.models, SELECTION_BATCHES, rng, True, split)

    def _write(
        self, node: int, completed: int, snapshot: Snapshot, tested: "list[Tested]", chosen: int, lowest: int
    ) -> float:
        def row(name: str, value: Any) -> None:
            self._recorder.row(snapshot.time_s, node, completed, name, value)

        confusion, loss = tested[chosen]
        value = _measured(tested[chosen])
        row(self._metric, value)
        if confusion is not None:
            row("test_loss", loss)
            row("confusion", confusion.tolist())
        row("bytes_sent", snapshot.bytes_sent)
        if len(tested) > 1:
            row(f"{self._metric}_lowest_test_loss", _measured(tested[lowest]))
            row("evaluated_head", chosen)
        return value


def _measured(tested: "Tested") -> float:
    """The accuracy; of a regression, whose test loss it is, the mean squared error."""
    confusion, loss = tested
    return loss if confusion is None else float(np.trace(confusion) / confusion.sum())
