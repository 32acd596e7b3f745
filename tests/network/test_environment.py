"""The environment does what SimPy's own does, event by event; and what it adds for the network."""

import gc
import traceback
import weakref
from functools import partial

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from ddlsim.messages.message import Message
from ddlsim.network.environment import Environment
from ddlsim.network.network import Network

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
    st.tuples(st.just("call"), st.tuples(DELAYS, st.booleans())),
    st.tuples(st.just("share"), DELAYS),
    st.tuples(st.just("look back"), st.integers(0, 4)),
    st.tuples(st.just("look at"), st.integers(0, 4)),
)


def story(env: simpy.Environment, programs: list, until: float | None) -> list:
    """What happens when, in order: processes that sleep, wait for each other, interrupt, queue and exchange."""
    log, desk, shelf, processes, shared = [], simpy.Resource(env), simpy.Store(env), [], []

    def work(delay, fails):
        if delay:
            yield env.timeout(delay)
        if fails:
            raise KeyError(delay)
        return delay

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
        elif what == "call":
            shared.append(env.process(work(*value)))
            log.append((env.now, name, "called", (yield shared[-1])))
        elif what == "share":
            shared.append(env.timeout(value, value=name))
        elif what == "look back" and shared:  # at what others wait for, or what is over
            log.append((env.now, name, "saw", (yield shared[value % len(shared)])))
        elif what == "look at":
            other = processes[value % len(processes)]
            log.append((env.active_process is processes[name], other.is_alive, type(other.target)))
        elif what == "get":
            found = yield shelf.get() | env.timeout(2)
            log.append((env.now, name, list(found.values())))

    def live(name, program):
        for what, value in program:
            try:
                yield from act(name, what, value)
                log.append((env.now, name, what))
            except simpy.Interrupt as interrupt:
                log.append((env.now, name, "interrupted by", interrupt.cause))
            except KeyError as error:
                log.append((env.now, name, "failed", error.args, type(error.__cause__)))
        return name

    processes += [env.process(live(name, program)) for name, program in enumerate(programs)]
    try:
        env.run(until)
    except KeyError as error:  # somebody was interrupted while he waited for it
        log.append(("not looked after", error.args))
    return [*log, env.now, env.peek(), env.active_process, [process.is_alive or process.value for process in processes]]


@given(
    programs=st.lists(st.lists(ACTIONS, max_size=6), min_size=1, max_size=5), until=st.sampled_from([None, 0.5, 1, 2.0])
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


@pytest.mark.parametrize("make", [Environment, simpy.Environment])
@pytest.mark.parametrize("first", [0, 1])
def test_what_is_no_event_cannot_be_waited_for(make, first):
    def live():
        for _ in range(first):
            yield env.timeout(1)
        yield "tomorrow"

    env = make()
    env.process(live())
    with pytest.raises(RuntimeError, match=r'(?s)in live.*yield "tomorrow".*Invalid yield value "tomorrow"'):
        env.run()


@pytest.mark.parametrize("make", [Environment, simpy.Environment])
def test_a_process_that_fails_shows_where_in_its_own_code(make):
    def inner():
        yield env.timeout(1)
        raise KeyError("lost")

    def outer():
        yield from inner()

    env = make()
    process = env.process(outer())
    process.callbacks.append(lambda event: setattr(event, "defused", True))
    env.run()
    assert [frame.name for frame in traceback.extract_tb(process.value.__traceback__)] == ["outer", "inner"]


@pytest.mark.parametrize("make", [Environment, simpy.Environment])
def test_processes_of_other_kinds_wait_as_well(make):
    class Own(simpy.Process):
        def _resume(self, event):
            log.append("resumed")
            super()._resume(event)

    class Steps:  # not one of Python's generators
        def __init__(self):
            self.left = 2

        def send(self, value):
            log.append(("step", self.left))
            if not self.left:
                raise StopIteration("through")
            self.left -= 1
            return env.timeout(1)

        def throw(self, *_):
            raise AssertionError

    def live():
        yield env.timeout(1)

    def abroad():
        yield own_event
        log.append((env.active_process is None, other.active_process is foreigner))

    env, other, log = make(), make(), []
    own_event = env.timeout(1)
    foreigner = other.process(abroad())
    other.step()
    Own(env, live())
    steps = env.process(Steps())
    env.run()
    assert log == ["resumed", ("step", 2), (True, True), "resumed", ("step", 1), ("step", 0)]
    assert steps.value == "through"


def test_many_processes_start_in_their_order():
    def live(name):
        log.append(name)
        yield env.timeout(1)
        return name

    env, log = Environment(), []
    processes = env.processes(live(name) for name in range(1000))
    env.run()
    assert log == [process.value for process in processes] == list(range(1000))


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


def test_after_an_event_at_infinity_nothing_is_left():
    env = Environment()
    Network(env, 2, 1.0, 1.0, on_delivery=print)
    env.timeout(float("inf"))
    env.run()
    assert env.now == float("inf")


def test_an_impossible_priority_is_refused():
    with pytest.raises(ValueError, match="-64 to 63"):
        Environment().schedule(simpy.Event(Environment()), 64)
