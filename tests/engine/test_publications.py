"""Answers to pulls by round and stage, in the order of publication."""

from types import SimpleNamespace

import pytest

from ddlsim.engine.answers import PullStore


def request(round_num, **payload):
    return SimpleNamespace(round_num=round_num, payload=payload)


def store(*published, synchronous=True, closed=False):
    found = PullStore(synchronous)
    for round_num, stage, name in published:
        found.publish(round_num, stage, {"model": name}, oldest_needed=0)
    if closed:
        found.close()
    return found


def answer(of, round_num, **payload):
    found = of.answer_to(request(round_num, **payload))
    return found and found["model"]


@pytest.mark.parametrize(("asked", "answered"), [(0, "a"), (1, "b"), (2, None)])
def test_synchronous_pull_gets_its_round_and_never_a_later_one(asked, answered):
    assert answer(store((0, 0, "a"), (1, 0, "b")), asked) == answered


def test_stages_of_a_round_have_separate_publications():
    of = store((0, 0, "before"), (0, 1, "after"))
    assert [answer(of, 0, stage=stage) for stage in (0, 1)] == ["before", "after"]


def test_without_stages_only_the_newest_publication_is_kept():
    assert [answer(store((0, None, "a"), (3, None, "b")), asked) for asked in (0, 3, 4)] == ["b", "b", None]


def test_an_asynchronous_pull_gets_the_newest():
    assert answer(store((0, 0, "a"), (1, 0, "b"), synchronous=False), 0) == "b"


@pytest.mark.parametrize(("asked", "answered"), [(3, "third"), (4, "last"), (9, "last")])
def test_stopped_node_answers_slower_peers_with_its_publication_of_their_round(asked, answered):
    assert answer(store((3, 0, "third"), (4, 0, "last"), closed=True), asked, stage=0) == answered


def test_a_stopped_node_answers_every_stage_with_its_last():
    assert answer(store((4, 0, "last"), closed=True), 4, stage=1) == "last"
