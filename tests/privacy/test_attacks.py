"""Forged messages of private runs: attacked nodes ignore the protocol and know released models."""

import json

import pytest
import torch

from ddlsim import runs
from ddlsim.attacks.forgeries import FOE
from ddlsim.network.messages.gaussian import GaussianMechanism
from ddlsim.report.summary_table import table
from ddlsim.scenario import from_mapping

CLIP = 0.01
ALGORITHMS = {
    "el": {"final_all_reduce": False},
    "pens": {"loss_batches": "local_steps", "sampled_peers": 2, "stage1_rounds": 1},
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_forger_adds_no_noise_and_knows_released_models(tmp_path, monkeypatch, algorithm):
    """EL pushes models, PENS pulls them; without noise a released model has the norm of the clip."""
    pytest.importorskip("opacus")
    seen, released = [], []
    encode = GaussianMechanism.encode

    def forge(self, given):
        seen.append((given.own.norm().item(), [row.norm().item() for row in given.known]))
        return given.own

    def counted(self, values, *more):
        released.append(len(values))
        return encode(self, values, *more)

    monkeypatch.setattr(FOE, "forge", forge)
    monkeypatch.setattr(GaussianMechanism, "encode", counted)
    scenario = from_mapping(
        {
            "rounds": 3,
            "nodes": {"clusters": [5]},
            "algorithm": {"name": algorithm, **ALGORITHMS[algorithm]},
            "model": {"name": "mlp", "hidden": [8]},
            "data": {"name": "fashion-mnist-mini"},
            "training": {"learning_rate": 0.05, "local_steps": 2},
            "topology": {"name": "complete"},
            "privacy": {"clip": CLIP, "noise_multiplier": 0.0, "clips": "model"},
            "attacks": [{"name": "foe", "nodes": [0], "knowledge": "all"}],
        }
    )
    runs.run(scenario, out=tmp_path / "run")
    assert all(own > 10 * CLIP for own, _ in seen)
    known = seen[-1][1]
    assert known == pytest.approx([CLIP] * len(known), rel=1e-4)
    if algorithm == "el":
        assert len(seen) == 3 and len(known) == 4
        assert sum(released) == 3 * 4


def test_sums_are_secure_and_noised_at_once(tmp_path):
    pytest.importorskip("opacus")
    scenario = from_mapping(
        {
            "rounds": 2,
            "nodes": {"clusters": [4]},
            "algorithm": {"name": "fedavg"},
            "model": {"name": "mlp", "hidden": [8]},
            "data": {"name": "fashion-mnist-mini"},
            "training": {"learning_rate": 0.05, "local_steps": 2},
            "topology": {"name": "complete"},
            "privacy": {"clip": 1.0, "noise_multiplier": 0.5},
            "secure_aggregation": {"threshold": 2},
            "attacks": [{"name": "sign_flip", "nodes": [0]}],
        }
    )
    summary = runs.run(scenario, out=tmp_path / "run")
    assert summary["secure_aggregation"]["sums"] == 2
    assert torch.isfinite(torch.tensor(summary["privacy"]["epsilon"]["max"]))


@pytest.mark.parametrize(
    ("nodes", "start_round", "unprotected"), [([0, 1], 0, 2), ([0, 1], 1, 2), ([0, 1, 2, 3, 4], 0, 5), ([], 0, 0)]
)
def test_node_sending_without_noise_has_no_guarantee(tmp_path, nodes, start_round, unprotected):
    pytest.importorskip("opacus")
    scenario = from_mapping(
        {
            "rounds": 2,
            "nodes": {"clusters": [5]},
            "algorithm": {"name": "el", "final_all_reduce": False},
            "model": {"name": "mlp", "hidden": [8]},
            "data": {"name": "fashion-mnist-mini"},
            "training": {"learning_rate": 0.05, "local_steps": 2},
            "topology": {"name": "complete"},
            "evaluation": {"every": 1},
            "privacy": {"clip": 1.0, "noise_multiplier": 2.0},
            "attacks": [{"name": "sign_flip", "nodes": nodes, "start_round": start_round}] if nodes else [],
        }
    )
    summary = runs.run(scenario, out=tmp_path / "run")
    spent = summary["privacy"]["epsilon"]
    assert spent["unprotected"] == unprotected
    assert (spent["max"] is None) == (unprotected == 5) and (spent["max"] == pytest.approx(spent["mean"]))
    last = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    protected = {row["node"] for row in last if row["name"] == "epsilon" and row["round"] == 2}
    assert protected == set(range(5)) - set(nodes)
    shown = table(summary)
    assert ("2 nodes sent without noise: no guarantee" in shown) == (unprotected == 2)
    assert ("no guarantee" in shown) == bool(unprotected)
