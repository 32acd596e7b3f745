"""Graphs that are the same in all rounds: ring, complete graph, torus, star."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.units import Count, CountOrZero
from ddlsim.topologies.base import StaticTopology

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True, kw_only=True)
class Ring(StaticTopology):
    """Every node is linked with the previous and the next one; the same in all rounds."""

    def graph(self, num_nodes: int, round_num: int, seed: int) -> "nx.Graph":
        """Return the ring 0-1-...-(n-1)-0; two nodes share one edge, one node has none."""
        import networkx as nx

        return nx.cycle_graph(num_nodes) if num_nodes > 2 else nx.path_graph(num_nodes)


@dataclass(frozen=True, kw_only=True)
class Complete(StaticTopology):
    """Every node is linked with every other; the same in all rounds."""

    def graph(self, num_nodes: int, round_num: int, seed: int) -> "nx.Graph":
        """Return the complete graph."""
        import networkx as nx

        return nx.complete_graph(num_nodes)


@dataclass(frozen=True, kw_only=True)
class Torus(StaticTopology):
    """A grid of rows and columns whose borders are joined: four neighbors per node; the same in all rounds.

    Node ids run along the rows. With both sizes `auto` the grid is as square as the number of nodes allows, so a prime
    number of nodes gives a ring.

    Args:
        rows: number of rows, or auto.
        columns: number of columns, or auto; rows x columns is the number of nodes.
    """

    rows: Count | Literal["auto"] = "auto"
    columns: Count | Literal["auto"] = "auto"

    def check(self, num_nodes: int) -> None:
        """Raise ScenarioError if rows x columns is not the number of nodes."""
        self.shape(num_nodes)

    def shape(self, num_nodes: int) -> tuple[int, int]:
        """Return rows and columns for this many nodes.

        Raises:
            ScenarioError: if they do not multiply to `num_nodes`.
        """
        rows, columns = self.rows, self.columns
        if rows == "auto" and columns == "auto":
            rows = next(size for size in range(math.isqrt(num_nodes), 0, -1) if num_nodes % size == 0)
        rows = num_nodes // int(columns) if rows == "auto" else rows
        columns = num_nodes // rows if columns == "auto" else columns
        if rows * columns != num_nodes:
            raise ScenarioError(
                f"topology: torus of rows {self.rows} and columns {self.columns} cannot hold exactly {num_nodes} nodes."
            )
        return rows, columns

    def graph(self, num_nodes: int, round_num: int, seed: int) -> "nx.Graph":
        """Return the torus; a side of length 2 gives one edge, not two."""
        import networkx as nx

        rows, columns = self.shape(num_nodes)
        grid = nx.grid_2d_graph(rows, columns, periodic=True)
        return nx.relabel_nodes(grid, {(row, column): row * columns + column for row, column in grid})


@dataclass(frozen=True, kw_only=True)
class Star(StaticTopology):
    """One center node is linked with all others, and they only with it; the same in all rounds.

    Args:
        center: id of the center node.
    """

    center: CountOrZero = 0

    def check(self, num_nodes: int) -> None:
        """Raise ScenarioError if there is no such node."""
        if self.center >= num_nodes:
            raise ScenarioError(f"topology.center: node ids are 0..{num_nodes - 1}, got {self.center}.")

    def graph(self, num_nodes: int, round_num: int, seed: int) -> "nx.Graph":
        """Return the star."""
        import networkx as nx

        self.check(num_nodes)
        graph = nx.empty_graph(num_nodes)
        nx.add_star(graph, (self.center, *(node for node in range(num_nodes) if node != self.center)))
        return graph
