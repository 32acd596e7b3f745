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


def test_resumed_run_keeps_its_metric_functions(tmp_path):
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


def test_grid_of_a_sweep_overrides_keywords(tmp_path):
    swept = ddlsim.sweep(TINY, {"training.lr": [0.1, 0.2]}, data=DATA, rounds=1, training={"bs": 4}, out=tmp_path / "s")
    rates = [(run.scenario["training"]["learning_rate"], run.scenario["training"]["batch_size"]) for run in swept.runs]
    assert rates == [(0.1, 4), (0.2, 4)] and swept.runs[0].scenario["rounds"] == 1


class Logits(nn.Module):
    """A network with outputs like those of transformers, or with plain logits."""

    def __init__(self, wraps=True):
        super().__init__()
        self.wraps, self.hidden, self.classifier = wraps, nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x):
        logits = self.classifier(torch.tanh(self.hidden(x.flatten(1))))
        return SimpleNamespace(logits=logits, loss=None) if self.wraps else logits


@pytest.mark.parametrize("stacked", [False, True])
def test_outputs_with_logits_train_like_plain_logits(tmp_path, monkeypatch, stacked):
    monkeypatch.setattr(learner, "make_backends", partial(make_backends, stacked=stacked))
    found = []
    for wraps in (True, False):
        keys = {"algorithm": "facade", "model": partial(Logits, wraps), "data": DATA, "profile": True}
        run = ddlsim.run(TINY, **keys, out=tmp_path / str(wraps))
        assert ("stacked" in run.summary["paths"]) == stacked
        found.append((run.evaluations().to_numpy().tolist(), run.summary["paths"], run.evaluate(DATA[1])))
    assert found[0] == found[1]


def frame(pandas, rows=60):
    """Return a data frame of numbers, words and a missing cell, with words as labels."""
    kind = np.array(["no", "perhaps", "yes"])[LABELS[:rows]]
    found = pandas.DataFrame(
        {
            "a": FEATURES[:rows, 0].astype(float),
            "b": FEATURES[:rows, 1].astype(float),
            "site": ["x", "y"] * (rows // 2),
            "kind": kind,
        }
    )
    found.loc[3, "a"] = np.nan
    return found


def test_data_frame_is_read_as_a_csv_file_with_its_cells(tmp_path):
    pandas = pytest.importorskip("pandas")
    whole = frame(pandas)
    whole.to_csv(tmp_path / "t.csv", index=False)
    read = ddlsim.data.DATASETS["table"](path=str(tmp_path / "t.csv"), label="kind", test_fraction=0.3).load(
        ddlsim.data.DataSearch(download=False)
    )
    found = resolve(TINY, data={"train": whole, "label": "kind", "test_fraction": 0.3}).data.load(None)
    assert np.array_equal(found.train_images, read.train_images) and np.array_equal(found.test_labels, read.test_labels)
    assert found.class_names == ("no", "perhaps", "yes") and found.inputs == read.inputs
    apart = resolve(TINY, data=tuple(each.rename(columns={"kind": "label"}) for each in (whole[:40], whole[40:]))).data
    assert len(apart.load(None).test_labels) == 20 and apart.load(None).columns["site"]["train"][1] == "y"
    with pytest.raises(ScenarioError, match="of labels, got a, b, site, kind"):
        resolve(TINY, data=whole)


def test_run_of_an_equal_data_frame_is_loaded(tmp_path):
    pandas = pytest.importorskip("pandas")
    run = ddlsim.run(TINY, data={"train": frame(pandas), "label": "kind"}, out=tmp_path / "run")
    before = (tmp_path / "run" / "summary.json").stat().st_mtime_ns
    ddlsim.run(TINY, data={"train": frame(pandas), "label": "kind"}, out=tmp_path / "run")
    assert (tmp_path / "run" / "summary.json").stat().st_mtime_ns == before
    scores = run.evaluate((frame(pandas).drop(columns="kind"), frame(pandas)["kind"]))
    assert 0 < scores["accuracy"] <= 1
    other = frame(pandas)
    other.loc[0, "b"] += 1
    one, same, changed = (
        resolve(TINY, data={"train": each, "label": "kind"}).data.sha256 for each in (frame(pandas),) * 2 + (other,)
    )
    assert one == same != changed
    swept = ddlsim.sweep(TINY, {"data": [{"train": other, "label": "kind"}, DATA]}, rounds=1, out=tmp_path / "sweep")
    assert len(swept.runs) == 2


def test_hugging_face_data_sets_are_accepted_from_python():
    datasets = pytest.importorskip("datasets")
    rows = {"x": FEATURES[:, :2].tolist(), "label": [["b", "a", "c"][label] for label in LABELS]}

    def part(start, end):
        table = datasets.table.InMemoryTable.from_pydict({name: values[start:end] for name, values in rows.items()})
        return datasets.Dataset(table, fingerprint="0")

    found = resolve(TINY, data=part(0, 120)).data.load(None)
    assert found.class_names == ("a", "b", "c") and len(found.test_labels) == 24
    parts = datasets.DatasetDict(train=part(0, 90), test=part(90, 120))
    found = resolve(TINY, data=parts).data.load(None)
    assert np.array_equal(found.test_images[:, 0, :, 0], FEATURES[90:, :2])
    assert found.test_labels[:3].tolist() == [[1, 0, 2][label] for label in LABELS[90:93]]
    assert np.array_equal(
        resolve(TINY, data=(parts["train"], parts["test"])).data.load(None).test_labels, found.test_labels
    )


def test_words_as_labels_are_classes_in_alphabetical_order(tmp_path):
    words = np.array(["zebra", "ant", "cat"])[LABELS]
    data = (FEATURES[:90], list(words[:90])), (FEATURES[90:], words[90:].astype(object))
    found = resolve(TINY, data=data).data.load(None)
    assert found.class_names == ("ant", "cat", "zebra")
    assert found.test_labels[:4].tolist() == [[2, 0, 1][label] for label in LABELS[90:94]]
    run = ddlsim.run(TINY, data=data, out=tmp_path / "run")
    assert run.evaluate((FEATURES[90:], words[90:])) == run.evaluate((FEATURES[90:], found.test_labels))
    with pytest.raises(ddlsim.DataDamaged, match="expected labels ant, cat, zebra, got 'dog'"):
        run.evaluate((FEATURES[:2], ["ant", "dog"]))


def test_single_torch_data_set_is_split_by_class():
    whole = torch.utils.data.TensorDataset(torch.from_numpy(FEATURES), torch.from_numpy(LABELS))
    found = resolve(TINY, data={"train": whole, "test_fraction": 0.25}).data.load(None)
    expected = [round(0.25 * count) for count in np.bincount(LABELS)]
    assert np.bincount(found.test_labels).tolist() == expected
    assert len(resolve(TINY, data=whole).data.load(None).train_labels) == 120 - sum(
        round(0.2 * n) for n in np.bincount(LABELS)
    )
