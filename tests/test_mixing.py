"""Metropolis-Hastings weights, by hand and on random graphs."""

import pytest

from ddlsim.mixing import metropolis_hastings_row
from ddlsim.topologies import TOPOLOGIES, neighbours

STAR = ((1, 2, 3), (0,), (0,), (0,))


def test_weights_of_a_star_by_hand():
    assert metropolis_hastings_row(0, STAR) == {0: 0.25, 1: 0.25, 2: 0.25, 3: 0.25}
    assert metropolis_hastings_row(1, STAR) == {0: 0.25, 1: 0.75}


def test_weights_of_absent_neighbors_fall_to_the_node_itself():
    assert metropolis_hastings_row(0, STAR, present=[2]) == {0: 0.75, 2: 0.25}
    assert metropolis_hastings_row(1, STAR, present=[]) == {1: 1.0}


def test_regular_graph_gives_uniform_weights():
    graph = neighbours(TOPOLOGIES["random_regular"](degree=4), 10, 0, 0)
    for node in range(10):
        assert list(metropolis_hastings_row(node, graph).values()) == pytest.approx([0.2] * 5)


def test_rows_and_columns_sum_to_one():
    graph = neighbours(TOPOLOGIES["erdos_renyi"](edge_probability=0.3), 20, 0, 1)
    columns = [0.0] * 20
    for node in range(20):
        row = metropolis_hastings_row(node, graph)
        assert list(row) == sorted([node, *graph[node]])
        assert sum(row.values()) == pytest.approx(1)
        for peer, weight in row.items():
            columns[peer] += weight
    assert columns == pytest.approx([1] * 20)
