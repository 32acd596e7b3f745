"""Waits of a node, their ends, and unused messages."""

from itertools import permutations

import pytest
from simpy import Environment
from small_network import equal_network

from ddlsim.foundation import rng
from ddlsim.network.messages.message import PUSH, Message


class Box:
    """Node 0's mailbox for pushes in a network of ten nodes; payloads are texts."""

    def __init__(self, env: Environment):
        self.network = equal_network(env, 10, 1000.0, 1000.0, on_delivery=lambda _: None)
        self.boxes = self.network.use_mailboxes()
        self.sizes = {}

    def wait(self, round_num, senders, deadline_s=None):
        return self.boxes.wait(0, PUSH, round_num, senders, deadline_s)

    def take(self, round_num, late_too=False):
        return self.boxes.take(0, PUSH, round_num, late_too)

    def take_all(self, oldest_round):
        return self.boxes.take_all(0, PUSH, oldest_round)

    def deliver(self, src: int, round_num: int, text: str = ""):
        self.sizes.setdefault(text, 2 ** len(self.sizes))
        self.boxes.deliver(Message(src, 0, round_num, PUSH, text, self.sizes[text], 0))

    def fail(self, sender, round_num):
        self.boxes.fail(0, PUSH, sender, round_num)

    def leave(self, sender):
        self.network.remove_node(sender)
        self.boxes.reconsider(sender)

    @property
    def unused(self) -> set[str]:
        num_bytes = self.network.use().unused_bytes.sum()
        return {text for text, size in self.sizes.items() if num_bytes & size}


@pytest.fixture
def env() -> Environment:
    return Environment()


@pytest.fixture
def mailbox(env) -> Box:
    return Box(env)


def test_wait_ends_with_the_last_sender(mailbox):
    event = mailbox.wait(0, [1, 2])
    mailbox.deliver(1, 0)
    assert not event.triggered
    mailbox.deliver(2, 0)
    assert event.triggered


def test_messages_of_other_rounds_do_not_end_a_wait(mailbox):
    event = mailbox.wait(1, [1])
    mailbox.deliver(1, 0)
    mailbox.deliver(1, 2)
    assert not event.triggered


def test_early_messages_count(mailbox):
    mailbox.deliver(1, 3)
    assert mailbox.wait(3, [1]).triggered


def test_node_waits_for_no_offline_node(mailbox):
    mailbox.leave(2)
    event = mailbox.wait(0, [1, 2])
    mailbox.deliver(1, 0)
    assert event.triggered


def test_leaving_ends_the_wait(mailbox):
    event = mailbox.wait(0, [1, 2])
    mailbox.deliver(1, 0)
    mailbox.leave(2)
    assert event.triggered


def test_lost_message_is_not_waited_for(mailbox):
    event = mailbox.wait(0, [1])
    mailbox.fail(1, 0)
    assert event.triggered
    assert mailbox.take(0) == []


def test_take_orders_by_sender_and_forgets_older_rounds(mailbox):
    for sender, round_num in ((5, 1), (3, 1), (4, 0)):
        mailbox.deliver(sender, round_num)
    assert [m.src for m in mailbox.take(1)] == [3, 5]
    assert mailbox.take(0) == []


def test_late_messages_count_once_with_the_newest_of_each_sender(mailbox):
    for sender, round_num in ((1, 0), (1, 1), (2, 0), (2, 2), (3, 3)):
        mailbox.deliver(sender, round_num)
    assert [(m.src, m.round_num) for m in mailbox.take(2, late_too=True)] == [(1, 1), (2, 2)]
    assert [(m.src, m.round_num) for m in mailbox.take(3, late_too=True)] == [(3, 3)]


def test_a_deadline_ends_the_wait(env, mailbox):
    event = mailbox.wait(0, [1, 2], deadline_s=0.5)
    mailbox.deliver(1, 0)
    env.run(until=0.4)
    assert not event.triggered
    env.run()
    assert event.triggered and env.now == 0.5
    assert mailbox.boxes.waiting_for(0) == {}


def test_the_deadline_of_an_abandoned_wait_ends_no_later_one(env, mailbox):
    mailbox.wait(0, [1], deadline_s=0.5)
    mailbox.boxes.clear(0)
    later = mailbox.wait(0, [1])
    env.run()
    assert not later.triggered


def test_take_all_gives_the_newest_of_each_sender_within_the_bound(mailbox):
    mailbox.deliver(1, 2, "old")
    mailbox.deliver(1, 4, "new")
    mailbox.deliver(2, 0, "too old")
    assert [(m.src, m.payload) for m in mailbox.take_all(oldest_round=1)] == [(1, "new")]
    assert mailbox.take_all(0) == []


def test_taken_messages_count_as_used(mailbox):
    mailbox.network.send([Message(3, 0, 0, PUSH, None, 0)])
    mailbox.deliver(1, 0, "a")
    mailbox.deliver(2, 1, "b")
    mailbox.take(0)
    mailbox.take(1)
    assert mailbox.unused == set()


def test_messages_after_their_round_count_as_unused(mailbox):
    mailbox.take(0)
    mailbox.deliver(1, 0, "late")
    mailbox.deliver(1, 1, "in time")
    mailbox.take(1)
    assert mailbox.unused == {"late"}


def test_kept_late_message_counts_unless_a_newer_one_arrived(mailbox):
    mailbox.deliver(1, 0, "late")
    mailbox.deliver(2, 0, "older")
    mailbox.deliver(2, 1, "newer")
    assert [m.payload for m in mailbox.take(1, late_too=True)] == ["late", "newer"]
    assert mailbox.unused == {"older"}


def test_stale_and_replaced_messages_count_as_unused(mailbox):
    for text in ("first", "second"):
        mailbox.deliver(1, 5, text)
    mailbox.deliver(2, 1, "stale")
    assert [m.payload for m in mailbox.take_all(oldest_round=3)] == ["second"]
    assert mailbox.unused == {"first", "stale"}


def test_messages_of_a_leaving_node_count_as_unused(mailbox):
    mailbox.network.send([Message(3, 0, 0, PUSH, None, 0)])
    mailbox.deliver(1, 0, "a")
    mailbox.deliver(2, 4, "b")
    mailbox.boxes.clear(0)
    assert mailbox.unused == {"a", "b"}


def test_messages_to_a_finished_node_count_as_unused(mailbox):
    mailbox.deliver(1, 0, "before")
    mailbox.boxes.close(0)
    mailbox.deliver(1, 1, "after")
    assert mailbox.unused == {"before", "after"}


def test_node_does_not_wait_for_a_round_closed_by_its_sender(mailbox):
    early, late = mailbox.wait(3, [1]), mailbox.wait(4, [1])
    mailbox.boxes.closed(1, 4)
    assert early.triggered and not late.triggered
    assert mailbox.wait(3, [1]).triggered
    mailbox.boxes.closed(1, None)
    assert late.triggered


def test_message_in_flight_is_awaited_after_its_sender_moved_on(env, mailbox):
    mailbox.network.send([Message(1, (0, 2), 3, PUSH, "model", 1000)])
    event = mailbox.wait(3, [1])
    mailbox.boxes.closed(1, 4)
    assert not event.triggered
    env.run()
    assert event.triggered and env.now == 2.0
    (message,) = mailbox.take(3)
    assert (message.src, message.payload) == (1, "model")


class Listener:
    """A sender's copies, which are notified of every arrival."""

    def reached(self, receiver, version):
        pass


@pytest.mark.parametrize("order", list(permutations(((0, 3), (1, 4), (2, 5)))))
def test_losses_of_an_instant_are_handled_after_its_arrivals_in_any_order_of_sending(order):
    def first_draw(seed, src):
        return rng.stream(seed, "lost messages", src).random()

    seed = next(s for s in range(1000) if first_draw(s, 2) < 0.5 <= min(first_draw(s, 0), first_draw(s, 1)))
    env, woken = Environment(), []
    network = equal_network(
        env,
        6,
        1.0,
        1.0,
        0.25,
        fidelity="latency",
        drop_prob=0.5,
        on_drop="drop",
        seed=seed,
        on_delivery=lambda message: boxes.deliver(message),
        on_abort=lambda lost: boxes.fail(lost.dst, lost.kind, lost.src, lost.round_num),
    )
    boxes = network.use_mailboxes()
    for src, dst in order:  # 0's is passed to Python, 1's goes directly into the mailbox, 2's is lost
        streams = ((Listener(), 0),) if src == 0 else ()
        network.send([Message(src, dst, 0, PUSH, None, 10, streams=streams)])
        boxes.wait(dst, PUSH, 0, [src]).callbacks.append(lambda _, dst=dst: woken.append((env.now, dst)))
    env.run()
    assert woken == [(0.25, 3), (0.25, 4), (0.25, 5)]


def test_unreferenced_network_is_collected_with_its_waits_and_messages():
    import gc
    import weakref

    class Payload:
        pass

    def run():
        env = Environment()
        box, payload = Box(env), Payload()
        payload.leads_back = box
        box.wait(0, [1, 2]).callbacks.append(lambda _: box)
        box.network.send([Message(1, (0, 3), 0, PUSH, payload, 1000), Message(1, (4, 3), 0, "other", payload, 1000)])
        env.run(until=2.5)
        return weakref.ref(payload)

    payload = run()
    gc.collect()
    assert payload() is None


def test_mailbox_keeps_messages_of_many_senders_rounds_and_waits(mailbox):
    waits = [mailbox.wait(round_num, range(1, 10)) for round_num in (3, 1, 2, 0)]
    for sender in (5, 9, 1, 7, 3, 8, 2, 6, 4):
        assert not any(event.triggered for event in waits)
        for round_num in (2, 0, 3, 1):
            mailbox.deliver(sender, round_num, f"{sender} in {round_num}")
    assert all(event.triggered for event in waits)
    for round_num in range(4):
        taken = [message.payload for message in mailbox.take(round_num)]
        assert taken == [f"{sender} in {round_num}" for sender in range(1, 10)]
    assert not mailbox.unused
