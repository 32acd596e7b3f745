"""What a node waits for, and when it stops waiting."""

from types import SimpleNamespace

import pytest

simpy = pytest.importorskip("simpy")
from ddlsim.engine.mailbox import Mailbox  # noqa: E402


@pytest.fixture
def absent() -> set[int]:
    return set()


@pytest.fixture
def env() -> "simpy.Environment":
    return simpy.Environment()


@pytest.fixture
def mailbox(absent, env) -> Mailbox:
    return Mailbox((0, "push"), env, lambda sender, round_num: sender not in absent)


def message(src: int, round_num: int, text: str = ""):
    return SimpleNamespace(src=src, round_num=round_num, payload=text)


def test_wait_ends_with_the_last_sender(mailbox):
    event = mailbox.wait(0, [1, 2])
    mailbox.deliver(message(1, 0))
    assert not event.triggered
    mailbox.deliver(message(2, 0))
    assert event.triggered


def test_messages_of_other_rounds_do_not_end_a_wait(mailbox):
    event = mailbox.wait(1, [1])
    mailbox.deliver(message(1, 0))
    mailbox.deliver(message(1, 2))
    assert not event.triggered


def test_early_messages_count(mailbox):
    mailbox.deliver(message(1, 3))
    assert mailbox.wait(3, [1]).triggered


def test_nobody_waits_for_the_absent(mailbox, absent):
    absent.add(2)
    event = mailbox.wait(0, [1, 2])
    mailbox.deliver(message(1, 0))
    assert event.triggered


def test_leaving_ends_the_wait(mailbox, absent):
    event = mailbox.wait(0, [1, 2])
    mailbox.deliver(message(1, 0))
    absent.add(2)
    mailbox.reconsider()
    assert event.triggered


def test_lost_message_is_not_waited_for(mailbox):
    event = mailbox.wait(0, [1])
    mailbox.fail(1, 0)
    assert event.triggered
    assert mailbox.take(0) == []


def test_take_orders_by_sender_and_forgets_older_rounds(mailbox):
    for sender, round_num in ((5, 1), (3, 1), (4, 0)):
        mailbox.deliver(message(sender, round_num))
    assert [m.src for m in mailbox.take(1)] == [3, 5]
    assert mailbox.take(0) == []


def test_late_messages_count_once_with_the_newest_of_each_sender(mailbox):
    for sender, round_num in ((1, 0), (1, 1), (2, 0), (2, 2), (3, 3)):
        mailbox.deliver(message(sender, round_num))
    assert [(m.src, m.round_num) for m in mailbox.take(2, late_too=True)] == [(1, 1), (2, 2)]
    assert [(m.src, m.round_num) for m in mailbox.take(3, late_too=True)] == [(3, 3)]


def test_a_deadline_ends_the_wait(env, mailbox):
    event = mailbox.wait(0, [1, 2], deadline_s=0.5)
    mailbox.deliver(message(1, 0))
    env.run(until=0.4)
    assert not event.triggered
    env.run()
    assert event.triggered and env.now == 0.5
    assert mailbox.waiting_for() == {}


def test_the_deadline_of_an_abandoned_wait_ends_no_later_one(env, mailbox):
    mailbox.wait(0, [1], deadline_s=0.5)
    mailbox.clear()
    later = mailbox.wait(0, [1])
    env.run()
    assert not later.triggered


def test_take_all_gives_the_newest_of_each_sender_within_the_bound(mailbox):
    mailbox.deliver(message(1, 2, "old"))
    mailbox.deliver(message(1, 4, "new"))
    mailbox.deliver(message(2, 0, "too old"))
    assert [(m.src, m.payload) for m in mailbox.take_all(oldest_round=1)] == [(1, "new")]
    assert mailbox.take_all(0) == []


@pytest.fixture
def unused() -> list[str]:
    return []


@pytest.fixture
def told(env, unused) -> Mailbox:
    """A mailbox that tells what was of no use."""
    return Mailbox((0, "push"), env, lambda *_: True, unused=lambda message: unused.append(message.payload))


def test_what_is_taken_was_of_use(told, unused):
    told.announce(3, 0)
    told.deliver(message(1, 0, "a"))
    told.deliver(message(2, 1, "b"))
    told.take(0)
    told.take(1)
    assert unused == []


def test_what_comes_after_its_round_was_of_no_use(told, unused):
    told.take(0)
    told.deliver(message(1, 0, "late"))
    told.deliver(message(1, 1, "in time"))
    told.take(1)
    assert unused == ["late"]


def test_what_is_kept_counts_unless_a_newer_one_is_there(told, unused):
    told.deliver(message(1, 0, "late"))
    told.deliver(message(2, 0, "older"))
    told.deliver(message(2, 1, "newer"))
    assert [m.payload for m in told.take(1, late_too=True)] == ["late", "newer"]
    assert unused == ["older"]


def test_what_is_stale_or_replaced_was_of_no_use(told, unused):
    for text in ("first", "second"):
        told.deliver(message(1, 5, text))
    told.deliver(message(2, 1, "stale"))
    assert [m.payload for m in told.take_all(oldest_round=3)] == ["second"]
    assert unused == ["first", "stale"]


def test_mail_of_a_node_that_leaves_was_of_no_use(told, unused):
    told.announce(3, 0)
    told.deliver(message(1, 0, "a"))
    told.deliver(message(2, 4, "b"))
    told.clear()
    assert unused == ["a", "b"]
