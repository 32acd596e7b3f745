"""Answers that arrive after the requester has left and returned, in simulations that only count."""

import pytest
from small_network import equal_network
from small_simulation import NoLearning, Plain, assemble


class Scoring(NoLearning):
    """The loss of a model is the model, a number; it takes half a step per sample."""

    def batches_in(self, split, node):
        return 1.5

    def losses(self, node, models, batches, rng, local_state=None):
        return models

    def value(self, job):
        return job


class Asking(Plain):
    """Node 0 asks node 1 every quarter of a second, which answers slowly: it publishes, or scores a model."""

    def __init__(self, by):
        self.by, self.heard, self.asked = by, [], 0

    def start(self, node):
        return None

    def round(self, node, state, round_num):
        if node.id == 1:
            yield node.sleep(1.5)
            node.publish(round_num, number=round_num)
            return
        yield node.sleep(0.25)
        self.asked += 1
        if self.by == "pull":
            answers = yield node.pull([1], round_num)
            self.heard.append((node.now_s, [answer.payload["number"] for answer in answers]))
        else:
            answers = yield node.score_remotely([1], self.asked, round_num)
            self.heard.append((node.now_s, [answer.payload["loss"]() for answer in answers]))


def heard(by, absences, **settings):
    asking = Asking(by)
    made = assemble(
        asking,
        2,
        lambda env: equal_network(env, 2, 1e6, 1e6, 0.0, fidelity="ideal", header_bytes=1),
        rounds=2,
        graph=[(1,), (0,)],
        absences=absences,
        synchronous=False,
        compute=Scoring(),
        **settings,
    )
    made.run()
    return asking, made.ports.transport.network.use()


def test_answer_arriving_during_an_absence_ends_no_later_wait():
    """Node 0 asks at 0.25 s, is away from 0.5 to 1.6 s, and asks again at 1.85 s; node 1 publishes at 1.5 s."""
    asking, use = heard("pull", {0: [(0.5, 1.6)]})
    assert asking.heard[0] == (1.85, [0])
    assert (use.unused_bytes[0], use.aborted_bytes[0], use.response_bytes[1]) == (1, 0, 18)


@pytest.mark.parametrize(("absence", "scored_s"), [((0.3, 0.4), 1.15), ((0.3, 0.9), 1.65)])
def test_score_uses_the_model_of_the_current_stay(absence, scored_s):
    """The first model is asked about at 0.25 s, and scored at 0.75 s; what asks takes 9 bytes."""
    asking, use = heard("score", {0: [absence]})
    assert asking.heard[0] == (pytest.approx(scored_s), [2])
    assert use.unused_bytes[0] == 9
