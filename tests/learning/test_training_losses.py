"""Every backend reports the mean loss over the steps of a training; evaluations measure distances to the average."""

import json

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ddlsim import runs
from ddlsim.engine import evaluator
from ddlsim.learning.learner import Learner
from ddlsim.report.columns import rounds
from ddlsim.report.comparing.curves import curve_of
from ddlsim.report.reading import read
from ddlsim.scenario import from_mapping

TINY = {
    "name": "tiny",
    "rounds": 3,
    "nodes": {"clusters": [3]},
    "algorithm": {"name": "dpsgd"},
    "model": {"name": "mlp", "hidden": [4]},
    "data": {"name": "fashion-mnist-mini"},
    "partition": {"name": "uniform", "samples_per_node": 20},
    "training": {"local_steps": 2, "batch_size": 5, "learning_rate": 0.1},
    "topology": {"name": "complete"},
}


def losses_by_hand(learner, model, steps: int) -> list[float]:
    """Train with plain PyTorch on node 1's batches; return the loss of each step."""
    module = learner.architectures["tiny"].module(torch.device("cpu"))
    torch.nn.utils.vector_to_parameters(torch.cat([part.values() for part in model]), module.parameters())
    images, labels = learner.data.train[1]
    found = []
    order = np.random.default_rng(3).permutation(len(labels))
    for step in range(steps):
        rows = torch.from_numpy(order[4 * step : 4 * step + 4])
        loss = F.cross_entropy(module(images[rows]), labels[rows])
        found.append(loss.item())
        for parameter, gradient in zip(
            module.parameters(), torch.autograd.grad(loss, list(module.parameters())), strict=True
        ):
            parameter.data -= 0.1 * gradient
    return found


@pytest.mark.parametrize("backend", ["one by one", "stacked", "native"])
def test_training_loss_is_the_mean_over_the_steps(make_learner, as_on_a_gpu, monkeypatch, backend):
    if backend == "one by one":
        monkeypatch.setenv("DDLSIM_NATIVE_TRAINING", "0")
    learner = make_learner(batch_size=4, learning_rate=0.1)
    learner = as_on_a_gpu(learner) if backend == "stacked" else learner
    (model,) = learner.init_models(0)
    expected = np.mean(losses_by_hand(learner, model, 3))
    _, state, _ = learner.train_towards(1, model, 3, np.random.default_rng(3), None, None, None)
    (found,) = learner.value(learner.training_losses([state.loss]))
    assert backend in learner.paths
    assert found == pytest.approx(expected, rel=1e-5)


def test_consensus_distance_by_hand(make_learner):
    learner = make_learner()
    models = learner.init_models(0, 3, whole=True)
    values = torch.stack([model[0].values() for model in models])
    expected = (values - values.mean(0)).square().sum(1)
    assert learner.value(learner.consensus_distances(models)) == pytest.approx(expected.tolist(), rel=1e-5)


def test_run_records_training_losses_of_all_rounds_and_the_evaluation_before_them(tmp_path, monkeypatch):
    monkeypatch.setenv("DDLSIM_NATIVE_TRAINING", "0")
    runs.run(from_mapping(TINY | {"evaluation": {"every": 2, "samples": 50, "initial": True}}), out=tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "training.jsonl").open()]
    found = {(row["name"], row["round"], row["node"]) for row in rows}
    assert len(rows) == len(found) == 3 * 3 + 3 * 3
    assert {key for key in found if key[0] == "train_loss"} == {
        ("train_loss", r, n) for r in (1, 2, 3) for n in range(3)
    }
    records = read(tmp_path / "run")
    assert records.curve.round.tolist() == [0, 2, 3]
    assert records.curve.time_s[0] == 0
    table = rounds(records)
    assert table["consensus_distance"] == pytest.approx(0, abs=1e-9)  # a complete graph: all nodes have the mean
    assert curve_of(records, "rounds", "train_loss").round.tolist() == [2, 3]
    assert len(np.unique(table["test_loss"])) == 3


def test_losses_are_written_between_distant_evaluations(tmp_path, monkeypatch):
    read_at_once, training_losses = [], Learner.training_losses
    monkeypatch.setattr(evaluator, "MOST_OPEN", 5)
    monkeypatch.setattr(
        Learner, "training_losses", lambda self, held: read_at_once.append(len(held)) or training_losses(self, held)
    )
    runs.run(from_mapping(TINY | {"evaluation": {"every": 100, "samples": 50}}), out=tmp_path / "run")
    assert read_at_once == [6, 3]  # after two rounds of three nodes, and at the end


def test_initial_evaluation_changes_no_other_evaluation(tmp_path):
    for name, initial in (("without", False), ("with", True)):
        runs.run(
            from_mapping(TINY | {"evaluation": {"every": 2, "samples": 50, "initial": initial}}), out=tmp_path / name
        )
    without, with_initial = (
        [line for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines() if '"round":0,' not in line]
        for name in ("without", "with")
    )
    assert without == with_initial


def test_different_architectures_have_no_consensus_distance(make_learner, tiny_net):
    builders = {"a": tiny_net, "b": lambda: tiny_net(batch_norm=True)}
    learner = make_learner(builders=builders, assigned=["a", "b", "a"])
    models = [learner.init_models(0, node=node)[0] for node in range(2)]
    assert learner.consensus_distances(models) is None
