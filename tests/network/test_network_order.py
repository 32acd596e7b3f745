"""The order of events at one instant, and the network's use of SimPy's queue."""

import gc
import weakref
from functools import partial

import pytest
import simpy
from hypothesis import assume, example, given
from hypothesis import strategies as st
from small_network import equal_network

from ddlsim.network.messages.message import Message
from ddlsim.network.scheduled_calls import LATE, LATEST, ScheduledCall, exact_delay

times = st.floats(0, 1e9, allow_subnormal=False)


def count_events(env: simpy.Environment) -> int:
    """Process and count all events."""
    count = 0
    while env.peek() < float("inf"):
        env.step()
        count += 1
    return count


def test_late_calls_follow_all_events_of_their_instant():
    env, log = simpy.Environment(), []
    ScheduledCall(env, lambda _: log.append("latest"), 1.0, LATEST)
    ScheduledCall(env, lambda _: log.append("late"), 1.0, LATE)

    def live():
        yield env.timeout(1.0)
        log.append("woke")
        yield env.timeout(0)
        log.append("woke again")

    env.process(live())
    env.run()
    assert log == ["woke", "woke again", "late", "latest"]


@given(now_s=times, time_s=times)
@example(now_s=0.5 + 2**-53, time_s=1.75 + 2**-52)  # with a difference between two floats
def test_the_clock_shows_a_time_to_the_last_bit_after_two_delays_at_most(now_s, time_s):
    assume(now_s < time_s)
    env = simpy.Environment(now_s)
    for _ in range(2):
        if env.now < time_s:
            delay_s = exact_delay(env.now, time_s)
            assert delay_s > 0
            env.run(env.timeout(delay_s))
            assert env.now <= time_s
    assert env.now == time_s


def test_simpy_events_precede_network_events_of_one_instant():
    env, log = simpy.Environment(), []
    network = equal_network(
        env, 2, 1e9, 1e9, 1.0, fidelity="latency", on_delivery=lambda _: log.append((env.now, "arrived"))
    )
    network.send([Message(0, 1, 0, "push", None, 100)])

    def wait():
        yield env.timeout(1.0)
        log.append((env.now, "woke"))
        yield env.timeout(0)
        log.append((env.now, "woke again"))

    env.process(wait())
    env.run()
    assert log == [(1.0, "woke"), (1.0, "woke again"), (1.0, "arrived")]


def test_answer_is_sent_after_the_woken_processes():
    env, log = simpy.Environment(), []
    network = equal_network(env, 3, 1.0, 1.0, fidelity="ideal", on_delivery=lambda message: log.append(message.kind))
    boxes = network.use_mailboxes()
    network.send([Message(0, 1, 0, "push", None, 100)])

    def wait():
        yield boxes.wait(1, "push", 0, [0])
        log.append("woke")
        network.send([Message(1, 2, 0, "note", None, 100)])
        yield env.timeout(0)
        log.append("woke again")

    env.process(wait())
    env.run()
    assert log == ["woke", "woke again", "note"]
    assert env.now == 0


def test_changes_and_completions_of_one_instant_cost_one_event_each():
    env = simpy.Environment()
    network = equal_network(env, 1001, 1000.0, 1000.0, on_delivery=lambda _: None)
    for src in range(1000):
        network.send([Message(src, src + 1, 0, "other", None, 1000)])
    assert count_events(env) == 3  # at the end of the current instant, at the ends, and after their consequences
    assert env.now == 1.0
    assert network.traffic.total()["messages"] == 1000


def test_arrivals_that_end_no_wait_cost_no_event():
    env = simpy.Environment()
    network = equal_network(env, 101, 1000.0, 1000.0, on_delivery=lambda _: None)
    boxes = network.use_mailboxes()
    network.send([Message(src, 100, 0, "push", None, 10 * src) for src in range(1, 100)])  # 99 different ends
    waited = boxes.wait(100, "push", 0, range(1, 100))
    waited.callbacks.append(lambda _: ends.append(env.now))
    ends = []
    assert count_events(env) == 4
    assert ends == [pytest.approx(49.5)]


def test_a_run_lasts_until_the_last_message_has_arrived():
    env = simpy.Environment()
    network = equal_network(env, 3, 1000.0, 1000.0, on_delivery=lambda _: None)
    network.use_mailboxes()
    network.send([Message(0, 1, 1, "push", None, 500)])  # no process waits for it
    env.run()
    assert (env.now, env.peek()) == (0.5, float("inf"))


def test_earlier_completion_replaces_the_pending_one():
    env, log = simpy.Environment(), []
    network = equal_network(env, 4, 1000.0, 1000.0, on_delivery=lambda message: log.append((env.now, message.src)))

    def send():
        network.send([Message(0, 1, 0, "other", None, 5000)])
        yield env.timeout(1)
        network.send([Message(2, 3, 0, "other", None, 500)])

    env.process(send())
    env.run()
    assert log == [(1.5, 2), (5.0, 0)]


def test_two_networks_in_one_environment_do_not_disturb_each_other():
    env, log = simpy.Environment(), []
    for name in ("first", "second"):
        network = equal_network(env, 2, 1000.0, 1000.0, on_delivery=lambda _, name=name: log.append((env.now, name)))
        network.send([Message(0, 1, 0, "other", None, 1000)])
    env.run()
    assert log == [(1.0, "first"), (1.0, "second")]


def test_an_environment_is_collected_with_its_network():
    env = simpy.Environment()
    network = equal_network(env, 2, 1.0, 1.0, on_delivery=partial(print, env))
    network.send([Message(0, 1, 0, "push", network, 100)])
    env.timeout(1)
    gone = weakref.ref(env)
    del env, network
    gc.collect()
    assert gone() is None


def test_event_at_infinity_leaves_no_later_event():
    env = simpy.Environment()
    equal_network(env, 2, 1.0, 1.0, on_delivery=print)
    env.timeout(float("inf"))
    env.run()
    assert env.now == float("inf")
