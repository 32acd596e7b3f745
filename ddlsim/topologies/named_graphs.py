"""Named graphs: ring, complete graph, torus, star, tree (the same in all rounds), and generators of networkx."""

import inspect
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import networkx as nx

from ddlsim.foundation.errors import ScenarioError, did_you_mean, kind_of
from ddlsim.foundation.registry import Problem
from ddlsim.foundation.units import Count, CountOrZero
from ddlsim.topologies.base import StaticTopology
from ddlsim.topologies.random_graphs import RandomTopology


@dataclass(frozen=True, kw_only=True)
class Ring(StaticTopology):
    """Every node is linked with the previous and the next one; the same in all rounds."""

    def graph(self, num_nodes: int, round_num: int, seed: int) -> nx.Graph:
        """Return the ring 0-1-...-(n-1)-0; two nodes share one edge, one node has none."""

        return nx.cycle_graph(num_nodes) if num_nodes > 2 else nx.path_graph(num_nodes)


@dataclass(frozen=True, kw_only=True)
class Complete(StaticTopology):
    """Every node is linked with every other; the same in all rounds."""

    def graph(self, num_nodes: int, round_num: int, seed: int) -> nx.Graph:
        """Return the complete graph."""

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
            text = f"torus of rows {self.rows} and columns {self.columns} cannot hold exactly {num_nodes} nodes"
            raise ScenarioError(f"topology: {text}.")
        return rows, columns

    def graph(self, num_nodes: int, round_num: int, seed: int) -> nx.Graph:
        """Return the torus; a side of length 2 gives one edge, not two."""

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

    def graph(self, num_nodes: int, round_num: int, seed: int) -> nx.Graph:
        """Return the star."""

        self.check(num_nodes)
        graph = nx.empty_graph(num_nodes)
        nx.add_star(graph, (self.center, *(node for node in range(num_nodes) if node != self.center)))
        return graph


@dataclass(frozen=True, kw_only=True)
class Tree(StaticTopology):
    """A balanced tree with root node 0; every node but the last ones has the same number of children.

    Args:
        branching: children per node; 1: a chain, 2: a binary tree.
    """

    branching: Count = 2

    def graph(self, num_nodes: int, round_num: int, seed: int) -> nx.Graph:
        """Return the tree, numbered level by level: `networkx.full_rary_tree`."""

        return nx.full_rary_tree(self.branching, num_nodes)


Argument = bool | int | float | str | None
MAX_CHECKED_NODES = 100
"""Maximum number of nodes for which the check of a scenario draws the graph."""


@dataclass(frozen=True, kw_only=True)
class FromNetworkx(RandomTopology):
    """A graph generator of networkx by its name, with its arguments; by default one graph for all rounds.

    The generator's argument `n` is the number of nodes and `seed` follows the scenario's, unless `arguments` has them;
    other arguments have the generator's defaults. The graph must be undirected and have as many nodes as the scenario;
    its nodes are numbered in their order, and self-loops are removed.

    Args:
        generator: name of a function of networkx, with or without `_graph` at its end.
        arguments: its arguments by name, such as {m: 2} of barabasi_albert_graph.
        dynamic: whether each round has a new graph, for generators that draw; false: one graph for all rounds.
    """

    generator: str
    arguments: dict[str, Argument] = field(default_factory=dict, hash=False)
    dynamic: bool = False

    def check(self, num_nodes: int) -> None:
        """Raise ScenarioError if the generator does not exist or rejects the arguments."""
        self._call(num_nodes, 0)

    def problems(self, num_nodes: int, seed: int) -> Iterator[Problem]:
        """Return the problems, with a draw of the first round's graph if there are few nodes."""
        self.check(num_nodes)
        if num_nodes <= MAX_CHECKED_NODES:
            self.graph(num_nodes, 0, seed)
        return iter(())

    def graph(self, num_nodes: int, round_num: int, seed: int) -> nx.Graph:
        """Return the graph of a round.

        Raises:
            ScenarioError: if networkx rejects the arguments, or the graph does not have these nodes.
        """
        return self.drawn(num_nodes, round_num, seed, lambda draw_seed: self._draw(num_nodes, draw_seed))

    def _draw(self, num_nodes: int, seed: int) -> nx.Graph:

        make, arguments = self._call(num_nodes, seed)
        try:
            found = _generated(make, arguments)
        except Exception as error:  # generators check their arguments in many ways
            shown = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
            text = f"networkx.{make.__name__}({shown}): {type(error).__name__}: {error}"
            raise ScenarioError(f"topology.arguments: {text}") from error
        if not isinstance(found, nx.Graph) or found.is_directed() or len(found) != num_nodes:
            got = f"{kind_of(found)}{f' of {len(found)} nodes' if isinstance(found, nx.Graph) else ''}"
            text = f"networkx.{make.__name__}: expected an undirected graph of {num_nodes} nodes, got {got}"
            raise ScenarioError(f"topology.arguments: {text}. Change the generator, its sizes or nodes.clusters.")
        numbers = {node: number for number, node in enumerate(found)}
        graph = nx.empty_graph(num_nodes)
        graph.add_edges_from((numbers[a], numbers[b]) for a, b in found.edges() if a != b)
        return graph

    def _call(self, num_nodes: int, seed: int) -> tuple[Any, dict[str, Any]]:
        """Return the generator and its arguments."""
        make = _generator(self.generator)
        parameters = inspect.signature(make).parameters
        standard = {key: value for key, value in (("n", num_nodes), ("seed", seed)) if key in parameters}
        arguments: dict[str, Any] = {**standard, **self.arguments}
        try:
            inspect.signature(make).bind(**arguments)
        except TypeError as error:
            known = ", ".join(key for key in parameters if key not in ("create_using", "backend", "backend_kwargs"))
            text = f"topology.arguments: networkx.{make.__name__}: {error}. Its arguments: {known}."
            raise ScenarioError(text) from error
        return make, arguments


def _generated(make: Any, arguments: dict[str, Any]) -> Any:
    """Return the generator's graph; generators with numpy's legacy random numbers need a seed of at most 32 bits."""
    try:
        return make(**arguments)
    except ValueError as error:
        if "Seed must be between" not in str(error):
            raise
        return make(**arguments | {"seed": arguments["seed"] % 2**32})


def _generator(name: str) -> Any:
    """Return the function of networkx.

    Raises:
        ScenarioError: if networkx has no generator of this name.
    """

    for each in (name, f"{name}_graph"):
        found = getattr(nx, each, None)
        if callable(found) and getattr(found, "__module__", "").startswith("networkx.generators"):
            return found
    known = [key for key, one in vars(nx).items() if getattr(one, "__module__", "").startswith("networkx.generators.")]
    raise ScenarioError(f"topology.generator: networkx has no graph generator {name}.{did_you_mean(name, known)}")
