"""The effects of churn on a run, in simulations that only count."""

import math
from itertools import count

import numpy as np
import pytest
from small_network import equal_network
from small_simulation import NoLearning, Plain, assemble

from ddlsim.churn.schedule import Absence, Schedule
from ddlsim.engine.membership import Member, Membership
from ddlsim.foundation.errors import DdlsimError


class Counting(Plain):
    """An algorithm with rounds of one second that notes each node's rounds and initial states."""

    def __init__(self, num_nodes: int):
        self.rounds_done = [[] for _ in range(num_nodes)]
        self.starts = [[] for _ in range(num_nodes)]

    def start(self, node):
        self.starts[node.id].append(node.now_s)
        return {"rounds": []}

    def round(self, node, state, round_num):
        yield node.sleep(1.0)
        state["rounds"].append(round_num)
        self.rounds_done[node.id].append(round_num)


class Meeting(Counting):
    """Like Counting, but a round ends with a message from every other node."""

    def round(self, node, state, round_num):
        yield node.sleep(1.0)
        node.send(node.others(), round_num)
        yield node.receive(round_num, node.others())
        self.rounds_done[node.id].append(round_num)


class Staged(Counting):
    """Nodes publish the round number as stage 0; node 2, the slowest, then pulls node 0's."""

    DURATION_S = (1.0, 1.9, 2.5, 1.0)

    def __init__(self):
        super().__init__(4)
        self.pulled = []

    def round(self, node, state, round_num):
        node.publish(round_num, stage=0, number=round_num)
        yield node.sleep(self.DURATION_S[node.id])
        if node.id == 2:
            answers = yield node.pull([0], round_num, stages={0: 0})
            self.pulled += [answer.payload["number"] for answer in answers]


def simulate(algorithm, absences, *, rounds=5, **settings):
    num_nodes = len(algorithm.starts)
    made = assemble(
        algorithm,
        num_nodes,
        lambda env: equal_network(env, num_nodes, 1e6, 1e6, 0.0, fidelity="ideal"),
        rounds=rounds,
        graph=[()] * num_nodes,
        absences=absences,
        **settings,
    )
    made.run()
    return made


def test_schedule_is_ordered_by_node_and_time():
    later, sooner, other = (
        Absence(node=1, start_s=7, end_s=8),
        Absence(node=1, start_s=2, end_s=3),
        Absence(node=0, start_s=5, end_s=6),
    )
    assert Schedule(offline=(later, sooner, other)).absences(2, seed=0) == {0: [(5, 6)], 1: [(2, 3), (7, 8)]}


@pytest.mark.parametrize("second", [(5, 13), (5, 7), (9, 13), (3, 9)])
def test_overlapping_or_touching_absences_are_merged(second):
    stays = [Absence(node=2, start_s=start_s, end_s=end_s) for start_s, end_s in ((3, 9), second, (20, 21))]
    assert Schedule(offline=tuple(stays)).absences(3, seed=0) == {2: [(3, max(9, second[1])), (20, 21)]}


def test_returning_node_joins_the_round_after_the_current_one():
    algorithm = Counting(2)
    simulate(algorithm, {1: [(0.5, 2.5)]})
    assert algorithm.rounds_done[0] == [0, 1, 2, 3, 4]
    assert algorithm.rounds_done[1] == [3, 4]


def test_consecutive_returns_do_not_advance_the_round():
    algorithm = Meeting(10)
    simulate(algorithm, {node: [(0.5, 2.5 + node / 100)] for node in range(1, 10)})
    assert algorithm.rounds_done[0] == [0, 1, 2, 3, 4]
    assert algorithm.rounds_done[1:] == [[3, 4]] * 9


def test_no_round_is_repeated_after_its_nodes_have_left():
    algorithm = Counting(2)
    simulate(algorithm, {0: [(3.5, math.inf)], 1: [(0.5, 4.0)]})
    assert algorithm.rounds_done == [[0, 1, 2], [3, 4]]


def test_absences_are_read_one_by_one_from_an_endless_schedule():
    taken = []

    def for_ever():
        for k in count():
            taken.append(k)
            yield 2 * k + 1.5, 2 * k + 2.0

    sim = simulate(Counting(2), {1: for_ever()})
    assert sim.env.now == 5
    assert taken == [0, 1, 2]


def test_run_does_not_wait_for_an_offline_node():
    assert simulate(Counting(2), {1: [(4.5, 1000)]}).env.now == 5


def test_newcomer_has_no_state_until_it_joins_the_next_round():
    algorithm = Meeting(3)
    sim = simulate(algorithm, {2: [(0.0, 2.5)]})
    assert algorithm.starts == [[0], [0], [2.5]]
    assert algorithm.rounds_done == [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [3, 4]]
    assert sim.env.now == 5


def test_run_waits_for_no_node_that_never_joins():
    algorithm = Meeting(3)
    sim = simulate(algorithm, {2: [(0.0, math.inf)]})
    assert (algorithm.starts[2], algorithm.rounds_done[2], sim.env.now) == ([], [], 5)


def test_newcomer_starts_once_whether_state_is_lost_or_kept():
    algorithm = Counting(2)
    simulate(algorithm, {1: [(0.0, 1.5)]}, state_lost=True)
    assert algorithm.starts[1] == [1.5]


def test_asynchronous_newcomer_starts_in_the_median_round():
    algorithm = Counting(4)
    simulate(algorithm, {2: [(0.5, 2.0)], 3: [(0.0, 3.5)]}, synchronous=False)
    assert algorithm.rounds_done[3] == [3, 4]  # the others have completed 3, 3 and 1 rounds


def test_asynchronous_newcomers_ignore_rounds_of_other_newcomers():
    algorithm = Counting(7)
    simulate(algorithm, {node: [(0.0, 2.5)] for node in range(2, 7)}, synchronous=False)
    assert [done[0] for done in algorithm.rounds_done] == [0, 0, 2, 2, 2, 2, 2]


def test_newcomer_joins_by_its_algorithm_s_join():
    class Asking(Counting):
        def join(self, node, state, round_num):
            yield node.sleep(0.25)
            state["asked"] = round_num, node.now_s

    algorithm = Asking(2)
    sim = simulate(algorithm, {1: [(0.0, 1.5)]})
    assert sim.members[1].state == {"asked": (2, 1.75), "rounds": [2, 3, 4]}
    assert "asked" not in sim.members[0].state


def test_newcomer_repeats_its_interrupted_join_after_its_return():
    class Asking(Counting):
        def join(self, node, state, round_num):
            yield node.sleep(0.25)
            state.setdefault("asked", []).append(node.now_s)

    sim = simulate(Asking(2), {1: [(0.0, 1.5), (1.6, 2.5)]})
    assert sim.members[1].state == {"asked": [2.75], "rounds": [3, 4]}


@pytest.mark.parametrize(
    ("lost", "anew", "asked"), [(False, False, []), (False, True, [3, 4]), (True, False, [3, 4]), (True, True, [3, 4])]
)
def test_returning_node_joins_again_if_state_is_lost_or_the_algorithm_requires_it(lost, anew, asked):
    class Asking(Counting):
        rejoins_after_absence = anew

        def join(self, node, state, round_num):
            found.append(round_num)
            return
            yield

    found = []
    algorithm = Asking(2)
    simulate(algorithm, {1: [(0.5, 2.5), (3.25, 3.5)]}, state_lost=lost)
    assert (found, algorithm.rounds_done[1]) == (asked, [4])


def test_asynchronous_run_waits_for_a_node_briefly_offline_at_its_end():
    algorithm = Counting(2)
    sim = simulate(algorithm, {1: [(3.5, 7.0)]}, synchronous=False)
    assert algorithm.rounds_done[1] == [0, 1, 2, 3, 4]
    assert sim.env.now == 9
    assert sim.membership.cut_off() == []


def test_asynchronous_run_waits_at_most_its_duration():
    algorithm = Counting(2)
    sim = simulate(algorithm, {1: [(3.5, 10.5)]}, synchronous=False)
    assert (sim.env.now, algorithm.rounds_done[1]) == (5, [0, 1, 2])
    assert [node.id for node in sim.membership.cut_off()] == [1]


def test_asynchronous_run_does_not_wait_for_stays_shorter_than_a_round():
    algorithm = Counting(2)
    sim = simulate(algorithm, {1: ((k + 0.5, k + 0.75) for k in count())}, synchronous=False)
    assert algorithm.rounds_done[1] == []
    assert sim.env.now == 11.5  # the wait started when it left at 5.5 s; rounds started before 11 s may continue


def test_run_ends_when_the_last_active_node_leaves():
    slow_leaver = Counting(2)
    sim = simulate(slow_leaver, {1: [(0.5, 2.25), (5.5, 1000)]}, synchronous=False)
    assert slow_leaver.rounds_done[1] == [0, 1, 2]
    assert sim.env.now == 5.5


def test_permanent_departure_of_all_nodes_is_an_error():
    with pytest.raises(DdlsimError, match="all nodes have left permanently"):
        simulate(Counting(2), {0: [(1.5, math.inf)], 1: [(2.5, math.inf)]})


def test_kept_state_continues_and_lost_state_restarts():
    kept, lost = Counting(2), Counting(2)
    away = {1: [(1.5, 2.5)]}
    with_kept, with_lost = simulate(kept, away), simulate(lost, away, state_lost=True)
    assert with_kept.members[1].state == {"rounds": [0, 3, 4]}
    assert with_lost.members[1].state == {"rounds": [3, 4]}
    assert (kept.starts[1], lost.starts[1]) == ([0], [0, 2.5])


class Starting(Counting):
    """At each start, draws models of the node, then models common to all nodes."""

    def start(self, node):
        node.init_models(own=True)
        node.init_models(own=False)
        return super().start(node)


def test_models_after_a_loss_differ_unless_all_nodes_share_them():
    class Seeds(NoLearning):
        draws_numbers = True

    sim = simulate(Starting(2), {1: [(0.5, 1.5), (2.5, 3.5)]}, state_lost=True, compute=Seeds())
    of_node_1 = sim.compute.seeds[2:]  # after node 0's two
    assert len(of_node_1) == 6
    assert len(set(of_node_1[::2])) == 3
    assert len(set(of_node_1[1::2])) == 1


@pytest.mark.parametrize("synchronous", [True, False])
def test_counts_of_rounds_equal_a_search_over_all_nodes(synchronous):
    random = np.random.default_rng(1)
    nodes = [Member(i) for i in range(20)]
    membership = Membership(nodes, synchronous)
    for node in nodes[15:]:
        membership.absent_from_start(node)
    for _ in range(500):
        node = nodes[random.integers(20)]
        if not node.online:
            others = [other for other in nodes if other is not node]
            there = sorted(other.completed_rounds for other in others if other.online)
            if synchronous:
                reached = max(other.completed_rounds for other in others)
                expected = max(node.round_num, reached, max(there, default=-1) + 1)
            else:
                expected = node.round_num if node.joined else there[(len(there) - 1) // 2] if there else 0
            node.round_num = membership.first_round_of(node)
            assert node.round_num == expected
            membership.returned(node)
            node.joined = True
        elif random.random() < 0.3:
            membership.left(node, math.inf)
        else:
            node.round_num += 1
            membership.completed(node, node.round_num)


def stays_of(seconds):
    """Return absences from 0.5 s on, with repeated stays of so many seconds."""
    return ((0.5 + k * (seconds + 0.25), 0.75 + k * (seconds + 0.25)) for k in count())


def test_stays_shorter_than_a_round_on_all_nodes_are_an_error():
    with pytest.raises(DdlsimError, match=r"nodes have left 10401 times in a row .*furthest: 0 of 5 rounds.*never end"):
        simulate(Counting(2), {0: stays_of(0.5), 1: stays_of(0.5)})  # a round takes 1 s


def test_run_continues_with_stays_of_exactly_one_round():
    sim = simulate(Counting(2), {0: stays_of(1.25), 1: stays_of(1.25)})
    assert any(member.finished for member in sim.members)


def test_unreachable_return_counts_as_a_permanent_departure():
    with pytest.raises(DdlsimError, match="all nodes have left permanently"):
        simulate(Counting(2), {0: [(0.0, 1e30), (2e30, 3e30)], 1: [(0.0, 1e30)]})


def test_slow_node_pulls_publications_of_its_round_after_a_faster_node_left():
    staged = Staged()
    simulate(staged, {3: [(1.5, math.inf)]}, rounds=4)
    assert staged.pulled == [0, 1, 2, 3]


def test_node_waits_for_no_answer_of_a_node_too_late_for_the_last_round():
    class Asking(Counting):
        def round(self, node, state, round_num):
            node.publish(round_num, number=round_num)
            yield node.sleep(0.75)
            answers = yield node.pull([1 - node.id], round_num)
            self.rounds_done[node.id].append((round_num, [answer.payload["number"] for answer in answers]))
            yield node.sleep(0.25)

    asking = Asking(2)
    simulate(asking, {1: [(1.125, 2.5)]}, rounds=3)  # it is back in the middle of the last round
    assert asking.rounds_done == [[(0, [0]), (1, []), (2, [])], [(0, [0])]]


def test_offline_finished_node_delays_no_other():
    algorithm = Counting(2)
    made = simulate(algorithm, {0: [(5.25, math.inf)], 1: [(0.5, 1.0)]}, synchronous=False)
    assert made.env.now == 6 and not made.members[0].online and all(member.finished for member in made.members)


def test_run_with_events_of_finished_nodes_only_is_an_error(monkeypatch):
    class Waiting(Counting):
        def round(self, node, state, round_num):
            yield node.sleep(1.0)
            if node.id > 0:
                yield node.receive(9, [3 - node.id])

    monkeypatch.setattr("ddlsim.engine.membership.IDLE_DEPARTURES", 100)
    with pytest.raises(DdlsimError, match=r"node 1 waits for messages of round 9 from 2 \(open waits"):
        simulate(Waiting(3), {0: ((k + 1.5, k + 1.75) for k in count())}, rounds=1)


def test_node_leaving_at_the_instant_of_its_return_waits_for_its_next_return():
    absences = {0: [(0.5, 1.0), (1.0, 2.0)], 1: [(0.0, 1.0), (1.0, 3.0)]}  # a newcomer too
    made = simulate(Counting(2), absences, rounds=2, synchronous=False)
    assert all(member.finished for member in made.members)


@pytest.mark.parametrize("leaves_s", [1.0, 2.0, 3.0])
def test_work_ending_at_the_departure_of_its_node_is_lost(leaves_s):
    algorithm = Counting(1)
    made = simulate(algorithm, {0: [(leaves_s, leaves_s + 0.5)]}, synchronous=False)
    assert algorithm.rounds_done[0] == [0, 1, 2, 3, 4]
    assert made.env.now == 5.0 + 1.0 + 0.5
