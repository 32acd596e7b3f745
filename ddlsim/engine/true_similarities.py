"""What chosen nodes would measure of all others at every evaluation, free of time and bytes, no estimates.

Source: Listo Zec et al., FL-IJCAI 2022, and Hagander's code, which look at a few nodes' true similarities beside those
that the nodes know of. Models are compared as they are when the evaluated round is completed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ddlsim.engine.evaluation import Snapshot
    from ddlsim.engine.node import Node

NAME = "true_similarity_{}"
"""Of rows, with the peer's id."""


class TrueSimilarities:
    """Writes rows of chosen nodes.

    Args:
        chosen: ids of nodes.
        algorithm: offers `seen` (a node's state -> what of it is compared) and `similarities_of`, see pulling.py.
        nodes: all nodes.
        learner: see learning/learner.py.
        recorder: where rows go.
        rng: (purpose, node) -> its stream of random numbers.
    """

    def __init__(
        self,
        chosen: Sequence[int],
        algorithm: Any,
        nodes: "Sequence[Node]",
        learner,
        recorder,
        rng: Callable[[str, int], np.random.Generator],
    ):
        self._chosen = chosen
        self._algorithm = algorithm
        self._nodes = nodes
        self._learner = learner
        self._recorder = recorder
        self._rng = rng

    def seen(self, state: Any) -> Any:
        """What a snapshot keeps of a node's state; nothing if nobody looks."""
        return self._algorithm.seen(state) if self._chosen else None

    def write(self, completed: int, snapshots: "Mapping[int, Snapshot]") -> None:
        """The rows of one evaluation; nodes that have never joined are left out."""
        seen = {node: snapshot.seen for node, snapshot in snapshots.items() if snapshot.seen is not None}
        found = {}
        for node in self._chosen:
            if node in seen:
                others = {peer: of_peer for peer, of_peer in seen.items() if peer != node}
                rng = self._rng("true similarity batches", node)
                found[node] = self._algorithm.similarities_of(self._nodes[node], seen[node], others, self._learner, rng)
        for node, similarities in found.items():
            for peer, similarity in sorted(similarities().items()):
                self._recorder.row(snapshots[node].time_s, node, completed, NAME.format(peer), similarity)
