"""FACADE by hand: head selection, messages, equations 3 and 4."""

import pytest
from number_node import NumberNode, answer, message

from ddlsim.algorithms.personalized.facade import Facade


def test_trains_and_sends_the_head_of_lowest_loss():
    node, facade = NumberNode(), Facade(heads=2)
    state = facade.start(node)
    verbs = answer(facade.round(node, state, 3), [0.9, 0.5], (11.0, 2.5), [])
    assert verbs[1] == ("train", (10.0, 2.0), None, None)
    assert node.sent == [((0, 2), 3, {"core": 11.0, "heads": {1: 2.5}, "head_index": 1})]
    assert node.recorded == [("head", 1, 3)]


def test_heads_of_equal_loss_are_both_tried():
    facade, chosen = Facade(heads=2), set()
    node = NumberNode()
    for _ in range(20):
        state = facade.start(node)
        answer(facade.round(node, state, 0), [0.5, 0.5], (11.0, 1.5), [])
        chosen.add(state.head_index)
    assert chosen == {0, 1}


def test_nan_losses_are_not_a_tie():
    node, facade = NumberNode(), Facade(heads=2)
    state = facade.start(node)
    answer(facade.round(node, state, 0), [float("nan"), 0.5], (11.0, 1.5), [])
    assert state.head_index == 1


def test_cores_are_averaged_over_all_and_heads_by_index():
    node, facade = NumberNode(), Facade(heads=2)
    state = facade.start(node)
    inbox = [message(0, core=2.0, heads={1: 5.0}, head_index=1), message(2, core=5.0, heads={1: 9.0}, head_index=1)]
    answer(facade.round(node, state, 0), [0.1, 0.9], (11.0, 1.5), inbox)
    assert state.core == (11 + 2 + 5) / 3
    assert state.heads == [1.5, (2.0 + 5 + 9) / 3]


def test_head_without_reports_is_unchanged():
    node, facade = NumberNode(), Facade(heads=2)
    state = facade.start(node)
    answer(facade.round(node, state, 0), [0.1, 0.9], (11.0, 1.5), [message(0, core=1.0, heads={0: 3.5}, head_index=0)])
    assert state.heads == [2.5, 2.0]


def test_warm_up_keeps_all_heads_the_same():
    node, facade = NumberNode(), Facade(heads=2, warmup_rounds=1)
    state = facade.start(node)
    assert state.heads == [1.0, 1.0]
    inbox = [message(0, core=2.0, heads={1: 5.5}, head_index=1)]
    answer(facade.round(node, state, 0), [0.1, 0.9], (11.0, 1.5), inbox)
    assert state.heads == [3.5, 3.5]


def test_all_reduce_merges_by_the_same_rules():
    node, facade = NumberNode(), Facade(heads=2)
    state = facade.start(node)
    inbox = [message(peer, core=float(peer), heads={1: 8.0}, head_index=1) for peer in (0, 2, 3)]
    answer(facade.finish(node, state, 9), inbox)
    assert node.sent[0][0] == (0, 2, 3)
    assert state.core == (10 + 0 + 2 + 3) / 4
    assert state.heads == [1.0, (2 + 3 * 8) / 4]


def choice(facade, round_num):
    """Return the first verb of a round, which picks the head."""
    node = NumberNode()
    return answer(facade.round(node, facade.start(node), round_num), [0.1, 0.9], (11.0, 1.5), [])[0]


@pytest.mark.parametrize(("variant", "batches", "common"), [("code", 10, False), ("paper", 1, True)])
def test_variants_pick_the_head_on_different_batches(variant, batches, common):
    assert choice(Facade(heads=2, variant=variant), 4)[2:] == (batches, common)


@pytest.mark.parametrize(
    ("keys", "thorough"),
    [
        ({"variant": "code"}, [1, 41, 81]),
        ({"thorough_every": 0}, []),
        ({"thorough_every": 30}, [1, 31, 61, 91]),
        ({"thorough_every": 1}, list(range(1, 100))),
        ({}, []),
        ({"selection_batches": 7}, []),
        ({"selection_batches": 7, "thorough_every": 50}, [1, 51]),
    ],
)
def test_thorough_choice_happens_in_its_rounds(keys, thorough):
    assert [number for number in range(100) if choice(Facade(heads=2, **keys), number)[2] == 100] == thorough


def test_thorough_choice_can_take_no_time():
    facade = Facade(heads=2, variant="code", thorough_takes_time=False)
    assert [choice(facade, number)[0] for number in (1, 2)] == ["free losses", "losses"]
    assert choice(Facade(heads=2, variant="code"), 1)[0] == "losses"


@pytest.mark.parametrize("variant", ["code", "paper"])
def test_batches_of_the_choice_override_the_variant(variant):
    node, facade = NumberNode(), Facade(heads=2, variant=variant, common_batches=variant == "code", selection_batches=7)
    verbs = answer(facade.round(node, facade.start(node), 4), [0.1, 0.9], (11.0, 1.5), [])
    assert verbs[0][2:] == (7, variant == "code")


def test_only_evaluation_on_the_test_set_is_labeled():
    assert not Facade().labels
    assert "test set" in Facade(evaluation_head="lowest_test_loss").labels[0]
