"""The port Run: all nodes' knowledge of the run, and their streams of random numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial

import numpy as np
import simpy

from ddlsim.foundation import rng
from ddlsim.foundation.errors import DdlsimError
from ddlsim.topologies.base import among, spanning_tree

Graph = Sequence[Sequence[int]]
"""Neighbors per node."""
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
        local_steps: node, mini-batches per epoch -> steps of a round (scenario section `training`).
        synchronous: whether rounds wait for messages.
        participation: probability with which a node takes part in a round.
        has_server: whether there is one more node, the last, that serves the others.
        waits: whether a round of a synchronous run waits for messages, see Algorithm.waits.
        collective: whether collectives join the rounds of all nodes, see Algorithm.
        uses_topology: whether nodes exchange with their neighbors in the graph, see Algorithm.
        has_final_exchange: whether models are exchanged once more after the last round.
        own_starts: whether every node starts from another model.

    Attributes:
        completed_by_all: rounds that at least one node has completed, and every node that takes part now; the engine
            updates it. A node that returns may be in an earlier round.
        in_step: whether nodes do their rounds together: with an algorithm that waits, in synchronous runs, and in
            either mode with a server or collectives.
        online: returns the nodes that can start a round now, ascending; set by the simulation.
        closed_rounds: rounds that the server has closed.
    """

    seed: int
    rounds: int
    node_cluster: np.ndarray
    graph_of: Callable[[int], Graph]
    local_steps: Callable[[int, int], int]
    synchronous: bool = True
    participation: float = 1.0
    has_server: bool = False
    waits: bool = True
    collective: bool = False
    uses_topology: bool = True
    has_final_exchange: bool = False
    own_starts: bool = False
    completed_by_all: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.num_nodes = len(self.node_cluster)
        self.server = self.num_nodes if self.has_server else None
        self.in_step = self.waits and (self.synchronous or self.has_server or self.collective)
        self.online: Callable[[], list[int]] = list
        self.closed_rounds = 0
        self._clients: dict[int, tuple[int, ...]] = {}
        self._round_ends: dict[int, simpy.Event] = {}
        self._stream = cache(partial(rng.stream, self.seed))
        self._turns: dict[int, np.ndarray] = {}
        self._graph: tuple[int, Graph] = (-1, ())
        self._participants = lru_cache(maxsize=64)(self._draw_participants)
        self._among_participants = lru_cache(maxsize=4)(self._draw_graph)
        self._tree: tuple[Graph, Graph] = ((), ())

    def rng(self, purpose: str, node: int) -> np.random.Generator:
        """A node's stream of random numbers for one purpose."""
        return self._stream(purpose, node)

    def rng_after(self, purpose: str, node: int, completed: int) -> np.random.Generator:
        """Return random numbers for observations after this number of rounds, independent of earlier observations."""
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
        """Return the round's graph, per node; the last one is cached, since nodes ask for one round's graph in a row.

        Raises:
            DdlsimError: the algorithm has declared that it does not use it.
        """
        if round_num != self._graph[0]:
            if not (self.uses_topology or self.has_server):
                text = "expected an algorithm that uses the topology, got uses_topology = False"
                raise DdlsimError(f"node.peers: {text}. Set it to True, or name the senders of node.receive.")
            all_join = self.participation >= 1 or not self.in_step
            graph = self.graph_of(round_num) if all_join else self._among_participants(round_num)
            self._graph = round_num, graph
        return self._graph[1]

    def takes_part(self, node: int, round_num: int) -> bool:
        """Whether a node joins a round; the server and the last exchange have no absentees."""
        if self.participation >= 1 or node == self.server or round_num >= self.rounds:
            return True
        return self._participants(round_num)[node]

    def _draw_participants(self, round_num: int) -> list[bool]:
        draws = rng.stream(self.seed, "participation", round_num).random(self.num_nodes)
        return (draws < self.participation).tolist()

    def _draw_graph(self, round_num: int) -> Graph:
        """Return the round's graph without the edges of nodes that do not join."""
        graph = self.graph_of(round_num)
        return among(graph, [self.takes_part(node, round_num) for node in range(len(graph))])

    def spanning_tree(self, round_num: int) -> Graph:
        """Return the breadth-first spanning tree of the topology's graph, per node, also of nodes that do not join the
        round; cached while the graph is the same.
        """
        graph = self.graph_of(round_num)
        if graph is not self._tree[0]:
            self._tree = graph, spanning_tree(graph)
        return self._tree[1]

    def clients(
        self, round_num: int, count: Callable[[int], int], samples: Callable[[int], int] | None
    ) -> tuple[int, ...]:
        """Return the nodes that a server asks in a round, see Node.clients; the first call of a round draws them."""
        found = self._clients.get(round_num)
        if found is None:
            online = np.array([node for node in self.online() if self.takes_part(node, round_num)], dtype=int)
            if not len(online):
                return ()
            weights = None if samples is None else np.array([samples(node) for node in online.tolist()], dtype=float)
            shares = None if weights is None else weights / weights.sum()
            generator = rng.stream(self.seed, "clients", round_num)
            drawn = generator.choice(online, count(len(online)), replace=False, p=shares)
            found = tuple(sorted(drawn.tolist()))
            self._clients = {known: nodes for known, nodes in self._clients.items() if known >= self.closed_rounds}
            self._clients[round_num] = found
        return found

    def round_end(self, round_num: int, event: Callable[[], simpy.Event]) -> simpy.Event | None:
        """Return the event of the end of a server's round; None if it has ended."""
        if round_num < self.closed_rounds:
            return None
        if round_num not in self._round_ends:
            self._round_ends[round_num] = event()
        return self._round_ends[round_num]

    def close_round(self, round_num: int) -> None:
        """End a server's round."""
        self.closed_rounds = round_num + 1
        if round_num in self._round_ends:
            self._round_ends.pop(round_num).succeed()

    def turns(self, round_num: int) -> np.ndarray:
        """Return each node's position in the round's random order, int [N]."""
        if round_num not in self._turns:
            self._turns = {known: turns for known, turns in self._turns.items() if known >= self.completed_by_all}
            self._turns[round_num] = rng.stream(self.seed, "turns", round_num).permutation(self.num_nodes)
        return self._turns[round_num]
