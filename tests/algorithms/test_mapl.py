"""MAPL by hand: the graph step, the requests, the mixing of prototypes, and the bytes of a round."""

import numpy as np
import pytest
from number_node import message

from ddlsim.algorithms.personalized.mapl import MAPL


class GraphNode:
    """One of four nodes, with fixed cosines to the others."""

    id, num_nodes, num_samples = 0, 4, 100

    def __init__(self, cosines):
        self._cosines = cosines

    def classifier(self, head):
        return head

    def class_cosines(self, own, others):
        return {peer: self._cosines[peer] for peer in others}

    def others(self):
        return (1, 2, 3)

    def aggregate(self, models, weights):
        return sum(models[peer] * weights[peer] for peer in sorted(models))

    def pull(self, peers, round_num, keys):
        return list(peers), keys


def state(weights=(0.25, 0.25, 0.25, 0.25), samples=(100, 100, 100, 100)):
    from ddlsim.algorithms.personalized.mapl import State

    return State((None, 9, None, None), (None, 0, None, None), np.array(weights), dict(enumerate(samples)))


COSINES = {1: 0.4, 2: 0.1, 3: -0.2}


def learn(mapl, cosines=COSINES, **changes):
    return mapl._learn_graph(GraphNode(cosines), state(**changes), dict.fromkeys(cosines))


def test_code_moves_every_weight_by_the_rate_then_projects():
    # worth 0.25 * (1, 1, 0.25, -0.5); gradients 0.05 * 0.5 - 0.5 * worth = (-0.1, -0.1, -0.00625, 0.0875)
    # weights 0.35, 0.35, 0.35, 0.15 sum to 1.2; the projection takes 0.05 from each
    assert learn(MAPL()) == pytest.approx([0.3, 0.3, 0.3, 0.1])


def test_weights_are_finite_if_all_peers_have_diverged():
    # worth (0.25, 0, 0, 0); gradients (-0.1, 0.025, 0.025, 0.025); weights 0.35, 0.15, 0.15, 0.15 gain 0.05 each
    assert learn(MAPL(), dict.fromkeys(COSINES, np.nan)) == pytest.approx([0.4, 0.2, 0.2, 0.2])


def test_gradient_step_moves_in_proportion():
    # weights 0.25 + 0.1 * (0.1, 0.1, 0.00625, -0.0875); their sum 1.011875 loses a quarter of 0.011875 each
    expected = 0.25 + 0.1 * np.array([0.1, 0.1, 0.00625, -0.0875]) - 0.011875 / 4
    assert learn(MAPL(graph_step="gradient")) == pytest.approx(expected)


def test_thesis_uses_raw_cosines_and_a_degree_term():
    # worth 0.25 * (1, 0.4, 0.1, -0.2); degree 0.75 lowers the others' gradients by 0.1 / 0.75
    gradient = 0.025 - 0.125 * np.array([1, 0.4, 0.1, -0.2]) - 0.1 / 0.750001 * np.array([0, 1, 1, 1])
    moved = 0.25 - 0.1 * gradient
    expected = moved - (moved.sum() - 1) / 4
    assert learn(MAPL(variant="thesis", graph_step="gradient")) == pytest.approx(expected)


def test_confidence_is_the_share_of_samples():
    worth = np.array([100, 300, 50, 50]) / 500
    moved = 0.25 - 0.1 * (0.025 - 0.5 * worth)
    found = learn(MAPL(graph_step="gradient", graph_terms="confidence"), samples=(100, 300, 50, 50))
    assert found == pytest.approx(moved - (moved.sum() - 1) / 4)


def test_pruned_edges_do_not_return_among_neighbors():
    # similarity (1, 0.25, 1, 1): the second weight loses 0.1, the others win it; with all of them 1.2 to 1
    weights = (0.5, 0.5, 0.0, 0.0)
    cosines = {1: 0.1, 2: 0.4, 3: 0.4}
    assert learn(MAPL(candidates="neighbors"), cosines, weights=weights) == pytest.approx([0.6, 0.4, 0, 0])
    assert learn(MAPL(), cosines, weights=weights) == pytest.approx([0.55, 0.35, 0.05, 0.05], abs=1e-6)


def test_one_step_separates_two_clusters():
    cosines = {peer: 0.8 if peer < 10 else 0.1 for peer in range(1, 20)}
    node = GraphNode(cosines)
    node.num_nodes = 20
    found = MAPL()._learn_graph(node, state(np.full(20, 0.05), [100] * 20), dict.fromkeys(cosines))
    assert found == pytest.approx([0.1] * 10 + [0.0] * 10)


def test_weights_of_rounding_size_become_zero():
    # Different cosines give different gradients, and Adam's epsilon lets steps differ by 1e-7 per round.
    cosines = {peer: (0.8 if peer < 10 else 0.1) + 0.003 * peer for peer in range(1, 20)}
    node = GraphNode(cosines)
    node.num_nodes = 20
    mapl, weights = MAPL(), np.full(20, 0.05)
    for _ in range(60):
        weights = mapl._learn_graph(node, state(weights, [100 + 3 * n for n in range(20)]), dict.fromkeys(cosines))
        assert np.flatnonzero(weights).tolist() == list(range(10))
        assert weights.sum() == pytest.approx(1, abs=1e-15)


def test_node_takes_the_weights_of_missing_answers():
    mixed = MAPL()._mix(GraphNode({}), state((0.4, 0.3, 0.2, 0.1)), 1.0, {1: 10.0, 3: 100.0})
    assert mixed == pytest.approx(0.6 * 1 + 0.3 * 10 + 0.1 * 100)


def test_peer_with_a_diverged_classifier_counts_as_dissimilar():
    with_nan, with_zero = learn(MAPL(), COSINES | {3: float("nan")}), learn(MAPL(), COSINES | {3: 0.0})
    assert with_nan == pytest.approx(with_zero)


def test_first_classifiers_come_with_the_number_of_samples():
    newcomer = state(samples=(100,))
    steps = MAPL()._pull(GraphNode(COSINES), newcomer, (1, 2, 3), ("classifier",), 0)
    assert next(steps) == ([1, 2, 3], ("classifier", "samples"))
    with pytest.raises(StopIteration) as ended:
        steps.send([message(1, classifier=1.0, samples=400), message(2, classifier=2.0, samples=50), message(3)])
    assert set(ended.value.value) == {1, 2} and newcomer.samples == {0: 100, 1: 400, 2: 50}
    steps = MAPL()._pull(GraphNode(COSINES), newcomer, (1, 2, 3), ("classifier",), 1)
    assert next(steps) == ([1, 2], ("classifier",)) and steps.send([]) == ([3], ("classifier", "samples"))
