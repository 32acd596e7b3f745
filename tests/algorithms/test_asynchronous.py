"""Gossip learning and AD-PSGD by hand."""

import pytest
from number_node import NumberNode, answer, message

from ddlsim.algorithms.adpsgd import ADPSGD
from ddlsim.algorithms.gossip import GossipLearning


def test_gossip_sends_to_one_neighbor_and_waits_for_nobody():
    node, gossip = NumberNode(), GossipLearning()
    verbs = answer(gossip.round(node, gossip.start(node), 0), (12.0,), [])
    assert [verb[0] for verb in verbs] == ["train", "look"]
    assert node.sent == [((0,), 0, {"model": 12.0, "age": 10})]


def test_gossip_merges_what_has_arrived_by_the_mean():
    node, gossip = NumberNode(), GossipLearning()
    state = gossip.start(node)
    answer(gossip.round(node, state, 0), (12.0,), [message(0, model=3.0, age=10), message(2, model=6.0, age=70)])
    assert state.model == pytest.approx(7.0)
    assert state.age == 70


def test_gossip_merges_by_age():
    node, gossip = NumberNode(), GossipLearning(merge="age")
    state = gossip.start(node)
    answer(gossip.round(node, state, 0), (12.0,), [message(0, model=4.0, age=30)])
    assert state.model == pytest.approx((12 * 10 + 4 * 30) / 40)


def test_gossip_trains_on_alone_when_nothing_comes():
    node, gossip = NumberNode(peers=()), GossipLearning()
    state = gossip.start(node)
    answer(gossip.round(node, state, 0), (12.0,), [])
    assert (state.model, state.age) == (12.0, 10)
    assert node.sent == [((), 0, {"model": 12.0, "age": 10})]


def test_adpsgd_pulls_and_pushes_the_two_halves_of_one_averaging():
    node, adpsgd = NumberNode(), ADPSGD()
    state = adpsgd.start(node)
    verbs = answer(adpsgd.round(node, state, 0), (12.0,), [], [message(0, model=4.0)])
    assert verbs[2] == ("pull", [0], 0, None)
    assert node.sent == [((0,), 0, {"model": 12.0})]
    assert state.model == 8.0


def test_adpsgd_averages_with_each_that_chose_it_before_it_chooses():
    node, adpsgd = NumberNode(), ADPSGD()
    state = adpsgd.start(node)
    answer(adpsgd.round(node, state, 0), (12.0,), [message(0, model=4.0), message(2, model=2.0)], [])
    assert state.model == ((12 + 4) / 2 + 2) / 2


def test_adpsgd_pushes_nothing_to_a_neighbor_that_did_not_answer():
    node, adpsgd = NumberNode(), ADPSGD()
    state = adpsgd.start(node)
    answer(adpsgd.round(node, state, 0), (12.0,), [], [])
    assert [peers for peers, _, _ in node.sent] == [()]
    assert state.model == 12.0


def test_adpsgd_shows_its_newest_model_to_peers_of_any_round():
    node, adpsgd = NumberNode(), ADPSGD()
    answer(adpsgd.round(node, adpsgd.start(node), 0), (12.0,), [], [message(0, model=4.0)])
    assert [payload.get("model") for _, payload in node.published] == [None, 10.0, 12.0, 8.0]
    assert {round_num for round_num, _ in node.published} == {node.rounds}


def test_adpsgd_shows_no_model_before_it_has_joined():
    node, adpsgd = NumberNode(), ADPSGD()
    state = adpsgd.start(node)
    join = adpsgd.join(node, state, 5)
    next(join)
    assert [payload for _, payload in node.published] == [{}]
    with pytest.raises(StopIteration):
        join.send([message(0, model=4.0)])
    assert state.model == 4.0 and node.published[-1][1] == {"model": 4.0}


def test_adpsgd_neither_averages_with_nor_pushes_to_a_neighbor_that_has_no_model_yet():
    node, adpsgd = NumberNode(), ADPSGD()
    state = adpsgd.start(node)
    answer(adpsgd.round(node, state, 0), (12.0,), [], [message(0)])
    assert state.model == 12.0 and [peers for peers, _, _ in node.sent] == [()]
