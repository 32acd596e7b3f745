from collections import Counter
from dataclasses import dataclass

import networkx as nx
import numpy as np
import pytest

from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.rng import stream_seed
from ddlsim.topologies import TOPOLOGIES
from ddlsim.topologies.base import StaticTopology, neighbors
from ddlsim.topologies.random_graphs import is_connected, random_regular


def make(name, **keys):
    return TOPOLOGIES[name](**keys)


EVERY = {
    "random_regular": {"degree": 4},
    "ring": {},
    "complete": {},
    "erdos_renyi": {"edge_probability": 0.4},
    "watts_strogatz": {"degree": 4, "rewire_probability": 0.2},
    "barabasi_albert": {"edges": 2},
    "torus": {},
    "star": {},
    "networkx": {"generator": "cycle_graph"},
    "tree": {},
}
IN_FINITE_TIME = {"exponential", "one_peer_exponential", "base_k", "hypercube", "random_matching"}
GRAPH, DICYCLE = "networkx.Graph", nx.DiGraph([(0, 1), (1, 2), (2, 0)])


def write(path, text):
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("name", EVERY)
def test_every_topology_is_a_connected_symmetric_graph_without_loops(name):
    table = neighbors(make(name, **EVERY[name]), 12, 3, 7)
    assert len(table) == 12
    assert all(node not in peers and list(peers) == sorted(set(peers)) for node, peers in enumerate(table))
    assert all(node in table[peer] for node, peers in enumerate(table) for peer in peers)
    assert nx.is_connected(nx.Graph([(node, peer) for node, peers in enumerate(table) for peer in peers]))


def test_the_table_lists_every_topology_but_those_of_other_tests():
    assert set(TOPOLOGIES) == {*EVERY, *IN_FINITE_TIME, "file", "edges"}


def test_random_regular_gives_every_node_its_degree_in_every_round():
    for round_num in range(20):
        table = neighbors(make("random_regular", degree=4, dynamic=True), 32, round_num, 0)
        assert {len(peers) for peers in table} == {4}


@pytest.mark.parametrize(("degree", "num_nodes"), [(62, 64), (60, 64), (195, 200), (33, 34)])
def test_dense_regular_graphs_are_complements_of_sparse_ones(degree, num_nodes):
    """Drawing edge by edge would almost never give these graphs."""
    topology = make("random_regular", degree=degree, dynamic=True)
    tables = [neighbors(topology, num_nodes, round_num, 0) for round_num in range(3)]
    assert all(len(peers) == degree and node not in peers for table in tables for node, peers in enumerate(table))
    assert all(node in table[peer] for table in tables for node, peers in enumerate(table) for peer in peers)
    assert len(set(tables)) == (1 if degree == num_nodes - 1 else 3)


def test_dynamic_topology_draws_a_graph_per_round_and_repeats_with_the_seed():
    topology = make("random_regular", degree=4, dynamic=True)
    rounds = [neighbors(topology, 16, round_num, 5) for round_num in range(4)]
    assert len(set(rounds)) == 4
    assert topology.graph(16, 2, 5).edges == make("random_regular", degree=4, dynamic=True).graph(16, 2, 5).edges
    assert neighbors(topology, 16, 0, 6) != rounds[0]


def test_a_large_graph_and_its_neighbors_are_the_same_draw():
    topology = make("random_regular", degree=4)
    graph, table = topology.graph(2002, 1, 5), topology.neighbors(2002, 1, 5)
    assert [tuple(sorted(graph.adj[node])) for node in range(2002)] == list(table)


def test_static_topology_is_one_graph_for_all_rounds():
    topology = make("random_regular", degree=4)
    assert neighbors(topology, 16, 0, 5) == neighbors(topology, 16, 9, 5)


def test_topology_seed_fixes_the_graphs_for_any_scenario_seed():
    topology = make("random_regular", degree=4, seed=1234, dynamic=True)
    assert neighbors(topology, 16, 3, 0) == neighbors(topology, 16, 3, 1)


def test_disconnected_draws_are_drawn_again_until_connected():
    # A random 2-regular graph on 30 nodes is mostly several cycles; connected ones are a single cycle.
    for round_num in range(10):
        graph = make("random_regular", degree=2, dynamic=True).graph(30, round_num, 0)
        assert nx.is_connected(graph)
    split = [make("random_regular", degree=2, connected=False, dynamic=True).graph(30, r, 0) for r in range(10)]
    assert not all(nx.is_connected(graph) for graph in split)


def test_hopelessly_sparse_graph_ends_with_a_clear_error():
    with pytest.raises(ScenarioError, match=r"100 draws .* no connected graph"):
        make("erdos_renyi", edge_probability=0.001).graph(30, 0, 0)


@pytest.mark.parametrize(
    ("name", "keys", "num_nodes", "text"),
    [
        ("random_regular", {"degree": 3}, 5, "must be even"),
        ("random_regular", {"degree": 6}, 6, r"below the number of nodes \(6\), got 6"),
        ("random_regular", {"degree": 1}, 4, "not connected"),
        ("watts_strogatz", {"degree": 3}, 9, "must be even"),
        ("watts_strogatz", {"degree": 4}, 4, "below the number of nodes"),
        ("torus", {"rows": 3, "columns": 3}, 8, "cannot hold exactly 8 nodes"),
        ("torus", {"rows": 3}, 8, "cannot hold exactly 8 nodes"),
        ("star", {"center": 4}, 4, r"0\.\.3, got 4"),
    ],
)
def test_limits_between_keys_and_nodes_are_scenario_errors(name, keys, num_nodes, text):
    topology = make(name, **keys)
    with pytest.raises(ScenarioError, match=text):
        topology.check(num_nodes)
    with pytest.raises(ScenarioError, match=text):
        topology.graph(num_nodes, 0, 0)


def test_degree_one_without_connection_is_a_matching():
    table = neighbors(make("random_regular", degree=1, connected=False), 8, 0, 0)
    assert all(len(peers) == 1 for peers in table)


def test_ring_links_each_node_to_its_two_neighbors():
    assert neighbors(make("ring"), 4, 0, 0) == ((1, 3), (0, 2), (1, 3), (0, 2))


def test_small_rings_have_no_loops():
    assert neighbors(make("ring"), 1, 0, 0) == ((),)
    assert neighbors(make("ring"), 2, 0, 0) == ((1,), (0,))


def test_star_links_all_to_the_center():
    assert neighbors(make("star", center=1), 3, 0, 0) == ((1,), (0, 2), (1,))


def test_torus_numbers_its_nodes_along_the_rows():
    table = neighbors(make("torus", rows=3, columns=4), 12, 0, 0)
    assert table[0] == (1, 3, 4, 8)


def test_auto_torus_is_as_square_as_possible():
    assert make("torus").shape(12) == (3, 4)
    assert make("torus").shape(7) == (1, 7)
    assert make("torus", columns=6).shape(12) == (2, 6)


def test_file_edge_list_keeps_link_attributes(tmp_path):
    path = write(tmp_path / "net.txt", "# a path\n0 1 100 5\n1 2 {'bandwidth_mbps': 10}\n")
    graph = make("file", path=path).graph(3, 0, 0)
    assert graph.edges[0, 1] == {"bandwidth_mbps": 100.0, "latency_ms": 5.0}
    assert graph.edges[1, 2] == {"bandwidth_mbps": 10}
    assert neighbors(make("file", path=path), 3, 4, 0) == ((1,), (0, 2), (1,))


def test_first_line_with_one_number_gives_the_number_of_nodes(tmp_path):
    topology = make(
        "file", path=write(tmp_path / "net.edges", "# of DecentralizePy\n4\n0 1\n1 0\n1 2\n"), connected=False
    )
    assert neighbors(topology, 4, 0, 0) == ((1,), (0, 2), (1,), ())
    with pytest.raises(ScenarioError, match=r"exactly the nodes 0\.\.4; it lacks 4"):
        topology.check(5)


def test_file_graphml_keeps_link_attributes(tmp_path):
    source = nx.cycle_graph(4)
    nx.set_edge_attributes(source, 25.0, "bandwidth_mbps")
    nx.write_graphml(source, tmp_path / "net.graphml")
    graph = make("file", path=str(tmp_path / "net.graphml"), format="graphml").graph(4, 0, 0)
    assert sorted(graph) == [0, 1, 2, 3]
    assert graph.edges[3, 0]["bandwidth_mbps"] == 25.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1\n1 3\n", r"exactly the nodes 0\.\.2; it lacks 2 and has 3"),
        ("0,1\n1,2\n2,0\n", r"net\.txt:1: expected 'node node', .* got '0,1'"),
        ("0 1\n1 2 fast\n", r"net\.txt:2: expected 'node node', "),
        ("0 1\n1 2\n2 2\n", "links node 2 to itself"),
        ("0 1\n3\n1 2\n", r"net\.txt:2: expected 'node node', .* got '3'"),
        ("2\n0 1\n1 2\n", r"net\.txt:3: expected nodes 0\.\.1, as stated in the first line, got '1 2'"),
        (
            "0 1 100 5\n1 2 9 9\n1 0 10 5\n",
            r"net\.txt:3: .* the edge 1 0 .* before, \(100\.0, 5\.0\), got \(10\.0, 5\.0\)",
        ),
        ("0 1 100 5\n1 0\n1 2\n", r"net\.txt:2: .* got \(None, None\)"),
    ],
)
def test_error_on_an_edge_list_names_the_line(tmp_path, text, message):
    with pytest.raises(ScenarioError, match=message):
        make("file", path=write(tmp_path / "net.txt", text)).check(3)


def test_repeated_edges_are_accepted_if_equal(tmp_path):
    path = write(tmp_path / "net.txt", "0 1 100 5\n1 0 100 5\n")
    assert make("file", path=path).graph(2, 0, 0).edges[0, 1] == {"bandwidth_mbps": 100.0, "latency_ms": 5.0}
    both = nx.MultiGraph([(0, 1, {"latency_ms": 5.0}), (0, 1, {"latency_ms": 5.0}), (1, 2, {})])
    nx.write_graphml(both, tmp_path / "alike.graphml")
    found = make("file", path=str(tmp_path / "alike.graphml"), format="graphml").graph(3, 0, 0)
    assert sorted(found.edges) == [(0, 1), (1, 2)] and not found.is_multigraph()
    both.add_edge(0, 1, latency_ms=6.0)
    nx.write_graphml(both, tmp_path / "unlike.graphml")
    with pytest.raises(ScenarioError, match=r"unlike\.graphml: .* the edge 0 1 "):
        make("file", path=str(tmp_path / "unlike.graphml"), format="graphml").check(3)


def test_file_in_two_pieces_is_an_error_if_connected(tmp_path):
    path = write(tmp_path / "net.txt", "0 1\n2 3\n")
    with pytest.raises(ScenarioError, match="in 2 pieces"):
        make("file", path=path).check(4)
    make("file", path=path, connected=False).check(4)


def test_missing_or_directed_or_broken_files_are_scenario_errors(tmp_path):
    with pytest.raises(ScenarioError, match="no file"):
        make("file", path=str(tmp_path / "none.txt")).check(2)
    nx.write_graphml(nx.DiGraph([(0, 1)]), tmp_path / "directed.graphml")
    with pytest.raises(ScenarioError, match="is directed"):
        make("file", path=str(tmp_path / "directed.graphml"), format="graphml").check(2)
    with pytest.raises(ScenarioError, match="not a GraphML file"):
        make("file", path=write(tmp_path / "broken", "<graphml"), format="graphml").check(2)


@pytest.mark.parametrize("degree", [1, 2, 3, 4, 8])
def test_large_regular_graphs_are_simple_symmetric_and_regular(degree):
    graph = random_regular(degree, 3_000, seed=degree)
    own = nx.Graph((node, peer) for node, peers in enumerate(graph) for peer in peers)
    assert len(graph) == own.number_of_nodes() == 3_000
    assert own.number_of_edges() == 3_000 * degree // 2
    assert all(list(peers) == sorted(set(peers)) and node not in peers for node, peers in enumerate(graph))
    assert all(node in graph[peer] for node, peers in enumerate(graph) for peer in peers)
    assert is_connected(graph) == nx.is_connected(own)


@pytest.mark.parametrize("seed", range(30))
def test_connectedness_of_large_graphs_agrees_with_networkx(seed):
    graph = random_regular(2, 40, seed)
    assert is_connected(graph) == nx.is_connected(nx.Graph((i, j) for i, peers in enumerate(graph) for j in peers))


def test_pairings_of_four_nodes_are_equally_likely():
    found = Counter(tuple(random_regular(1, 4, seed)) for seed in range(600))
    assert len(found) == 3 and min(found.values()) > 150


def test_topologies_of_many_nodes_are_drawn_by_pairing_and_follow_seed_and_round():
    topology = make("random_regular", degree=3, dynamic=True)
    drawn = [neighbors(topology, 20_002, round_num, 5) for round_num in (0, 1)]
    assert drawn[0] is neighbors(topology, 20_002, 0, 5)
    assert len(drawn[0]) == 20_002 and len(drawn[0][20_001]) == 3
    assert list(drawn[0]) != list(drawn[1])
    again = random_regular(3, 20_002, stream_seed(5, "topology", 1))
    assert list(again) == list(drawn[1])


def test_node_ids_of_numpy_become_plain_ones():
    class Drawn(StaticTopology):
        def graph(self, num_nodes, round_num, seed):
            return nx.Graph([(0, np.int64(1)), (np.int64(1), 2)])

    assert {type(peer) for peers in Drawn().neighbors(3, 0, 0) for peer in peers} == {int}


@dataclass(frozen=True, kw_only=True)
class Listed(StaticTopology):
    """A topology with a key that cannot be hashed."""

    edges: list

    def graph(self, num_nodes, round_num, seed):
        return nx.Graph(self.edges)


def test_unhashable_topology_is_an_error_with_a_cure():
    with pytest.raises(ScenarioError, match=r"topology: Listed cannot be hashed .* frozen dataclass"):
        neighbors(Listed(edges=[(0, 1)]), 2, 0, 0)


@dataclass(frozen=True, kw_only=True)
class Drawn(StaticTopology):
    """A user-defined graph."""

    def graph(self, num_nodes, round_num, seed):
        return DRAWN[-1]


DRAWN: list = []


@pytest.mark.parametrize(
    ("drawn", "got"),
    [
        (None, "a NoneType"),
        ([(0, 1)], "a list"),
        (nx.Graph([("a", "b"), ("b", "c")]), "a Graph of 3 nodes (a, b and c)"),
        (nx.Graph([(1, 2), (2, 3)]), "a Graph of 3 nodes (1, 2 and 3)"),
        (nx.path_graph(2), "a Graph of 2 nodes (0 and 1)"),
        (nx.path_graph(4), "a Graph of 4 nodes (0, 1, 2 and 1 more)"),
    ],
)
def test_graph_with_other_nodes_is_refused(drawn, got):
    DRAWN.append(drawn)
    with pytest.raises(ScenarioError) as raised:
        Drawn().neighbors(3, 0, 0)
    expected = f"topology: graph of Drawn returns {got}, expected a networkx.Graph of the nodes 0..2."
    assert str(raised.value) == expected


@pytest.mark.parametrize(
    ("drawn", "expected"),
    [
        (DICYCLE, f"returns a DiGraph, expected an undirected {GRAPH}. Set `directed = True` in the class."),
        (nx.MultiGraph([(0, 1), (0, 1), (1, 2)]), f"returns a MultiGraph, expected an undirected {GRAPH}."),
        (nx.Graph([(0, 1), (1, 2), (2, 2)]), "returns a graph with self-loops, expected none."),
    ],
)
def test_directed_links_and_self_loops_are_errors(drawn, expected):
    DRAWN.append(drawn)
    with pytest.raises(ScenarioError) as raised:
        Drawn().neighbors(3, 0, 0)
    assert str(raised.value) == f"topology: graph of Drawn {expected}"
