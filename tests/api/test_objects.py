"""Objects from Python: functions as metrics, sections as keywords, outputs with logits, data frames and data sets."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import ddlsim
from ddlsim.foundation.errors import ScenarioError
from ddlsim.learning import learner
from ddlsim.learning.backends.stacked import make_backends
from ddlsim.runs.api.start import resolve
from ddlsim.scenario.model import to_plain
from ddlsim.tasks import TASKS
from ddlsim.tasks.measured import with_metrics

FEATURES = np.random.default_rng(0).normal(size=(120, 4)).astype("float32")
LABELS = FEATURES[:, :3].argmax(1)
DATA = (FEATURES[:90], LABELS[:90]), (FEATURES[90:], LABELS[90:])
TINY = {
    "name": "tiny",
    "rounds": 2,
    "nodes": {"clusters": [4]},
    "algorithm": "dpsgd",
    "model": "linear",
    "topology": "ring",
    "training": {"lr": 0.1, "local_steps": 2},
    "evaluation": {"every": 1},
}


def top2(predictions, targets):
    return np.mean([target in row.argsort()[-2:] for row, target in zip(predictions, targets, strict=True)])


def test_metric_function_gets_outputs_and_labels_of_all_samples():
    task = with_metrics(TASKS["classification"](), {"top2": top2, "samples": lambda outputs, labels: len(labels)})
    outputs = torch.tensor([[[3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [0.0, 2.0, 1.0], [2.0, 0.0, 1.0]]])
    statistics = task.statistics(outputs, torch.tensor([[0, 1, 0, 1]]))[0].numpy()
    assert [metric.name for metric in task.metrics] == ["accuracy", "top2", "samples"]
    assert task.values(statistics, 1.0) == (0.25, 0.5, 4)
    assert task.confusion(statistics).tolist() == [[1, 1, 0], [2, 0, 0], [0, 0, 0]]
    labels = with_metrics(TASKS["multi_label"](), {"positive": lambda outputs, labels: labels.sum()})
    statistics = labels.statistics(outputs[:, :2], torch.tensor([[[1, 0, 1], [1, 0, 0]]]))[0].numpy()
    assert labels.measures(statistics, 1.0)["positive"] == 3


def test_metrics_of_a_run_are_rows_in_the_summary_and_survive_a_resume(tmp_path):
    class Stop(ddlsim.Callback):
        def on_round(self, completed):
            raise ddlsim.StopRun

    keys = {"data": DATA, "metrics": {"top2": top2}}
    run = ddlsim.run(TINY, **keys, out=tmp_path / "run")
    own = run.evaluations()
    values = own[(own.metric == "top2") & (own["round"] == 2)]["value"]
    x, y = DATA[1]
    scores = run.model(0)(run.preprocess(x)).detach().numpy()
    assert len(values) == 4 and values.iloc[0] == pytest.approx(top2(scores, y))
    assert run.evaluate(DATA[1])["top2"] == pytest.approx(values.iloc[0])
    assert "top2, all nodes" in str(run) and "fair" not in run.summary["also_measured"]
    plain = ddlsim.run(TINY, data=DATA, out=tmp_path / "plain")
    assert plain.summary["accuracy"] == run.summary["accuracy"]
    ddlsim.run(TINY, **keys, out=tmp_path / "part", callbacks=[Stop()])
    with pytest.raises(ScenarioError, match=r"task: .*, got one with other values"):
        ddlsim.resume(tmp_path / "part", data=DATA, metrics={"top2": lambda outputs, labels: 0.0})
    resumed = ddlsim.resume(tmp_path / "part", **keys)
    assert resumed.evaluations().equals(own)


def test_metric_errors_name_the_function(tmp_path):
    with pytest.raises(ScenarioError, match=r"metrics: bad raises ZeroDivisionError for outputs \[1, 3\]"):
        ddlsim.run(TINY, data=DATA, metrics={"bad": lambda outputs, labels: 1 / 0}, out=tmp_path / "run")
    with pytest.raises(ScenarioError, match="expected a name that is not accuracy or f1_macro"):
        resolve(TINY, data=DATA, metrics={"accuracy": top2})


def test_keywords_are_keys_of_the_scenario():
    found = resolve(
        TINY | {"churn": "diurnal"},
        data=DATA,
        rounds=3,
        partition={"name": "dirichlet", "alpha": 0.3},
        training={"bs": 5},
        network={"links": {"uplink_mbps": 7}},
        churn=None,
        nodes={"clusters": [5]},
    )
    plain = to_plain(found)
    assert (plain["rounds"], plain["partition"]["alpha"]) == (3, 0.3)
    assert (plain["churn"], plain["nodes"]["clusters"]) == (None, [5])
    training, links = plain["training"], plain["network"]["links"]
    assert (training["learning_rate"], training["batch_size"], training["local_steps"]) == (0.1, 5, 2)
    assert (links["name"], links["uplink_mbps"], links["downlink_mbps"]) == ("uniform", 7, 100)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'lr'. Did you mean 'training.learning_rate'"):
        ddlsim.run(TINY, data=DATA, lr=0.1)


def test_keywords_of_a_sweep_yield_to_its_grid(tmp_path):
    swept = ddlsim.sweep(TINY, {"training.lr": [0.1, 0.2]}, data=DATA, rounds=1, training={"bs": 4}, out=tmp_path / "s")
    rates = [(run.scenario["training"]["learning_rate"], run.scenario["training"]["batch_size"]) for run in swept.runs]
    assert rates == [(0.1, 4), (0.2, 4)] and swept.runs[0].scenario["rounds"] == 1


class Logits(nn.Module):
    """A network with outputs as those of transformers, or with their logits alone."""

    def __init__(self, wraps=True):
        super().__init__()
        self.wraps, self.hidden, self.classifier = wraps, nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x):
        logits = self.classifier(torch.tanh(self.hidden(x.flatten(1))))
        return SimpleNamespace(logits=logits, loss=None) if self.wraps else logits


@pytest.mark.parametrize("stacked", [False, True])
def test_outputs_with_logits_train_as_the_logits_alone(tmp_path, monkeypatch, stacked):
    monkeypatch.setattr(learner, "make_backends", partial(make_backends, stacked=stacked))
    found = []
    for wraps in (True, False):
        keys = {"algorithm": "facade", "model": partial(Logits, wraps), "data": DATA, "profile": True}
        run = ddlsim.run(TINY, **keys, out=tmp_path / str(wraps))
        assert ("stacked" in run.summary["paths"]) == stacked
        found.append((run.evaluations().to_numpy().tolist(), run.summary["paths"], run.evaluate(DATA[1])))
    assert found[0] == found[1]
