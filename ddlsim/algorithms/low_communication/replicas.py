"""Base of methods whose nodes train replicas of one model and combine them by collectives of all nodes.

Rounds are synchronous in either mode: members of a collective wait for each other, without a deadline. Collectives
leave out offline members (see `on_leave` and docs/collectives.md). A node that joins or returns first fetches the
current replica from a random online node; if there is none, it continues with its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ddlsim.algorithms.rounds import ModelState, SharedModel
from ddlsim.node.node import Node, Steps, Verb


@dataclass(frozen=True, kw_only=True)
class Replicas(SharedModel):
    """Base of methods whose nodes train replicas of one model. A subclass defines `round`, and calls `offer` in it.

    Args:
        all_reduce: collective that averages: ring, direct, tree, halving_doubling, server (the first node), or
            hierarchical, with the nodes of each cluster as a site.
        on_leave: rebuild: an all-reduce starts again if a member leaves; continue: the others continue it.
    """

    collective: ClassVar[bool] = True
    rejoins_after_absence: ClassVar[bool] = True
    one_start: ClassVar[bool] = True
    averages: ClassVar[bool] = False
    uses_topology: ClassVar[bool] = False
    shared: ClassVar[tuple[str, ...]] = ("model",)
    """Fields of a state that are equal on all nodes."""

    all_reduce: Literal["ring", "direct", "tree", "halving_doubling", "server", "hierarchical"] = "ring"
    on_leave: Literal["rebuild", "continue"] = "rebuild"

    def offer(self, node: Node, state: ModelState, round_num: int) -> None:
        """Make the replica available to nodes that join or return."""
        fields: Mapping[str, Any] = {name: getattr(state, name) for name in self.shared}
        node.publish(round_num, **{name: value for name, value in fields.items() if value is not None})

    def join(self, node: Node, state: Any, round_num: int) -> Steps:
        """Fetch the current replica; ask the other nodes in random order."""
        node.publish(round_num)  # other nodes that join at the same time do not wait for this one
        for peer in node.rng("replica").permutation(node.others()).tolist():
            for answer in (yield node.pull([peer], round_num)):
                if answer.payload:
                    for name in self.shared:
                        setattr(state, name, answer.payload.get(name))
                    return

    def mean(self, node: Node, content: Any, round_num: int, wire_bytes: int | None = None) -> Verb:
        """Return the all-reduce of a content over all nodes."""
        sites: Sequence[Sequence[int]] = list(node.clusters.values()) if self.all_reduce == "hierarchical" else ()
        options: dict[str, Any] = {"sites": sites, "on_leave": self.on_leave, "wire_bytes": wire_bytes}
        return node.all_reduce(content, range(node.num_nodes), round_num, self.all_reduce, **options)
