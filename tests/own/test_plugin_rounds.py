"""Plug-ins that `ddlsim check` tests in two real rounds: valid ones pass, errors name their line."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from ddlsim.aggregation.base import Aggregation, Combination
from ddlsim.algorithms.decentralized.dpsgd import DPSGD
from ddlsim.assembly.draws import absences_drawn
from ddlsim.attacks.base import Attack
from ddlsim.churn.schedule import Churn
from ddlsim.foundation.errors import ScenarioError
from ddlsim.learning.optimizing.schedules import Schedule
from ddlsim.network.messages.compression import Codec
from ddlsim.runs.check import plugin_problems
from ddlsim.scenario import from_python

KEYS = {"schedule": "training.schedule", "optimizer": "training.optimizer", "compression": "network.compression"}


def problems(key, part, **more):
    value = [part] if key == "attacks" else part
    named = {
        each: {"name": name} for each, name in (("algorithm", "dpsgd"), ("topology", "complete"), ("model", "linear"))
    }
    return plugin_problems(from_python("smoke", {**named, "nodes.clusters": [2, 2], **more, KEYS.get(key, key): value}))


@dataclass(frozen=True, kw_only=True)
class OwnSchedule(Schedule):
    value: float | None = None

    def factor(self, position, length):
        return self.value if position else 1.0


class OwnOptimizer(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    def step(self, closure=None):
        raise ValueError("no gradients")


@dataclass(frozen=True, kw_only=True)
class OwnCompression(Codec):
    count: int = 100
    cut: int = 0
    keeps_copies = False

    def num_bytes(self, sizes):
        return 4 * sum(sizes)

    def encode(self, values, copies, sizes, seeds):
        return (values[:, : self.count] if self.count < 9 else values,)

    def decode(self, encoded, copies, sizes, seeds):
        return encoded[0][:, self.cut :]


@dataclass(frozen=True, kw_only=True)
class OwnAttack(Attack):
    forgery: str = "own"
    poison_labels: str = "same"
    nodes: tuple[int, ...] = (1,)
    start_round: int = 5

    def forge(self, seen):
        return {"own": seen.own, "short": torch.zeros(3), "number": 7}[self.forgery]

    def poison(self, inputs, labels, num_classes, rng):
        assert num_classes == 10 and inputs.shape[1:] == (1, 28, 28)
        changed = {"same": labels, "few": labels[:2], "high": labels + 20, "float": labels.float()}
        return inputs, changed[self.poison_labels]


@dataclass(frozen=True, kw_only=True)
class OwnAggregation(Aggregation):
    mixing: tuple[float, ...] | None = None
    cut: int = 0
    kept: int | None = None

    def combine(self, rows):
        return Combination(None if self.mixing is None else np.array([self.mixing]), self.cut, self.kept)


@pytest.mark.parametrize(
    ("key", "part", "text"),
    [
        ("schedule", OwnSchedule(), "returns nothing (None) at 5 of 6, expected a number of 0 or more"),
        ("schedule", OwnSchedule(value=-0.5), "returns -0.5 at 5 of 6"),
        ("optimizer", OwnOptimizer, "ValueError: no gradients"),
        ("compression", OwnCompression(count=3), "num_bytes of OwnCompression returns 24, but encode returns 12 bytes"),
        ("compression", OwnCompression(cut=1), "RuntimeError: split_with_sizes expects"),
        ("attacks", OwnAttack(forgery="short"), "forge of OwnAttack returns a tensor [3] of torch.float32, expected"),
        ("attacks", OwnAttack(forgery="number"), "forge of OwnAttack returns a int, expected a tensor ["),
        (
            "attacks",
            OwnAttack(poison_labels="few"),
            "poison of OwnAttack returns labels [2] of torch.int64, expected [",
        ),
        ("attacks", OwnAttack(poison_labels="high"), "returns labels that must be 0..9, got 20..21 (task: class"),
        ("attacks", OwnAttack(poison_labels="float"), "of torch.float32, expected ["),
        (
            "aggregation",
            OwnAggregation(mixing=(1.0, 1.0)),
            "combine of OwnAggregation: mixing: expected finite weights",
        ),
        ("aggregation", OwnAggregation(cut=9), "cut: expected fewer than half of "),
        ("aggregation", OwnAggregation(kept=9), "kept: expected the index of one of"),
    ],
)
def test_fault_of_a_plugin_is_reported_with_its_file(key, part, text):
    (found,) = problems(key, part)
    assert text in found and "test_plugin_rounds.py:" in found


@dataclass(frozen=True, kw_only=True)
class Listed(Schedule):
    factors: tuple[float, ...] = (1.0, 0.8, 0.6, 0.4, 0.2, 0.1)

    def factor(self, position, length):
        return self.factors[position]


@pytest.mark.parametrize(
    ("key", "part"),
    [
        ("attacks", OwnAttack()),
        ("schedule", Listed()),
        ("aggregation", OwnAggregation(cut=1)),
        ("compression", OwnCompression()),
        ("algorithm", DPSGD(final_all_reduce=False)),
    ],
)
def test_valid_plugins_pass(key, part):
    settings = {} if key == "algorithm" else {"algorithm": DPSGD(final_all_reduce=False)}
    assert problems(key, part, rounds=6, **settings) == []


@dataclass(frozen=True, kw_only=True)
class OwnChurn(Churn):
    value: object = None

    def absences(self, num_nodes, seed):
        return self.value


@pytest.mark.parametrize(
    ("absences", "text"),
    [
        ([(1.0, 2.0)], "returns a list, expected a mapping of nodes"),
        ({8: [(1.0, 2.0)]}, "node ids are 0 to 7 in this scenario, got 8"),
        ({-1: [(1.0, 2.0)]}, "node ids are 0 to 7 in this scenario, got -1"),
        ({0: [(2.0, 1.0)]}, "of node 0: expected absences (start_s, end_s) in simulated seconds, in order"),
        ({0: [(1.0, 3.0), (2.0, 4.0)]}, "got (2.0, 4.0) after 3 s"),
        ({0: [(float("nan"), 3.0)]}, "got (nan, 3.0) after 0 s"),
        ({0: [3.0]}, "expected (start_s, end_s), got 3.0"),
    ],
)
def test_absences_must_be_ordered_and_name_existing_nodes(absences, text):
    with pytest.raises(ScenarioError) as raised:
        for each in absences_drawn(OwnChurn(value=absences), 8, 0).values():
            list(each)
    assert str(raised.value).startswith("churn: absences of OwnChurn") and text in str(raised.value)
