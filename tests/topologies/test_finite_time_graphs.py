"""Consensus on directed and changing graphs: exact after the known number of rounds, in matrices and in runs."""

from dataclasses import dataclass

import networkx as nx
import numpy as np
import pytest
from quadratic_runs import quadratic_run

from ddlsim.aggregation.base import metropolis_hastings
from ddlsim.foundation.errors import ScenarioError
from ddlsim.scenario import from_mapping
from ddlsim.scenario.unused_keys import unused_key_notes
from ddlsim.topologies import TOPOLOGIES
from ddlsim.topologies.base import Receivers, StaticTopology, mixing_weights, neighbors
from ddlsim.topologies.files import edges_of
from ddlsim.topologies.finite_time_graphs import base_graphs

NODES = 6  # of quadratic_run


def matrix(topology, num_nodes, round_num):
    """Return the mixing matrix of a round."""
    graph, found = neighbors(topology, num_nodes, round_num, 0), np.zeros((num_nodes, num_nodes))
    for node in range(num_nodes):
        if isinstance(graph, Receivers):
            row = mixing_weights(node, graph, graph.senders[node])
        else:
            row = metropolis_hastings(node, graph, graph[node])
        found[node, list(row)] = list(row.values())
    return found


def mixed(topology, num_nodes, rounds):
    """Return the product of the matrices of the first rounds."""
    product = np.eye(num_nodes)
    for round_num in range(rounds):
        product = matrix(topology, num_nodes, round_num) @ product
    return product


@pytest.mark.parametrize("name", ["one_peer_exponential", "hypercube, dynamic"])
def test_powers_of_two_reach_the_exact_mean_after_log2_rounds(name):
    name, *dynamic = name.split(", ")
    topology = TOPOLOGIES[name](**dict.fromkeys(dynamic, True))
    for power in range(1, 7):
        assert (mixed(topology, 2**power, power) == 1 / 2**power).all()
        assert not (mixed(topology, 2**power, power - 1) == 1 / 2**power).all()
        assert {len(receivers) for receivers in neighbors(topology, 2**power, 1, 0)} == {1}


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_base_k_graphs_reach_the_mean_with_at_most_k_peers(k):
    for num_nodes in range(k + 1, 40):
        topology = TOPOLOGIES["base_k"](max_degree=k)
        rounds = len(base_graphs(num_nodes, k))
        assert rounds <= 2 * np.log(num_nodes) / np.log(k + 1) + 2  # theorem 1 of the paper
        assert mixed(topology, num_nodes, rounds) == pytest.approx(np.full((num_nodes,) * 2, 1 / num_nodes))
        assert np.abs(mixed(topology, num_nodes, rounds - 1) - 1 / num_nodes).max() > 1e-6
        for round_num in range(rounds):
            found = matrix(topology, num_nodes, round_num)
            assert (found == found.T).all() and found.sum(0) == pytest.approx(1)
            assert np.count_nonzero(found, axis=1).max() <= k + 1


def test_lengths_of_base_2_sequences_by_hand():
    # 5 = 4 + 1: two rounds within the four, one between the sets, two within the four; 6 = 2 x 3 is shorter than 4 + 2
    assert [len(base_graphs(n, 1)) for n in (2, 3, 4, 5, 6, 8)] == [1, 3, 2, 5, 4, 3]


def test_static_exponential_graph_has_equal_weights_on_log2_hops():
    found = matrix(TOPOLOGIES["exponential"](), 6, 0)
    assert sorted(np.flatnonzero(found[0])) == [0, 2, 4, 5]  # receives from those 1, 2 and 4 places before
    assert found[found > 0] == pytest.approx([1 / 4] * 24) and found.sum(0) == pytest.approx(1)


def test_random_matchings_pair_all_nodes_and_differ_by_round():
    topology = TOPOLOGIES["random_matching"]()
    tables = [neighbors(topology, 9, round_num, 0) for round_num in range(5)]
    assert all(sorted(map(len, table)) == [0] + [1] * 8 for table in tables)
    assert all(table[table[node][0]] == (node,) for table in tables for node in range(9) if table[node])
    assert len(set(tables)) == 5


@pytest.mark.parametrize("algorithm", ["dpsgd", "dfedavgm", "gtsgd", "sgp"])
def test_runs_reach_the_exact_mean_after_a_finite_time(algorithm):
    models, *_ = quadratic_run(
        "topology={name: base_k}", f"algorithm={{name: {algorithm}}}", "rounds=4", rate=0.0, starts=np.eye(NODES)
    )
    assert models == pytest.approx(np.full((NODES, NODES), 1 / NODES), abs=1e-15)


@dataclass(frozen=True, kw_only=True)
class OneWayCycle(StaticTopology):
    """Every node sends to the next one."""

    directed = True

    def graph(self, num_nodes, round_num, seed):
        return nx.cycle_graph(num_nodes, create_using=nx.DiGraph)


def test_user_defined_directed_graphs_carry_messages_one_way():
    keys = (f"topology={{name: {__file__}:OneWayCycle}}", "rounds=1")
    models, *_ = quadratic_run(*keys, "algorithm={name: dpsgd}", rate=0.0, starts=np.eye(NODES))
    assert models == pytest.approx((np.eye(NODES) + np.roll(np.eye(NODES), 1, axis=0)) / 2)
    models, *_ = quadratic_run(*keys, "algorithm={name: el}", rate=0.0, starts=np.eye(NODES))
    assert models == pytest.approx((np.eye(NODES) + np.roll(np.eye(NODES), 1, axis=0)) / 2)


def scenario(topology, algorithm="dpsgd", **keys):
    return from_mapping(
        {
            "rounds": 2,
            "nodes": {"clusters": [4]},
            "learning": "none",
            "algorithm": {"name": algorithm},
            "model": {"name": "linear"},
            "data": {"name": "fashion-mnist-mini"},
            "training": {"learning_rate": 1.0},
            "topology": topology,
            **keys,
        }
    )


@pytest.mark.parametrize("algorithm", ["adpsgd", "d2"])
def test_directed_graph_is_an_error_for_algorithms_with_exchanges(algorithm):
    text = f"topology: this topology is directed, and {algorithm} needs a graph in which both nodes of an edge exchange"
    with pytest.raises(ScenarioError, match=text):
        scenario({"name": "exponential"}, algorithm)


def test_mixing_needs_a_doubly_stochastic_directed_graph():
    one_way = {"name": "edges", "directed": True, "graphs": [[[0, 1], [1, 2], [2, 3], [3, 0], [0, 2]]]}
    with pytest.raises(ScenarioError, match="dpsgd needs mixing weights that sum to 1 over the senders of each node"):
        scenario(one_way)
    scenario(one_way, "sgp")


def test_networkx_graphs_repeat_after_the_last_round():
    pairs = [nx.Graph([(0, 1), (2, 3)]), nx.Graph([(0, 2), (1, 3)])]
    topology = edges_of(pairs)
    assert topology.dynamic and [neighbors(topology, 4, r, 0)[0] for r in range(4)] == [(1,), (2,), (1,), (2,)]
    topology.check(4)
    assert (mixed(topology, 4, 2) == 1 / 4).all()
    with pytest.raises(ScenarioError, match="in 2 pieces"):
        edges_of(pairs[0]).check(4)
    with pytest.raises(ScenarioError, match=r"expected nodes 0, 1, 2, \.\.\., got 'a'"):
        edges_of(nx.Graph([("a", "b")]))


def test_weights_of_edges_are_mixing_weights_if_declared(tmp_path):
    (tmp_path / "weighted.txt").write_text("0 1 0.25\n1 2 0.5\n")
    (tmp_path / "heavy.txt").write_text("0 1 0.75\n1 2 0.5\n")
    path = str(tmp_path / "weighted.txt")
    by_hand = [[0.75, 0.25, 0], [0.25, 0.25, 0.5], [0, 0.5, 0.5]]
    assert matrix(TOPOLOGIES["file"](path=path, weighted=True), 3, 0).tolist() == by_hand
    assert matrix(TOPOLOGIES["file"](path=path), 3, 0) == pytest.approx(matrix(edges_of(nx.path_graph(3)), 3, 0))
    notes = unused_key_notes(scenario({"name": "file", "path": path}, nodes={"clusters": [3]}))
    assert any("set topology.weighted to true" in note for note in notes)
    with pytest.raises(ScenarioError, match=r"edges to node 1, with a sum up to 1, got a sum of 1\.25"):
        neighbors(TOPOLOGIES["file"](path=str(tmp_path / "heavy.txt"), weighted=True), 3, 0, 0)


@pytest.mark.parametrize("ending", ["graphml", "gml", "edges"])
def test_directed_files_of_every_format_lead_one_way(tmp_path, ending):
    path = str(tmp_path / f"net.{ending}")
    write = {"graphml": nx.write_graphml, "gml": nx.write_gml, "edges": nx.write_edgelist}[ending]
    write(nx.DiGraph([(0, 1), (1, 2), (2, 0)]), path)
    topology = TOPOLOGIES["file"](path=path, directed=True)
    topology.check(3)
    graph = neighbors(topology, 3, 0, 0)
    assert (graph, graph.senders) == (((1,), (2,), (0,)), ((2,), (0,), (1,)))
    if ending != "edges":
        with pytest.raises(ScenarioError, match=r"is directed\. Set topology\.directed to true"):
            TOPOLOGIES["file"](path=path).check(3)
    write(nx.DiGraph([(0, 1), (1, 2)]), path)
    with pytest.raises(ScenarioError, match="in 3 pieces without a way back"):
        topology.check(3)


def test_routed_links_use_the_attributes_of_edges():
    edge = {"bandwidth_mbps": 8, "latency_ms": 100}  # the linear model has 7,850 values of 4 bytes
    graph = edges_of(nx.Graph([(0, 1, edge), (1, 2, edge), (2, 3, edge)]))
    with pytest.raises(ScenarioError, match=r"topology: edges have .* Set network\.links to \{name: routed\}"):
        scenario(graph)
    made = scenario(graph, network={"links": {"name": "routed"}})
    links = made.links.draw(4, 0)
    assert links.latency_s(0, 3) == pytest.approx(0.3) and links.route(0, 1) != links.route(1, 0)
    assert links.shared_bytes_per_s == [1e6] * 6
    again = load_of(made)
    assert again.topology == made.topology
    with pytest.raises(ScenarioError, match="expected a file, since the topology's edges change every round"):
        scenario({"name": "random_matching"}, network={"links": {"name": "routed"}})


def load_of(made):
    from ddlsim.scenario.model import to_plain

    return from_mapping(to_plain(made))


def test_directed_edges_are_one_way_links():
    edges = [(0, 1, 10), (1, 2, 20), (2, 3, 30), (3, 0, 40)]
    graph = nx.DiGraph((i, j, {"bandwidth_mbps": 8, "latency_ms": ms}) for i, j, ms in edges)
    links = scenario(edges_of(graph), "sgp", network={"links": {"name": "routed"}}).links.draw(4, 0)
    assert [links.latency_s(0, 1), links.latency_s(1, 0)] == pytest.approx([0.010, 0.090])
    assert len(links.shared_bytes_per_s) == 4
