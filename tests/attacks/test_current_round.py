"""Omniscient attackers see the current round's honest models: quadratic losses, computed in NumPy."""

import json

import numpy as np
import pytest
from torch import nn

import ddlsim

TARGETS = np.array([0.5, 1.0, -2.0, 3.0, 5.0, -1.0])
"""Node i's loss is (x - TARGETS[i])^2: one number is trained."""
RATE, ROUNDS = 0.05, 7


class Point(nn.Module):
    """One number that starts at 0."""

    def __init__(self):
        super().__init__()
        self.at = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.at.weight)

    def forward(self, x):
        return self.at(x.flatten(1))


@pytest.fixture
def train(tmp_path):
    """Run D-PSGD on a complete graph; return the nodes' final numbers."""

    def train(attack, attacker, step_times_s, **more):
        inputs, labels = np.ones((6, 1), np.float32), TARGETS.astype(np.float32)
        (tmp_path / "nodes.json").write_text(json.dumps([[node] for node in range(6)]))
        scenario = {
            "rounds": ROUNDS,
            "task": {"name": "regression"},
            "nodes": {"clusters": [6]},
            "algorithm": {"name": "dpsgd", "final_all_reduce": False},
            "topology": {"name": "complete"},
            "partition": {"name": "file", "path": str(tmp_path / "nodes.json")},
            "training": {"learning_rate": RATE, "local_steps": 1, "batch_size": 1},
            "devices": {"name": "per_node", "step_times_s": step_times_s},
            "attacks": [{**attack, "nodes": [attacker]}],
            "evaluation": {"every": ROUNDS},
            **more,
        }
        data = ((inputs, labels), (inputs, labels))
        run = ddlsim.run(scenario, model=Point, data=data, out=tmp_path / "run", progress=None)
        return np.array([next(iter(run.state_dict(node).values())).item() for node in range(6)])

    return train


def trained(x):
    return x - 2 * RATE * (x - TARGETS)


def foe(attacker, tau):
    """Every honest node averages all rows; the attacker's row is (1 - tau) times the honest mean."""
    x, honest = np.zeros(6), np.arange(6) != attacker
    for _ in range(ROUNDS):
        x = trained(x)
        forged = (1 - tau) * x[honest].mean()
        x = np.where(honest, (x[honest].sum() + forged) / 6, x.mean())
    return x


SPEEDS = [[0.05] * 6, [0.05, 0.09, 0.02, 0.11, 0.03, 0.07]]


@pytest.mark.parametrize("step_times_s", SPEEDS)
@pytest.mark.parametrize("attacker", [0, 2, 5])
def test_foe_uses_the_models_of_its_round(train, attacker, step_times_s):
    found = train({"name": "foe", "tau": 8}, attacker, step_times_s)
    assert found == pytest.approx(foe(attacker, 8), rel=1e-5)


@pytest.mark.parametrize("step_times_s", SPEEDS)
@pytest.mark.parametrize("attacker", [0, 5])
def test_dissensus_of_strength_1_cancels_the_pull_of_honest_neighbors(train, attacker, step_times_s):
    found = train({"name": "dissensus"}, attacker, step_times_s)
    alone = TARGETS * (1 - (1 - 2 * RATE) ** ROUNDS)
    honest = np.arange(6) != attacker
    assert found[honest] == pytest.approx(alone[honest], rel=1e-5)
