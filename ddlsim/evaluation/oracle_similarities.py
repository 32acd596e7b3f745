"""What chosen nodes would measure of all others at every evaluation, free of time and bytes, no estimates.

Source: Listo Zec et al., FL-IJCAI 2022, and Hagander's code, which look at a few nodes' true similarities beside those
that the nodes know of. Models are compared as they are when the evaluated round is completed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ddlsim.evaluation.candidates import Snapshot
    from ddlsim.evaluation.monitor import Records

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
