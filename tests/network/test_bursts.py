"""Losses in bursts: the chain's shares and lengths, and lost messages."""

from itertools import pairwise

import pytest
from small_network import SmallNetwork

from ddlsim.network.link_settings import Bursts
from ddlsim.scenario import ScenarioProblems, from_mapping

BASE = {
    "rounds": 2,
    "nodes": {"clusters": [8]},
    "algorithm": {"name": "dpsgd"},
    "model": {"name": "mlp"},
    "data": {"name": "fashion-mnist-mini"},
    "training": {"learning_rate": 0.1},
}


def test_bad_state_has_its_share_of_time_and_mean_length():
    bursts = Bursts(mean_good_s=9.0, mean_bad_s=1.0, good=0.0, bad=0.5, seed=0)
    bad = [bursts.chance(0, 0.1 * step) > 0 for step in range(100_000)]
    assert 0.08 < sum(bad) / len(bad) < 0.12
    changes = sum(a != b for a, b in pairwise(bad))
    assert 1600 < changes < 2400  # 10,000 s in stays of 9 and 1 s


def test_loss_states_of_senders_are_independent():
    alone, together = (Bursts(1.0, 1.0, 0.0, 0.5, seed=1) for _ in range(2))
    times = [0.3 * step for step in range(200)]
    seen = [alone.chance(3, time_s) for time_s in times]
    both = [(together.chance(5, time_s), together.chance(3, time_s)) for time_s in times]
    assert [own for _, own in both] == seen and [other for other, _ in both] != seen


def test_messages_are_lost_only_in_the_bad_state():
    class Alternating:
        def chance(self, sender, now_s):
            return 0.999999 if 10 <= now_s < 20 else 0.0

    made = SmallNetwork(bursts=Alternating(), on_drop="drop")
    for at_s in (1.0, 12.0, 15.0, 25.0):
        made.send(0, 1, 100, at_s=at_s)
    made.env.run()
    assert [(what, round(time_s)) for what, time_s, *_ in made.log] == [
        ("arrived", 1),
        ("aborted", 12),
        ("aborted", 15),
        ("arrived", 25),
    ]


def test_scenario_takes_bursts_or_a_drop_probability():
    bursts = {"mean_good_s": 9, "mean_bad_s": 1, "bad": 0.5}
    assert from_mapping(BASE | {"network": {"loss_bursts": bursts}}).network.loss_bursts.good == 0.0
    assert from_mapping(BASE).network.loss_bursts is None
    with pytest.raises(ScenarioProblems, match="leave one out"):
        from_mapping(BASE | {"network": {"loss_bursts": bursts, "drop_probability": 0.1}})
