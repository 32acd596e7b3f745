"""Facts that a node knows about itself and the run."""

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from ddlsim.foundation import rng as random_streams
from ddlsim.node.arguments import check_has_samples
from ddlsim.node.ports import Ports
from ddlsim.topologies.base import Receivers


class NodeInfo:
    """Facts that a node knows about itself and the run.

    Args:
        node_id: 0 .. num_nodes-1; the server, if there is one, is num_nodes.
        ports: the rest of the run.
    """

    def __init__(self, node_id: int, ports: Ports):
        self.id = node_id
        self.is_server = node_id == ports.run.server
        self._clock, self._compute, self._run = ports.clock, ports.compute, ports.run
        self._num_members = ports.run.num_nodes + (ports.run.server is not None)
        self._local_steps: int | None = None  # the same in all rounds
        self._peers: tuple[int, Sequence[int]] = (-1, ())  # of the last requested round

    @property
    def now_s(self) -> float:
        """Simulated seconds since the start."""
        return self._clock.now_s

    @property
    def num_nodes(self) -> int:
        """Number of nodes, without the server."""
        return self._run.num_nodes

    @property
    def seed(self) -> int:
        """The scenario's seed, the same on every node."""
        return self._run.seed

    @property
    def rounds(self) -> int:
        """Number of rounds of the run."""
        return self._run.rounds

    @property
    def synchronous(self) -> bool:
        """Whether rounds wait for messages (mode `sync`)."""
        return self._run.synchronous

    @property
    def local_steps(self) -> int:
        """This node's mini-batch steps per round (training.local_steps, or training.epochs over its samples)."""
        if self._local_steps is None:
            check_has_samples(self.id, self.is_server, "local_steps")
            self._local_steps = self._run.local_steps(self.id, self._compute.steps_per_epoch(self.id))
        return self._local_steps

    @property
    def num_samples(self) -> int:
        """Number of this node's training samples."""
        check_has_samples(self.id, self.is_server, "num_samples")
        return self._compute.num_samples(self.id)

    @property
    def steps_per_epoch(self) -> int:
        """Mini-batches in one pass over this node's samples."""
        check_has_samples(self.id, self.is_server, "steps_per_epoch")
        return self._compute.steps_per_epoch(self.id)

    @property
    def true_cluster(self) -> int:
        """Hidden cluster of this node; for oracle baselines only."""
        return int(self._run.node_cluster[self.id])

    def rng(self, purpose: str) -> np.random.Generator:
        """Return this node's stream of random numbers for one purpose."""
        return self._run.rng(purpose, self.id)

    def stream_seed(self, purpose: str, *, own: bool = True) -> int:
        """Return an integer seed for one purpose: this node's own, or one shared by all nodes."""
        return random_streams.stream_seed(self._run.seed, purpose, *((self.id,) if own else ()))

    def random_peer(self, round_num: int) -> tuple[int, ...]:
        """Return one of this round's peers, drawn uniformly; empty if there are no peers."""
        peers = self.peers(round_num)
        # The same draw as `choice`, which takes four times as long because it makes an array of the peers.
        return (peers[int(self.rng("random peer").integers(len(peers)))],) if len(peers) else ()

    def senders(self, round_num: int) -> Sequence[int]:
        """Return the nodes that send to this node in the topology's graph of this round, ascending: its peers, unless
        the graph is directed.
        """
        graph = self._run.neighbors(round_num)
        return graph.senders[self.id] if isinstance(graph, Receivers) else self.peers(round_num)

    def divide(self, amount: float, round_num: int) -> dict[int, float]:
        """Divide an amount between this node and its peers of the round; return their parts by node id.

        The parts are equal, or follow the weights of the topology's edges.
        """
        peers, graph = self.peers(round_num), self._run.neighbors(round_num)
        if not isinstance(graph, Receivers) or not graph.weighted:
            return dict.fromkeys((*peers, self.id), amount / (1 + len(peers)))
        parts = {peer: graph.weights[peer][self.id] * amount for peer in peers}
        return {**parts, self.id: amount - math.fsum(parts.values())}

    def peers(self, round_num: int) -> Sequence[int]:
        """Return the neighbors in the topology's graph of this round, ascending; in a directed graph the receivers."""
        if round_num != self._peers[0]:
            self._peers = round_num, self._run.neighbors(round_num)[self.id]
        return self._peers[1]

    def tree_peers(self, round_num: int) -> Sequence[int]:
        """Return the node's neighbors in the breadth-first spanning tree of the round's graph from node 0, ascending;
        of a graph in several pieces, one tree per piece.
        """
        return self._run.spanning_tree(round_num)[self.id]

    def clients(self, round_num: int, count: Callable[[int], int], *, by_samples: bool = False) -> Sequence[int]:
        """Return the nodes that a server asks in a round, ascending: the same for all that call this in the round.

        They are drawn at the first call, among the nodes that are then online and can start a round; empty without
        such nodes. No message announces them.

        Args:
            round_num: the round.
            count: number of such nodes -> number to draw, at most as many.
            by_samples: whether nodes are drawn in proportion to their training samples, one after the other; false:
                uniformly.
        """
        return self._run.clients(round_num, count, self._compute.num_samples if by_samples else None)

    @property
    def online(self) -> Sequence[int]:
        """Nodes that are online now and have rounds left, ascending, without the server; for servers."""
        return self._run.online()

    @cached_property
    def clusters(self) -> dict[int, tuple[int, ...]]:
        """Nodes of each hidden cluster, ascending; for algorithms that are given the clusters."""
        of_node = self._run.node_cluster
        return {int(one): tuple(np.flatnonzero(of_node == one).tolist()) for one in np.unique(of_node)}

    def cluster_members(self, cluster: int) -> tuple[int, ...]:
        """Return the other nodes of a cluster, ascending; for oracle baselines only."""
        return tuple(peer for peer in self.others() if self._run.node_cluster[peer] == cluster)

    def others(self) -> tuple[int, ...]:
        """Return all other nodes, ascending."""
        return tuple(peer for peer in range(self._run.num_nodes) if peer != self.id)
