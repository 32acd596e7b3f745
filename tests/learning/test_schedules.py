"""Learning-rate schedules have the values of torch's schedulers and start after warm-up."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler as torchs

from ddlsim.foundation.errors import ScenarioError
from ddlsim.learning.optimizing import SCHEDULES
from ddlsim.learning.optimizing.schedules import (
    Constant,
    Cosine,
    CosineRestarts,
    Linear,
    OneCycle,
    Schedule,
    Step,
    rates,
)
from ddlsim.learning.training_inputs import TrainingContext

LENGTH = 12


@pytest.mark.parametrize(
    ("name", "keys", "make"),
    [
        ("StepLR", {"every": 3, "gamma": 0.5}, lambda o: torchs.StepLR(o, 3, 0.5)),
        ("MultiStepLR", {"milestones": (2, 7), "gamma": 0.5}, lambda o: torchs.MultiStepLR(o, [2, 7], 0.5)),
        ("ExponentialLR", {"gamma": 0.8}, lambda o: torchs.ExponentialLR(o, 0.8)),
        ("LinearLR", {"start": 0.2, "end": 0.9, "length": 5}, lambda o: torchs.LinearLR(o, 0.2, 0.9, 5)),
        ("PolynomialLR", {"power": 2.0}, lambda o: torchs.PolynomialLR(o, LENGTH, 2.0)),
        ("CosineAnnealingLR", {"end": 0.1}, lambda o: torchs.CosineAnnealingLR(o, LENGTH, 0.05)),
        (
            "CosineAnnealingWarmRestarts",
            {"length": 2, "growth": 2},
            lambda o: torchs.CosineAnnealingWarmRestarts(o, 2, 2),
        ),
        ("OneCycleLR", {}, lambda o: torchs.OneCycleLR(o, 0.5, LENGTH, cycle_momentum=False)),
        (
            "OneCycleLR",
            {"shape": "linear", "rise": 0.5, "start": 0.1, "end": 0.01},
            lambda o: torchs.OneCycleLR(
                o,
                0.5,
                LENGTH,
                pct_start=0.5,
                div_factor=10,
                final_div_factor=100,
                anneal_strategy="linear",
                cycle_momentum=False,
            ),
        ),
    ],
)
def test_rates_equal_torch(name, keys, make):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.5)
    scheduler, expected = make(optimizer), []
    for _ in range(LENGTH):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    schedule = SCHEDULES[name](**keys)
    assert rates(schedule, 0.5, [(i, -1) for i in range(LENGTH)], LENGTH) == pytest.approx(expected)


def test_warm_up_grows_linearly_before_the_schedule():
    schedule = Step(every=2, gamma=0.1, warmup=4)
    assert [schedule.at(i, 10) for i in range(8)] == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1, 0.1, 0.1])


def test_cosine_ends_with_the_run_for_any_warm_up():
    assert Cosine(warmup=3, end=0.1).at(10, 10) == pytest.approx(0.1)
    assert Cosine().at(25, 10) == 0.0


def test_late_restarts_are_found_at_once():
    assert CosineRestarts(length=3).factor(3 * 10**12, 1) == 1.0


def test_rounds_or_steps_are_counted():
    updates = [(5, 100), (5, 101)]
    assert rates(Linear(end=0.0), 1.0, updates, 10) == [0.5, 0.5]
    assert rates(Linear(end=0.0, per="step"), 1.0, updates, 1000) == pytest.approx([0.9, 0.899])
    assert rates(Constant(), 0.3, updates, 10) == [0.3, 0.3]


def test_schedule_continues_at_the_nodes_steps(make_learner):
    learner = make_learner(schedule={"name": "linear", "per": "step"}, accumulate=2)
    model, terms = learner.init_models(0)[0], TrainingContext(round_num=3, rounds=5, steps=20)
    import numpy as np

    _, kept, _ = learner.train_towards(0, model, 4, np.random.default_rng(0), None, None, None, terms)
    assert learner.learning_rates(0, 4, kept, terms) == pytest.approx([0.1 * (1 - 4 / 20), 0.1 * (1 - 6 / 20)])


@pytest.mark.parametrize(("rise", "length"), [(0.1, 10), (0.25, 4), (0.5, 2), (0.2, 3)])
def test_one_cycle_rising_within_a_round_starts_at_or_past_the_top(rise, length):
    found = [OneCycle(rise=rise).at(position, length) for position in range(length)]
    assert found == sorted(found, reverse=True) and (found[0] == 1 or rise * length < 1)


@dataclass(frozen=True, kw_only=True)
class Own(Schedule):
    found: object

    def factor(self, position, length):
        return self.found if position else 1.0


@pytest.mark.parametrize(
    ("found", "said"), [(-1, "-1"), (math.nan, "nan"), (math.inf, "inf"), (None, "nothing (None)"), ("1", "a str")]
)
def test_invalid_factor_is_refused(found, said):
    assert rates(Own(found=found, warmup=2), 0.5, [(0, 0), (1, 0), (2, 0)], 5) == [0.25, 0.5, 0.5]
    with pytest.raises(ScenarioError) as raised:
        rates(Own(found=found, warmup=2), 0.5, [(3, 0)], 5)
    expected = f"training.schedule: factor of Own returns {said} at 1 of 3, expected a number of 0 or more."
    assert str(raised.value) == expected


@pytest.mark.parametrize("found", [0.25, np.float32(0.25), np.array(0.25), torch.tensor(0.25), Fraction(1, 4)])
def test_factor_may_be_any_number_type(found):
    assert rates(Own(found=found), 0.5, [(3, 0)], 5) == [0.125]
    assert rates(Own(found=-1e-17), 0.5, [(3, 0)], 5) == [0.0]
