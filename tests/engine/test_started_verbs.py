"""Verbs in the background: `node.begin` and `node.wait`."""

import pytest
from small_network import equal_network
from small_simulation import Plain, assemble
from small_vectors import VALUES, Vectors, filled

from ddlsim.foundation.errors import DdlsimError, ScenarioError

LATENCY_S = 0.25
REDUCED_S = 6 * (4 * VALUES / 4 / 1e3 + LATENCY_S)


class Overlapping(Plain):
    """Each node starts an all-reduce in round 0, trains meanwhile, and waits for the result `later` rounds later."""

    def __init__(self, num_steps, later=0):
        self.num_steps, self.later = num_steps, later
        self.waited_s, self.done, self.outcomes = {}, {}, {}

    def start(self, node):
        return []

    def round(self, node, state, round_num):
        if not round_num:
            verb = node.all_reduce(filled(node.id), range(4), round_num)
            state.append(node.begin(verb))
        for _ in range(self.num_steps):
            yield node.train((None,), steps=1)
        if round_num == self.later:
            self.done[node.id] = state[0].done
            self.outcomes[node.id] = yield node.wait(state[0])
            self.waited_s[node.id] = node.now_s


def simulate(algorithm, rounds=1, absences=()):
    def make(env):
        return equal_network(env, 4, 1e3, 1e3, LATENCY_S)

    made = assemble(algorithm, 4, make, rounds=rounds, compute=Vectors(), absences=absences)
    made.run()


@pytest.mark.parametrize(("num_steps", "ends_s"), [(2, REDUCED_S), (9, 9)])
def test_overlapped_time_is_the_longer_of_training_and_communication(num_steps, ends_s):
    algorithm = Overlapping(num_steps)
    simulate(algorithm)
    assert algorithm.waited_s == pytest.approx(dict.fromkeys(range(4), ends_s))
    assert set(algorithm.done.values()) == {num_steps == 9}
    assert algorithm.outcomes[3].value[0] == 1.5


def test_started_verb_may_end_in_a_later_round():
    algorithm = Overlapping(2, later=3)
    simulate(algorithm, rounds=4)
    assert algorithm.waited_s == pytest.approx(dict.fromkeys(range(4), 8))
    assert algorithm.outcomes[3].value[0] == 1.5


def test_verb_started_before_an_absence_returns_none():
    algorithm = Overlapping(4, later=2)
    simulate(algorithm, rounds=4, absences={1: [(0.5, 1.0)]})
    assert algorithm.outcomes[1] is None and algorithm.outcomes[0].value.size == VALUES
    assert algorithm.outcomes[0].value[0] == pytest.approx((0 + 2 + 3) / 3)


class Wrong(Plain):
    """Yields or passes an object that is not a verb or a handle."""

    def __init__(self, wrong):
        self.wrong = wrong

    def round(self, node, state, round_num):
        yield self.wrong(node)


def test_swapped_verbs_and_handles_are_errors():
    with pytest.raises(DdlsimError, match=r"node.begin: expected a verb .*, got a list. Do not yield the verb"):
        simulate(Wrong(lambda node: node.begin([])))
    with pytest.raises(DdlsimError, match=r"node.wait: expected the result of node.begin, got a tuple"):
        simulate(Wrong(lambda node: node.wait(node.sleep(1.0))))
    with pytest.raises(ScenarioError, match=r"round of Wrong yields a Handle, expected a verb"):
        simulate(Wrong(lambda node: node.begin(node.sleep(1.0))))
