"""The RunInfo port: what all nodes know of the run, and their streams of random numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ddlsim import rng
from ddlsim.errors import DdlsimError

Graph = Sequence[Sequence[int]]
"""Per node its neighbors."""
NO_LIMIT = 2**63 - 1
"""Above all rounds."""


@dataclass(eq=False)
class Run:
    """One run.

    Args:
        seed: of all streams of random numbers.
        rounds: of each node.
        node_cluster: hidden cluster per node, int [N].
        graph_of: round -> per node its neighbors.
        local_steps: mini-batches per epoch -> steps of a round (scenario section `training`).
        synchronous: whether rounds wait for messages.
        has_server: whether there is one more node, the last, that serves the others.
        waits: whether a round of a synchronous run waits for messages, see Algorithm.waits.
        heeds_topology: whether nodes exchange with their neighbors in the graph, see Algorithm.
        has_final_exchange: whether models are exchanged once more after the last round.
        own_starts: whether every node starts from another model.

    Attributes:
        completed_by_all: rounds that somebody has completed, and no node that takes part now has yet to; the engine
            keeps it up to date. A node that was away and comes back may be behind it.
        in_step: whether nodes do their rounds together: in synchronous runs of algorithms that wait, and in either mode
            with a server.
    """

    seed: int
    rounds: int
    node_cluster: np.ndarray
    graph_of: Callable[[int], Graph]
    local_steps: Callable[[int], int]
    synchronous: bool = True
    has_server: bool = False
    waits: bool = True
    heeds_topology: bool = True
    has_final_exchange: bool = False
    own_starts: bool = False
    completed_by_all: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.num_nodes = len(self.node_cluster)
        self.server = self.num_nodes if self.has_server else None
        self.in_step = (self.synchronous and self.waits) or self.has_server
        self._streams: dict[tuple[str, int], np.random.Generator] = {}
        self._turns: dict[int, np.ndarray] = {}
        self._graph: tuple[int, Graph] = (-1, ())

    def rng(self, purpose: str, node: int) -> np.random.Generator:
        """A node's stream of random numbers for one purpose."""
        key = purpose, node
        found = self._streams.get(key)
        if found is None:
            found = self._streams[key] = rng.stream(self.seed, purpose, node)
        return found

    def rng_after(self, purpose: str, node: int, completed: int) -> np.random.Generator:
        """Random numbers for what is looked at after so many rounds, whatever else was looked at before."""
        return rng.stream(self.seed, purpose, node, completed)

    def rounds_taken(self, own_round: int) -> tuple[int, int]:
        """Return the first and the last round whose messages a node takes without waiting.

        Clocks of nodes that do not wait drift apart, so rounds of other nodes set no limit.

        Args:
            own_round: round of the receiver; the number of rounds: the last exchange.
        """
        if own_round >= self.rounds:
            return self.rounds, NO_LIMIT
        return 0, self.rounds - 1 if self.has_final_exchange else NO_LIMIT

    def neighbors(self, round_num: int) -> Graph:
        """The round's graph, per node. The last one is kept, since nodes ask for one round's graph in a row.

        Raises:
            DdlsimError: the algorithm has said that it does not heed it.
        """
        if round_num != self._graph[0]:
            if not (self.heeds_topology or self.has_server):
                raise DdlsimError(
                    "node.peers: the algorithm says that it does not heed the topology. A class of one's own that does "
                    "defines heeds_topology as True; one that does not names whom it hears: node.receive(round_num, "
                    "senders)."
                )
            self._graph = round_num, self.graph_of(round_num)
        return self._graph[1]

    def turns(self, round_num: int) -> np.ndarray:
        """Per node its place in the round's random order, int [N]."""
        if round_num not in self._turns:
            self._turns = {known: turns for known, turns in self._turns.items() if known >= self.completed_by_all}
            self._turns[round_num] = rng.stream(self.seed, "turns", round_num).permutation(self.num_nodes)
        return self._turns[round_num]
