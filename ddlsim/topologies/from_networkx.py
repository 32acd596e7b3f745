"""Graph generators of networkx by name: barabasi_albert_graph, hypercube_graph, random_geometric_graph, ..."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddlsim.foundation.errors import ScenarioError, kind_of
from ddlsim.foundation.registry import Problem
from ddlsim.topologies.random_graphs import RandomTopology

if TYPE_CHECKING:
    import networkx as nx

Argument = bool | int | float | str | None
DRAWN_IN_NO_TIME = 100
"""Nodes."""


@dataclass(frozen=True, kw_only=True)
class FromNetworkx(RandomTopology):
    """A graph generator of networkx by its name, with its arguments; by default one graph for all rounds.

    The generator's argument `n` is the number of nodes and `seed` follows the scenario's, unless `arguments` has them;
    other arguments have the generator's own defaults. The graph must be undirected and have as many nodes as the
    scenario; its nodes are numbered in their order, self-loops are left out.

    Args:
        generator: name of a function of networkx, with or without `_graph` at its end.
        arguments: its arguments by name, such as {m: 2} of barabasi_albert_graph.
        dynamic: whether each round has a new graph, for generators that draw; false: one graph for all rounds.
    """

    generator: str
    arguments: dict[str, Argument] = field(default_factory=dict, hash=False)
    dynamic: bool = False

    def check(self, num_nodes: int) -> None:
        """Raise ScenarioError if there is no such generator, or it does not take the arguments."""
        self._call(num_nodes, 0)

    def problems(self, num_nodes: int, seed: int) -> Iterator[Problem]:
        """Return the problems; graphs that are quick to draw are drawn for the first round."""
        self.check(num_nodes)
        if num_nodes <= DRAWN_IN_NO_TIME:
            self.graph(num_nodes, 0, seed)
        return iter(())

    def graph(self, num_nodes: int, round_num: int, seed: int) -> "nx.Graph":
        """Return the graph of a round.

        Raises:
            ScenarioError: if networkx rejects the arguments, or the graph does not have these nodes.
        """
        return self.drawn(num_nodes, round_num, seed, lambda draw_seed: self._draw(num_nodes, draw_seed))

    def _draw(self, num_nodes: int, seed: int) -> "nx.Graph":
        import networkx as nx

        make, arguments = self._call(num_nodes, seed)
        try:
            found = _made(make, arguments)
        except Exception as error:  # generators check their arguments in many ways
            shown = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
            raise ScenarioError(
                f"topology.arguments: networkx.{make.__name__}({shown}): {type(error).__name__}: {error}"
            ) from error
        if not isinstance(found, nx.Graph) or found.is_directed():
            raise ScenarioError(
                f"topology.generator: networkx.{make.__name__}: expected an undirected graph, got {kind_of(found)}. "
                "Use a generator of undirected graphs."
            )
        if len(found) != num_nodes:
            raise ScenarioError(
                f"topology.arguments: networkx.{make.__name__}: expected a graph of {num_nodes} nodes, got "
                f"{len(found)}. Change the generator's sizes or nodes.clusters."
            )
        numbers = {node: number for number, node in enumerate(found)}
        graph = nx.empty_graph(num_nodes)
        graph.add_edges_from((numbers[a], numbers[b]) for a, b in found.edges() if a != b)
        return graph

    def _call(self, num_nodes: int, seed: int) -> tuple[Any, dict[str, Any]]:
        """Return the generator and its arguments."""
        make = _generator(self.generator)
        parameters = inspect.signature(make).parameters
        own: Mapping[str, Any] = self.arguments
        standard = {key: value for key, value in (("n", num_nodes), ("seed", seed)) if key in parameters}
        arguments = {**standard, **own}
        try:
            inspect.signature(make).bind(**arguments)
        except TypeError as error:
            known = ", ".join(key for key in parameters if key not in ("create_using", "backend", "backend_kwargs"))
            text = f"topology.arguments: networkx.{make.__name__}: {error}. Its arguments: {known}."
            raise ScenarioError(text) from error
        return make, arguments


def _made(make: Any, arguments: dict[str, Any]) -> Any:
    """Return the generator's graph; generators that seed numpy's old generator take no seed of more than 32 bits."""
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
    import difflib

    import networkx as nx

    for each in (name, f"{name}_graph"):
        found = getattr(nx, each, None)
        if callable(found) and getattr(found, "__module__", "").startswith("networkx.generators"):
            return found
    known = [
        key for key, each in vars(nx).items() if getattr(each, "__module__", "").startswith("networkx.generators.")
    ]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise ScenarioError(f"topology.generator: networkx has no graph generator {name}.{hint}")
