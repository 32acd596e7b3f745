"""Probabilities, draws, two-hop estimates and merge weights, by hand."""

import numpy as np
import pytest

from ddlsim.aggregation.base import merge_weights
from ddlsim.algorithms.similarity import Knowledge, draw, draw_in_turn, probabilities, sigmoid_tau, table_bytes

NAN = float("nan")


def test_unknown_peers_count_as_similarity_zero():
    found = probabilities(np.array([1.0, NAN, -1.0]), tau=2, unknown="zero_similarity")
    assert found == pytest.approx(np.exp([2, 0, -2]) / np.exp([2, 0, -2]).sum())


def test_unknown_and_dissimilar_peers_get_the_floor():
    found = probabilities(np.array([1.0, NAN, -1.0, 2.0]), tau=1, floor=0.1)
    likes = np.array([np.exp(1), 0, 0, np.exp(2)]) / (np.exp(1) + np.exp(2))
    assert found == pytest.approx((likes + 0.1) / 1.4)


@pytest.mark.parametrize("unknown", ["zero_similarity", "floor"])
def test_unknown_similarities_give_uniform_probabilities(unknown):
    assert probabilities(np.full(4, NAN), 30, unknown) == pytest.approx(np.full(4, 0.25))


def test_large_similarities_do_not_overflow():
    found = probabilities(np.array([1e6, 2e6]), 1e4, floor=1e-6)
    assert found == pytest.approx([1e-6, 1.0], rel=1e-5)


def test_min_max_scales_to_0_to_1():
    found = probabilities(np.array([5.0, 7.0, 6.0]), tau=2, scaling="min_max", floor=1e-12)
    assert found == pytest.approx(np.exp([0, 2, 1]) / np.exp([0, 2, 1]).sum())
    assert probabilities(np.array([5.0, 5.0]), tau=2, scaling="min_max") == pytest.approx([0.5, 0.5])


def test_tau_rises_as_in_the_paper():
    assert sigmoid_tau(0, 30, 0.2) == 1
    assert sigmoid_tau(5, 30, 0.2) == pytest.approx(14.86, abs=0.01)
    assert sigmoid_tau(50, 30, 0.2) == pytest.approx(31, abs=0.01)


def test_draw_is_without_replacement_and_fills_up():
    rng = np.random.default_rng(0)
    assert draw(rng, [3, 5, 9], 7) == [3, 5, 9]
    assert set(draw(rng, [3, 5, 9], 2, np.array([0.0, 1.0, 0.0]))) > {5}
    assert draw(rng, [], 2) == []
    picks = [draw(rng, [3, 5, 9], 1, np.array([0.0, 0.25, 0.75]))[0] for _ in range(400)]
    assert picks.count(3) == 0 and 0.68 < picks.count(9) / 400 < 0.82


def test_draw_in_turn_keeps_the_order_of_the_draw():
    weights = np.array([0.005, 0.005, 0.99])
    turns = [draw_in_turn(np.random.default_rng(seed), [3, 5, 9], 2, weights) for seed in range(50)]
    assert sum(turn[0] == 9 for turn in turns) > 40
    assert [sorted(turn) for turn in turns] == [
        draw(np.random.default_rng(s), [3, 5, 9], 2, weights) for s in range(50)
    ]


def knowing(measured: dict, heard: dict | None = None) -> Knowledge:
    known = Knowledge.nothing(6)
    for peer, score in (measured | (heard or {})).items():
        known.scores[peer] = score
    known.measured[list(measured)] = True
    return known


@pytest.mark.parametrize(("rule", "similarity"), [("max", 7.0), ("min", 9.0)])
def test_two_hop_rule_chooses_the_estimate(rule, similarity):
    """Node 0 asks 1 (similarity 5) and 2 (similarity 3); both know node 4."""
    tables = {1: knowing({4: 7.0}), 2: knowing({4: 9.0})}
    known = knowing({}).learn(0, {1: 5.0, 2: 3.0}, tables, rule, chained=False)
    assert known.scores[4] == similarity
    assert not known.measured[4]


@pytest.mark.parametrize(("drawn", "similarity"), [((1, 2, 3), 9.0), ((3, 2, 1), 7.0)])
def test_two_hop_last_ignores_similarity(drawn, similarity):
    tables = {1: knowing({4: 7.0}), 2: knowing({4: 9.0}), 3: knowing({5: 1.0})}  # 3 has no similarity for node 4
    scores = {1: 5.0, 2: 3.0, 3: 1.0}
    known = knowing({}).learn(0, {peer: scores[peer] for peer in drawn}, tables, "last", chained=True)
    assert known.scores[4] == similarity and known.scores[5] == 1.0


def test_estimates_do_not_replace_measured_similarities():
    known = knowing({4: 1.0}).learn(0, {1: 5.0}, {1: knowing({4: 7.0, 0: 2.0})}, "max", chained=False)
    assert known.scores[4] == 1.0 and np.isnan(known.scores[0])


def test_estimates_are_renewed_and_passed_on_only_if_chained():
    table = {1: knowing({3: 2.0}, heard={4: 8.0})}
    alone, chained = (knowing({}, heard={4: 1.0}).learn(0, {1: 5.0}, table, "max", chain) for chain in (False, True))
    assert alone.scores[[3, 4]].tolist() == [2.0, 1.0]
    assert chained.scores[[3, 4]].tolist() == [2.0, 8.0]


def test_two_hop_none_uses_no_estimates():
    known = knowing({}).learn(0, {1: 5.0}, {1: knowing({4: 7.0})}, "none", chained=True)
    assert np.isnan(known.scores[4]) and known.measured.tolist() == [False, True, False, False, False, False]


def test_learning_does_not_change_the_old_table():
    before = knowing({4: 1.0})
    before.learn(0, {1: 5.0}, {}, "max", chained=False)
    assert np.isnan(before.scores[1])


def test_table_bytes():
    assert table_bytes(100) == 400 + 13


def test_merge_weights():
    samples = {0: 10, 2: 30, 5: 60}
    assert merge_weights("fedavg", 2, samples) == pytest.approx({0: 0.1, 2: 0.3, 5: 0.6})
    assert merge_weights("uniform", 2, samples) == pytest.approx({0: 1 / 3, 2: 1 / 3, 5: 1 / 3})
    assert merge_weights("fedsim", 2, samples, {0: 0.2, 5: 0.3}) == pytest.approx({0: 0.25, 2: 0.375, 5: 0.375})
    assert merge_weights("fedsim", 2, samples, {0: -1, 5: 0.5}) == pytest.approx({0: 0, 2: 0.5, 5: 0.5})
    assert merge_weights("fedsim", 2, samples, {0: -1, 5: -2}) == pytest.approx({0: 1 / 3, 2: 1 / 3, 5: 1 / 3})
