"""Neighbors found by a mixture of two normals, and PENS and PANM by hand."""

import numpy as np
import pytest
from number_node import NumberNode

from ddlsim.algorithms.personalized.panm import PANM, neighbors_by_mixture
from ddlsim.algorithms.personalized.pens import PENS
from ddlsim.foundation.errors import ScenarioError
from ddlsim.node.parameters import Deferred


def test_candidate_similar_to_neighbors_becomes_one():
    scores = {1: 9.0, 2: 9.4, 3: 9.2, 4: 9.1, 5: 1.0, 6: 1.3, 7: 0.8}
    assert neighbors_by_mixture(scores, {1, 2, 3}) == {1, 2, 3, 4}


def test_neighbor_similar_to_the_others_is_dropped():
    scores = {1: 9.0, 2: 9.4, 3: 9.2, 4: 1.1, 5: 1.0, 6: 1.3, 7: 0.8}
    assert neighbors_by_mixture(scores, {1, 2, 3, 4}) == {1, 2, 3}


@pytest.mark.parametrize("neighbors", [set(), {1, 2}])
def test_single_group_is_unchanged(neighbors):
    assert neighbors_by_mixture({1: 3.0, 2: 4.0}, neighbors) == neighbors


@pytest.mark.parametrize("smallest", [0.0, 1e-9])
def test_two_groups_of_one_are_unchanged(smallest):
    assert neighbors_by_mixture({1: 3.0, 2: 4.0}, {1}, smallest) == {1}


@pytest.mark.parametrize(("smallest", "found"), [(0.0, {1, 2}), (1e-9, {1, 2, 3})])
def test_single_other_candidate_is_ignored_only_in_the_published_code(smallest, found):
    assert neighbors_by_mixture({1: 9.0, 2: 9.3, 3: 9.1, 4: 1.0}, {1, 2}, smallest) == found


def drive(steps, answer):
    """Run a generator, answering each verb; return its verbs and its value."""
    verbs, outcome = [], None
    try:
        while True:
            verbs.append(steps.send(outcome))
            outcome = answer(verbs[-1])
    except StopIteration as stop:
        return verbs, stop.value


def scoring(scores):
    """Return losses whose inverse is the score of the model, here the number of its node."""
    return lambda verb: Deferred(lambda: [1 / scores[model[0]] for model in verb[1]])


def test_pens_merges_the_best_and_remembers_them():
    node, pens = NumberNode(num_nodes=10), PENS(sampled_peers=3, top_m=2, stage1_rounds=2)
    state = pens.start(node)
    received = {3: {"model": 3.0, "samples": 30}, 5: {"model": 5.0, "samples": 30}, 7: {"model": 7.0, "samples": 30}}
    answer = scoring({3.0: 0.1, 5.0: 0.5, 7.0: 0.4})
    _, weights = drive(pens.weigh(node, state, received, 0), answer)
    assert weights == pytest.approx({5: 1 / 3, 7: 1 / 3, 1: 1 / 3})
    assert state.memory.best_rounds == {5: 1, 7: 1}
    assert pens.neighbors(node, state) == [5, 7]  # kept once, more often than 2 / 10 * 2


def test_pens_gossips_with_its_neighbors_only():
    node, pens = NumberNode(num_nodes=10), PENS(sampled_peers=3, stage1_rounds=20)
    state = pens.start(node)
    state.memory.best_rounds.update({3: 4, 5: 5, 7: 9})
    assert pens.choose(node, state, 20) == [5, 7]  # chance is 2 / 10 * 20 = 4
    verbs, weights = drive(pens.weigh(node, state, {5: {"model": 5.0, "samples": 90}}, 20), scoring({}))
    assert not verbs and weights == pytest.approx({5: 0.75, 1: 0.25})


def test_pens_cannot_keep_more_than_it_samples():
    with pytest.raises(ScenarioError, match="top_m"):
        PENS(sampled_peers=2, top_m=3)


def exchange(panm, node, state, round_num, scores):
    """Run one exchange in which a peer's model is its number; return the pulled peers in order."""
    asked = []

    def answer(verb):
        if verb[0] == "pull":
            asked.append(verb[1])
            return [Answer(peer) for peer in verb[1]]
        return scoring(scores)(verb)

    drive(panm._exchange(node, state, round_num), answer)
    return asked


class Answer:
    def __init__(self, peer):
        self.src, self.payload = peer, {"model": float(peer), "samples": 30}


def panm_of(variant, similarity="inverse_loss", num_nodes=12):
    node, panm = (
        NumberNode(num_nodes=num_nodes),
        PANM(sampled_peers=2, stage1_rounds=2, variant=variant, similarity=similarity),
    )
    return node, panm, panm.start(node)


@pytest.mark.parametrize(("variant", "kept"), [("thesis", 0.5), ("code", 3.0)])
def test_panm_keeps_the_best_and_measures_them_again_only_in_the_thesis(variant, kept):
    node, panm, state = panm_of(variant)
    state.memory.neighbors = {3: 3.0, 5: 0.1}
    scores = {float(peer): 0.2 for peer in range(12)} | {3.0: 0.5, 5.0: 0.1}
    ((asked),) = exchange(panm, node, state, 1, scores)
    assert {3, 5} < set(asked) and len(asked) == 4
    assert len(state.memory.neighbors) == 2
    assert state.memory.neighbors[3] == pytest.approx(kept, rel=1e-3)
    assert 5 not in state.memory.neighbors
    assert state.model == pytest.approx(np.mean([10.0, *state.memory.neighbors]))


def test_panm_adds_neighbors_found_by_the_mixture():
    node, panm, state = panm_of("thesis", num_nodes=5)
    state.memory.neighbors = {0: 1.0, 2: 1.0}
    asked = exchange(panm, node, state, 2, {0.0: 9.0, 2.0: 9.3, 3.0: 9.1, 4.0: 1.0})
    assert asked == [[0, 2, 3, 4]]
    assert set(state.memory.neighbors) == {0, 2, 3}
    assert [value for name, value, _ in node.recorded if name == "pulled_from"] == [0, 2, 3, 4]


@pytest.mark.parametrize(
    ("similarity", "rounds", "talks"),
    [("cosine_gradients", 2, True), ("cosine_weights", 2, False), ("inverse_l2", 3, False)],
)
def test_published_bug_exchanges_only_by_inverse_loss(similarity, rounds, talks):
    node, panm, state = panm_of("published_bug", similarity)
    assert exchange(panm, node, state, 0, {}) == []
    assert bool(exchange(panm, node, state, rounds, {})) == talks
    assert len(state.memory.neighbors) == 2 * talks
