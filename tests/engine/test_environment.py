"""The environment does what SimPy's own does, event by event; and what it adds for the network."""

import gc
import weakref
from functools import partial

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from ddlsim.engine.environment import Environment
from ddlsim.engine.message import Message
from ddlsim.engine.network import Network

DELAYS = st.sampled_from([0, 0, 0.5, 1, 1, 1.25])
ACTIONS = st.one_of(
    st.tuples(st.just("sleep"), DELAYS),
    st.tuples(st.just("start"), DELAYS),
    st.tuples(st.just("hold"), DELAYS),
    st.tuples(st.just("interrupt"), st.integers(0, 4)),
    st.tuples(st.just("any"), st.tuples(DELAYS, DELAYS)),
    st.tuples(st.just("all"), st.tuples(DELAYS, DELAYS)),
    st.tuples(st.just("join"), st.integers(0, 4)),
    st.tuples(st.just("put"), st.integers(0, 9)),
    st.tuples(st.just("get"), st.none()),
)


def story(env: simpy.Environment, programs: list, until: float | None) -> list:
    """What happens when, in order: processes that sleep, wait for each other, interrupt, queue and exchange."""
    log, desk, shelf, processes = [], simpy.Resource(env), simpy.Store(env), []

    def helper(name, delay):
        yield env.timeout(delay)
        log.append((env.now, name, "helped"))

    def act(name, what, value):
        if what == "sleep":
            yield env.timeout(value)
        elif what == "start":
            env.process(helper(name, value))
        elif what == "hold":
            with desk.request() as request:
                yield request
                yield env.timeout(value)
        elif what == "interrupt":
            other = processes[value % len(processes)]
            if other.is_alive and other is not env.active_process:
                other.interrupt(name)
        elif what in ("any", "all"):
            timeouts = [env.timeout(delay, value=delay) for delay in value]
            found = yield (env.any_of if what == "any" else env.all_of)(timeouts)
            log.append((env.now, name, list(found.values())))
        elif what == "join":
            other = processes[value % len(processes)]
            if other is not env.active_process:
                yield other | env.timeout(3)
        elif what == "put":
            yield shelf.put(value)
        else:
            found = yield shelf.get() | env.timeout(2)
            log.append((env.now, name, list(found.values())))

    def live(name, program):
        for what, value in program:
            try:
                yield from act(name, what, value)
                log.append((env.now, name, what))
            except simpy.Interrupt as interrupt:
                log.append((env.now, name, "interrupted by", interrupt.cause))

    processes += [env.process(live(name, program)) for name, program in enumerate(programs)]
    env.run(until)
    return [*log, env.now, env.peek()]


@given(
    programs=st.lists(st.lists(ACTIONS, max_size=6), min_size=1, max_size=5),
    until=st.sampled_from([None, 0.5, 1, 2.0]),
)
def test_everything_happens_in_simpys_order(programs, until):
    assert story(Environment(), programs, until) == story(simpy.Environment(), programs, until)


@pytest.mark.parametrize("make", [Environment, simpy.Environment])
def test_step_peek_and_run_until_an_event(make):
    env, log = make(), []
    done, late = env.timeout(2, "a value"), env.timeout(2)
    late.callbacks.append(lambda _: log.append("late"))
    env.timeout(1).callbacks.append(lambda _: log.append("first"))
    assert env.peek() == 1
    env.step()
    assert (env.now, log) == (1, ["first"])
    assert env.run(done) == "a value" == env.run(done)
    assert log == ["first"]
    env.run()
    assert log == ["first", "late"]
    assert env.peek() == float("inf")
    with pytest.raises(simpy.core.EmptySchedule):
        env.step()
    with pytest.raises(ValueError, match="greater than the current simulation time"):
        env.run(until=1)
    with pytest.raises(RuntimeError, match="No scheduled events left"):
        env.run(env.event())


@pytest.mark.parametrize("make", [Environment, simpy.Environment])
def test_callbacks_after_the_stop_are_called_when_the_run_goes_on(make):
    env, log = make(), []
    end = env.timeout(1)
    end.callbacks.append(lambda _: log.append("before"))
    with pytest.raises(AssertionError):
        assert env.run(end) == "something else"
    assert log == ["before"]
    end = env.timeout(1)
    end.callbacks += [simpy.core.StopSimulation.callback, lambda _: log.append("after")]
    env.run()
    assert log == ["before"]
    env.run()
    assert log == ["before", "after"]


@pytest.mark.parametrize("make", [Environment, simpy.Environment])
def test_a_failure_that_nobody_looks_after_is_raised(make):
    def fail(env):
        yield env.timeout(1)
        raise KeyError("lost")

    env = make()
    env.process(fail(env))
    with pytest.raises(KeyError, match="lost") as raised:
        env.run()
    assert isinstance(raised.value.__cause__, KeyError)
    assert env.now == 1


def test_at_one_instant_simpys_events_come_before_the_networks():
    env, log = Environment(), []
    network = Network(env, 2, 1e9, 1e9, 1.0, fidelity="latency", on_delivery=lambda _: log.append((env.now, "arrived")))
    network.send([Message(0, 1, 0, "push", None, 100)])

    def wait():
        yield env.timeout(1.0)
        log.append((env.now, "woke"))
        yield env.timeout(0)
        log.append((env.now, "woke again"))

    env.process(wait())
    env.run()
    assert log == [(1.0, "woke"), (1.0, "woke again"), (1.0, "arrived")]


def test_peek_says_when_the_network_has_news_or_ends():
    env = Environment()
    network = Network(env, 3, 1000.0, 1000.0, on_delivery=lambda _: None)
    mailboxes = network.use_mailboxes()
    network.send([Message(src, 2, 0, "push", None, 1000) for src in (0, 1)])
    waited = mailboxes.wait(2, "push", 0, [0, 1])
    assert env.peek() == 2
    env.step()
    assert env.now == 2
    assert waited.triggered
    assert not waited.processed
    env.run()
    network.send([Message(0, 1, 1, "push", None, 500)])  # nobody waits for it
    assert env.peek() == env.now + 0.5
    env.run()
    assert (env.now, env.peek()) == (2.5, float("inf"))


def test_an_environment_has_one_network_and_is_collected_with_it():
    env = Environment()
    network = Network(env, 2, 1.0, 1.0, on_delivery=partial(print, env))
    with pytest.raises(ValueError, match="one network"):
        Network(env, 2, 1.0, 1.0, on_delivery=print)
    network.send([Message(0, 1, 0, "push", network, 100)])
    env.timeout(1)
    gone = weakref.ref(env)
    del env, network
    gc.collect()
    assert gone() is None


def test_an_impossible_priority_is_refused():
    with pytest.raises(ValueError, match="-64 to 63"):
        Environment().schedule(simpy.Event(Environment()), 64)
