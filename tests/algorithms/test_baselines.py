"""EL, D-PSGD and DePRL by hand."""

import pytest
from number_node import NumberNode, answer, message

from ddlsim.algorithms.decentralized.dpsgd import DPSGD
from ddlsim.algorithms.decentralized.el import EpidemicLearning
from ddlsim.algorithms.personalized.deprl import DePRL


def test_el_averages_received_models():
    node, el = NumberNode(), EpidemicLearning()
    state = el.start(node)
    answer(el.round(node, state, 0), (12.0,), [message(0, model=3.0), message(2, model=6.0)])
    assert state.model == 7.0


def test_el_local_sends_the_model_to_fanout_nodes_and_a_notice_to_the_rest():
    node, el = NumberNode(num_nodes=6), EpidemicLearning(variant="local", fanout=2)
    state = el.start(node)
    answer(el.round(node, state, 0), (12.0,), [message(0), message(4, model=6.0)])
    (receivers, _, payload), (rest, _, notice) = node.sent
    assert payload == {"model": 12.0} and notice == {}
    assert len(receivers) == 2 and sorted(receivers + rest) == [0, 2, 3, 4, 5]
    assert state.model == 9.0


def test_el_local_sends_no_notices_in_async_mode():
    node, el = NumberNode(num_nodes=6), EpidemicLearning(variant="local", fanout=2)
    node.synchronous = False  # only the newest message of a sender counts there, and would be an empty one
    answer(el.round(node, el.start(node), 0), (12.0,), [])
    ((receivers, _, payload),) = node.sent
    assert len(receivers) == 2 and payload == {"model": 12.0}


def test_dpsgd_weights_are_metropolis_hastings():
    node, dpsgd = NumberNode(), DPSGD()
    state = dpsgd.start(node)  # node 1 has degree 2, node 0 degree 1, node 2 degree 2: both edges weigh 1/3
    answer(dpsgd.round(node, state, 0), (12.0,), [message(0, model=3.0), message(2, model=6.0)])
    assert state.model == pytest.approx(12 / 3 + 3 / 3 + 6 / 3)


def test_dpsgd_keeps_the_weight_of_a_missing_neighbor():
    node, dpsgd = NumberNode(), DPSGD()
    state = dpsgd.start(node)
    answer(dpsgd.round(node, state, 0), (12.0,), [message(0, model=3.0)])
    assert state.model == pytest.approx(12 * 2 / 3 + 3 / 3)


def test_deprl_trains_head_then_core_and_merges_cores_only():
    node, deprl = NumberNode(), DePRL()
    state = deprl.start(node)
    verbs = answer(deprl.round(node, state, 0), (10.0, 1.5), (12.0, 1.5), [message(0, core=3.0, head=9.0)])
    of_run = 11 * node.rounds
    assert [verb[1:] for verb in verbs[:2]] == [((10.0, 1.0), 10, "head", of_run), ((10.0, 1.5), 1, "core", of_run)]
    assert state.head == 1.5
    assert state.core == pytest.approx(12 * 2 / 3 + 3 / 3)


def test_deprl_can_train_whole_epochs():
    node, deprl = NumberNode(), DePRL(local_training="epochs")
    verbs = answer(deprl.round(node, deprl.start(node), 0), (10.0, 1.5), (12.0, 1.5), [])
    assert [verb[2] for verb in verbs[:2]] == [7, 7]
