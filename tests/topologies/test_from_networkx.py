"""Graph generators of networkx by name, and their aliases."""

import networkx as nx
import pytest

from ddlsim.foundation.errors import ScenarioError
from ddlsim.scenario import load
from ddlsim.topologies import TOPOLOGIES
from ddlsim.topologies.base import neighbors
from ddlsim.topologies.named_graphs import FromNetworkx

KEYS = {
    "random_regular": {"degree": 2},
    "erdos_renyi": {"edge_probability": 0.9},
    "networkx": {"generator": "path"},
    "barabasi_albert": {"edges": 2},
    "watts_strogatz": {"degree": 2},
    "edges": {"graphs": [[(node, node + 1) for node in range(7)]]},
}


def make(generator, dynamic=False, connected=True, **arguments):
    return FromNetworkx(generator=generator, arguments=arguments, dynamic=dynamic, connected=connected)


@pytest.mark.parametrize("name", [*TOPOLOGIES, *TOPOLOGIES.aliases])
def test_every_name_gives_graphs_that_are_connected_together(name, tmp_path):
    (tmp_path / "ring.txt").write_text("0 1\n1 2\n2 3\n3 4\n4 5\n5 6\n6 7\n7 0\n")
    meant = TOPOLOGIES.aliases.get(name, name)
    keys = {"path": str(tmp_path / "ring.txt")} if meant == "file" else KEYS.get(meant, {})
    graph = nx.compose_all(TOPOLOGIES[name](**keys).graph(8, round_num, 1).to_undirected() for round_num in range(4))
    assert sorted(graph) == list(range(8)) and nx.is_connected(graph)


@pytest.mark.parametrize(
    ("generator", "arguments", "num_nodes", "edges"),
    [
        ("path_graph", {}, 5, 4),
        ("path", {}, 5, 4),
        ("hypercube_graph", {"n": 3}, 8, 12),  # nodes are tuples, n is not a number of nodes
        ("grid_2d_graph", {"m": 2, "n": 3}, 6, 7),
        ("barabasi_albert_graph", {"m": 2}, 10, 16),
        ("petersen_graph", {}, 10, 15),
        ("random_regular_expander", {"d": 4}, 10, 20),  # accepts only 32-bit seeds
    ],
)
def test_a_generator_is_called_with_its_arguments(generator, arguments, num_nodes, edges):
    graph = make(generator, **arguments).graph(num_nodes, 0, 0)
    assert sorted(graph) == list(range(num_nodes)) and graph.number_of_edges() == edges


def test_seed_and_round_determine_the_graph():
    first, again, other = (neighbors(make("barabasi_albert", m=2), 30, 0, seed) for seed in (1, 1, 2))
    assert first == again != other
    moving = make("barabasi_albert", dynamic=True, m=2)
    assert neighbors(moving, 30, 0, 1) != neighbors(moving, 30, 1, 1)


def test_generators_with_different_arguments_are_distinguished():
    assert neighbors(make("barabasi_albert", m=1), 12, 0, 1) != neighbors(make("barabasi_albert", m=3), 12, 0, 1)


@pytest.mark.parametrize(
    ("topology", "num_nodes", "text"),
    [
        (
            make("barabasi_albrt", m=2),
            8,
            r"has no graph generator barabasi_albrt. Did you mean .*barabasi_albert_graph",
        ),
        (make("shortest_path"), 8, r"has no graph generator shortest_path"),
        (
            make("barabasi_albert"),
            8,
            r"barabasi_albert_graph: missing a required argument: 'm'. Its arguments: n, m, seed",
        ),
        (make("barabasi_albert", m=2, k=2), 8, r"barabasi_albert_graph.* got an unexpected keyword argument"),
        (make("barabasi_albert", m=9), 8, r"barabasi_albert_graph\(n=8, seed=.*, m=9\): NetworkXError"),
        (make("petersen"), 8, r"of 8 nodes, got a Graph of 10 nodes. Change"),
        (make("gn_graph"), 8, r"gn_graph: expected an undirected graph of 8 nodes, got a DiGraph"),
        (make("empty_graph"), 8, r"gave no connected graph"),
    ],
)
def test_wrong_generators_and_arguments_are_errors(topology, num_nodes, text):
    with pytest.raises(ScenarioError, match=text):
        topology.graph(num_nodes, 0, 0)


def test_a_scenario_names_generator_and_arguments():
    scenario = load("scenarios/smoke.yaml", ["topology={name: nx, generator: barabasi_albert, arguments: {m: 2}}"])
    assert scenario.topology == make("barabasi_albert", m=2)
    with pytest.raises(ScenarioError, match=r"topology.arguments: .* missing a required argument"):
        load("scenarios/smoke.yaml", ["topology={name: nx, generator: barabasi_albert}"])
    with pytest.raises(ScenarioError, match=r"graph of 8 nodes, got a Graph of 5"):
        load("scenarios/smoke.yaml", ["topology={name: nx, generator: path, arguments: {n: 5}}"])
