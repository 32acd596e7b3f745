"""Finished nodes that still answer requests, under churn."""

import pytest
from small_network import equal_network
from small_simulation import NoLearning, Plain, assemble

from ddlsim.devices.energy import Costs


class Answering(Plain):
    """Nodes publish the round number; node 1, the slow one, then asks node 0, which may have finished."""

    def __init__(self):
        self.answers = []

    def round(self, node, state, round_num):
        node.publish(round_num, number=round_num)
        yield node.sleep(1.0 if node.id == 0 else 2.25)
        if node.id == 1:
            answers = yield node.pull([0], round_num)
            self.answers.append([answer.payload["number"] for answer in answers])


@pytest.mark.parametrize(("lost", "later"), [(False, [3]), (True, [])])
def test_finished_node_leaves_and_returns_like_the_others(lost, later):
    answering = Answering()
    made = assemble(
        answering,
        2,
        lambda env: equal_network(env, 2, 1e6, 1e6, 0.0, fidelity="ideal"),
        rounds=4,
        graph=[(), ()],
        absences={0: [(4.25, 6.0), (30.0, 31.0)]},
        state_lost=lost,
        synchronous=False,
        metered=Costs(watts=1.0, idle_w=1.0, j_per_byte_up=0.0, j_per_byte_down=0.0),
    )
    made.run()
    assert answering.answers == [[2], [], later, later]  # at 2.25, 4.5, 6.75 and 9 s
    assert [(row["time_s"], row["value"]) for row in made.records.rows if row["name"] == "online"] == [
        (4.25, 0),
        (6.0, 1),
    ]
    assert made.env.now == 9 and [row["idle_s"] for row in made.meter.rows()] == [4.0, 9.0]


class Scoring(Answering):
    """Node 1 asks node 0 for a score that takes longer than node 0 stays."""

    def round(self, node, state, round_num):
        yield node.sleep(0.5)
        if node.id == 1:
            answers = yield node.score_remotely([0], (None,), round_num)
            self.answers.append((node.now_s, len(answers)))


def test_departure_of_a_scoring_finished_node_ends_the_wait():
    class Losses(NoLearning):
        def batches_in(self, split, node):
            return 1

        def losses(self, node, models, batches, rng, local_state):
            return [1.0]

        def value(self, job):
            return job

    scoring = Scoring()
    assemble(
        scoring,
        2,
        lambda env: equal_network(env, 2, 1e6, 1e6, 0.0, fidelity="ideal"),
        rounds=1,
        step_time_s=6.0,
        graph=[(), ()],
        absences={0: [(1.25, 9.0)]},
        synchronous=False,
        compute=Losses(),
    ).run()
    assert scoring.answers == [(1.25, 0)]
