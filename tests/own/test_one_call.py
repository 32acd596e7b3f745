"""Parts that are functions: ours pass the trial that `ddlsim check` makes of a user's, and wrong ones do not."""

from dataclasses import MISSING, dataclass, fields

import numpy as np
import pytest
import torch

from ddlsim.aggregation.base import Aggregation, Combination
from ddlsim.attacks.base import Attack
from ddlsim.churn.schedule import Churn
from ddlsim.foundation.errors import ScenarioError
from ddlsim.learning.optimizing.schedules import Schedule
from ddlsim.learning.optimizing.table import Optimizer
from ddlsim.runs.check.trial import CALLS
from ddlsim.runs.loading import load_data
from ddlsim.scenario import from_python, parts

NEEDED = {
    **{"nodes": (1,), "every": 2, "gamma": 0.5, "milestones": (2, 4), "length": 2, "offline": ()},
    **{"mean_online_s": 9.0, "mean_offline_s": 3.0, "online_shape": 0.5, "online_scale_h": 2.0, "offline_shape": 0.5},
    "offline_scale_h": 1.0,
}
READ_FILES = {("churn", "trace"), ("churn", "fedscale"), ("churn", "fta"), ("compression", "none")}
"""Entries that need a file, and one that is never called."""
OURS = [(key, name) for key in CALLS for name in parts.table(key) if (key, name) not in READ_FILES]


@pytest.fixture(scope="module")
def scenario():
    return from_python("smoke", {})


@pytest.fixture(scope="module")
def outline(scenario):
    return load_data(scenario.model_copy(update={"learning": "none"})).dataset


def test_ours_pass(scenario, outline):
    found = {}
    for key, name in OURS:
        cls = parts.table(key)[name]
        needed = {field.name for field in fields(cls) if field.default is MISSING and field.default_factory is MISSING}
        found[key, name] = list(CALLS[key](cls(**{each: NEEDED[each] for each in needed}), scenario, outline))
    assert {part: problems for part, problems in found.items() if problems} == {}


@dataclass(frozen=True, kw_only=True)
class OwnSchedule(Schedule):
    value: object = None

    def factor(self, position, length):
        return self.value if position else 1.0


@dataclass(frozen=True, kw_only=True)
class OwnOptimizer(Optimizer):
    value: object = None

    def make(self, parameters, rate):
        return self.value if self.value is not None else torch.optim.SGD(parameters, lr=float("nan"))


@dataclass(frozen=True, kw_only=True)
class OwnCompression:
    count: int = 24
    keeps_copies = False

    def num_bytes(self, sizes):
        return 24

    def encode(self, values, copies, sizes, seeds):
        return (values[:, : self.count],)

    def decode(self, encoded, copies, sizes, seeds):
        return encoded[0][:, :-1]


@dataclass(frozen=True, kw_only=True)
class OwnAttack(Attack):
    forges = True
    poisons = True
    value: object = None
    poisoned: object = lambda inputs, labels: (inputs[:2], labels)
    nodes: object = (1,)

    def forge(self, seen):
        return seen.own if self.value is None else self.value

    def poison(self, inputs, labels, num_classes, rng):
        return self.poisoned(inputs, labels)


@dataclass(frozen=True, kw_only=True)
class OwnAggregation(Aggregation):
    value: object = None

    def combine(self, rows):
        return self.value


@dataclass(frozen=True, kw_only=True)
class OwnChurn(Churn):
    value: object = None

    def absences(self, num_nodes, seed):
        return self.value


WRONG = [
    ("schedule", OwnSchedule(), "returns nothing (None) at 1 of 6, expected a number of 0 or more"),
    ("schedule", OwnSchedule(value=float("nan")), "returns nan at 1 of 6"),
    ("schedule", OwnSchedule(value=-0.5), "returns -0.5 at 1 of 6"),
    ("optimizer", OwnOptimizer(value=3), "make of OwnOptimizer returns a int, expected a torch.optim.Optimizer"),
    ("optimizer", OwnOptimizer(), "leads to [[nan"),
    ("compression", OwnCompression(count=3), "num_bytes of OwnCompression returns 24, but encode returns 12 bytes"),
    ("compression", OwnCompression(), "decode of OwnCompression returns a tensor [2, 5] of torch.float32, expected"),
    ("attacks", OwnAttack(value=torch.zeros(3)), "forge of OwnAttack returns a tensor [3] of torch.float32, expected"),
    ("attacks", OwnAttack(value=7), "forge of OwnAttack returns a int, expected a tensor [6]"),
    ("attacks", OwnAttack(), "poison of OwnAttack returns inputs and labels of shapes [2, 1, 28, 28] and [4]"),
    ("attacks", OwnAttack(poisoned=lambda x, y: (x[:2], y[:2])), "of shapes [2, 1, 28, 28] and [2], expected as many"),
    (
        "attacks",
        OwnAttack(poisoned=lambda x, y: (x, y + 5)),
        "returns labels that must be 0..9, got 5..14 (task: class",
    ),
    (
        "attacks",
        OwnAttack(poisoned=lambda x, y: (x, y.float())),
        "returns labels of torch.float32, expected torch.int6",
    ),
    ("aggregation", OwnAggregation(value=1), "combine of OwnAggregation returns a int, expected"),
    ("aggregation", OwnAggregation(value=Combination(mixing=np.ones((1, 2)))), "expected finite weights [m, "),
    ("aggregation", OwnAggregation(value=Combination(cut=9)), "cut: expected fewer than half of "),
    ("aggregation", OwnAggregation(value=Combination(kept=9)), "kept: expected the place of one of"),
]


@pytest.mark.parametrize(("key", "part", "text"), WRONG)
def test_wrong_ones_are_told(scenario, outline, key, part, text):
    found = list(CALLS[key](part, scenario, outline))
    assert sum(text in each for each in found) == 1 and all("test_one_call.py:" in each for each in found)


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
def test_absences_are_of_nodes_that_exist_and_in_order(scenario, outline, absences, text):
    with pytest.raises(ScenarioError) as raised:
        list(CALLS["churn"](OwnChurn(value=absences), scenario, outline))
    assert str(raised.value).startswith("churn: absences of OwnChurn") and text in str(raised.value)


@dataclass(frozen=True, kw_only=True)
class TenClasses(Attack):
    """Attacks that know their data, and rules and schedules that know their scenario, are asked for just that."""

    poisons = True
    nodes: object = (1,)

    def poison(self, inputs, labels, num_classes, rng):
        assert num_classes == 10 and inputs.shape[1:] == (1, 28, 28)
        return inputs, (labels + torch.arange(10)[3]) % num_classes


@dataclass(frozen=True, kw_only=True)
class Listed(Schedule):
    factors: tuple = (1.0, 0.5, 0.1)

    def factor(self, position, length):
        return self.factors[position]


@dataclass(frozen=True, kw_only=True)
class TrimsTwo(Aggregation):
    def combine(self, rows):
        return Combination(cut=2)


@pytest.mark.parametrize(
    ("key", "part"), [("attacks", TenClasses()), ("schedule", Listed()), ("aggregation", TrimsTwo())]
)
def test_parts_that_fit_their_scenario_pass(outline, key, part):
    sets = {"rounds": 3, "algorithm": {"name": "dpsgd", "final_all_reduce": False}, "topology": {"name": "complete"}}
    assert list(CALLS[key](part, from_python("smoke", sets), outline)) == []
