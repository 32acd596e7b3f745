import pytest

from ddlsim.aggregation.base import metropolis_hastings
from ddlsim.topologies.base import neighbors
from ddlsim.topologies.random_graphs import ErdosRenyi, RandomRegular


def rows(table):
    return [metropolis_hastings(node, table, peers) for node, peers in enumerate(table)]


def test_weights_of_a_star_by_hand():
    found = rows(((1, 2, 3), (0,), (0,), (0,)))
    assert found[0] == {0: 0.25, 1: 0.25, 2: 0.25, 3: 0.25}
    assert found[1] == {0: 0.25, 1: 0.75}


def test_node_takes_the_weights_of_missing_neighbors():
    assert metropolis_hastings(0, ((1, 2, 3), (0,), (0,), (0,)), received=[2]) == {0: 0.75, 2: 0.25}


def test_node_weight_stays_positive_with_more_messages_than_neighbors():
    found = metropolis_hastings(0, ((1, 2), (0,), (0,), (), (), ()), received=[1, 2, 3, 4, 5])
    assert found == pytest.approx(dict.fromkeys(range(6), 1 / 6))


def test_weights_are_uniform_on_a_regular_graph():
    for weights in rows(neighbors(RandomRegular(degree=4), 10, 0, 0)):
        assert list(weights.values()) == pytest.approx([0.2] * 5)


def test_rows_and_columns_sum_to_one():
    table = neighbors(ErdosRenyi(edge_probability=0.3), 20, 0, 1)
    columns = [0.0] * 20
    for node, weights in enumerate(rows(table)):
        assert sum(weights.values()) == pytest.approx(1)
        assert list(weights) == sorted([node, *table[node]])
        for peer, weight in weights.items():
            columns[peer] += weight
    assert columns == pytest.approx([1] * 20)
