"""What a node's trainings began with, for what compares updates: aggregation rules, attacks."""

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from ddlsim.learning.bank import Params
    from ddlsim.learning.job_types import Model
    from ddlsim.node.ports import Ports


class Beginnings:
    """Parameters that came of the node's own training -> those it began with, as long as the former are in use."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[Params, Params] = WeakKeyDictionary()

    def of(self, params: "Params") -> "Params | None":
        """None: they come of no training of the node's own."""
        return self._of.get(params)

    def trained(self, model: "Model", begun: "Model") -> None:
        """A training has made the one of the other, part by part."""
        for own, start in zip(model, begun, strict=True):
            if own is not start or own not in self._of:  # what stays frozen began where it was trained last
                # By a handle of its own: the trainings of a node that merges nothing would hold each other.
                self._of[own] = copy(start)

    def made(self, of: "Params", made: "Params", taken: "Callable[[Params], Params]" = lambda start: start) -> None:
        """Of parameters others have been made; their training began with what `taken` makes of theirs' beginning."""
        if of in self._of:
            self._of[made] = taken(self._of[of])


def compared(ports: "Ports", node_id: int) -> bool:
    """Whether something compares what a node has trained with what its training began with."""
    conduct = None if ports.attackers is None else ports.attackers.of(node_id)
    if conduct is not None and conduct.compares_updates:
        return True
    return ports.aggregation is not None and ports.aggregation.needs_start
