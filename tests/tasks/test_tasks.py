"""Losses, labels and outputs of tasks, by hand."""

import dataclasses
import math
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ddlsim import runs
from ddlsim.foundation.errors import DataDamaged, ScenarioError
from ddlsim.learning.architecture import check_task
from ddlsim.learning.losses import MetricSum
from ddlsim.report import columns
from ddlsim.report.reading import read
from ddlsim.scenario import load
from ddlsim.tasks import TASKS, as_task
from ddlsim.tasks.base import ACCURACY, ELSEWHERE, MSE, ROWS, Metric, Task, metric_of, name_conflict
from ddlsim.tasks.builtin import Classification

LOGITS = torch.tensor([[[2.0, 0.0, 0.0], [0.0, 2.0, 0.0]], [[0.0, 0.0, 2.0], [2.0, 0.0, 0.0]]])
TOKENS = torch.tensor([[0, 2], [2, -100]])
RIGHT, WRONG = -math.log(math.exp(2) / (math.exp(2) + 2)), -math.log(1 / (math.exp(2) + 2))


def test_padding_counts_neither_in_the_loss_nor_in_token_accuracy():
    task = as_task("next_token")
    assert task.loss(LOGITS, TOKENS, "none").tolist() == pytest.approx([(RIGHT + WRONG) / 2, RIGHT])
    measures = task.measures(task.statistics(LOGITS[None], TOKENS[None])[0].numpy(), 0.0)
    assert measures["token_accuracy"] == pytest.approx(2 / 3)
    assert measures["perplexity"] == pytest.approx(math.exp((2 * RIGHT + WRONG) / 3))


def test_one_label_per_sequence_is_the_token_after_its_end():
    task = as_task("next_token")
    outputs, labels = LOGITS[:, 0], torch.tensor([0, 2])
    assert float(task.loss(outputs, labels)) == pytest.approx(RIGHT)
    assert task.measures(task.statistics(outputs[None], labels[None])[0].numpy(), 0.0)["token_accuracy"] == 1


def test_multi_label_loss_is_the_mean_of_binary_cross_entropies():
    task = as_task("multi_label")
    outputs, labels = torch.tensor([[0.0, 3.0], [1.0, -1.0]]), torch.tensor([[1, 1], [0, 0]])
    expected = F.binary_cross_entropy_with_logits(outputs, labels.float())
    assert float(task.loss(outputs, labels)) == pytest.approx(float(expected))
    assert task.loss(outputs, labels, "none").sum() == pytest.approx(float(task.loss(outputs, labels, "sum")))


@pytest.mark.parametrize("name", sorted(TASKS))
def test_two_models_are_counted_together_as_alone(name):
    task, rng = as_task(name), torch.Generator().manual_seed(5)
    outputs = torch.randn(2, 6, *task.output_shape(task.num_outputs(3, (3,)), ()), generator=rng)
    labels = {
        "regression": torch.randn(2, 6, generator=rng),
        "multi_label": torch.randint(0, 2, (2, 6, 3), generator=rng),
    }.get(name, torch.randint(0, 3, (2, 6), generator=rng))
    together, alone = (
        MetricSum(task, 2, torch.device("cpu")),
        [MetricSum(task, 1, torch.device("cpu")) for _ in range(2)],
    )
    for part in (slice(0, 4), slice(4, 6)):
        losses = torch.stack([task.loss(outputs[i, part], labels[i, part], "sum") for i in range(2)])
        together.add(outputs[:, part], labels[:, part], losses)
        for i, tally in enumerate(alone):
            tally.add(outputs[i : i + 1, part], labels[i : i + 1, part], losses[i : i + 1])
    for found, tally in zip(together.results(), alone, strict=True):
        (expected,) = tally.results()
        assert found.values == pytest.approx(expected.values) and found.loss == pytest.approx(expected.loss)
        assert (found.confusion is not None) == task.has_classes


def test_key_metric_selects_the_metric_of_the_task():
    assert as_task("next_token").judged_by.falling
    chosen = TASKS["next_token"](metric="token_accuracy")
    assert [metric.name for metric in chosen.metrics] == ["token_accuracy", "perplexity"]
    assert [metric.name for metric in TASKS["classification"](metric="f1_macro").metrics] == ["f1_macro", "accuracy"]
    assert as_task("classification").metrics == (ACCURACY,)


def test_a_manifest_without_a_metric_is_judged_by_accuracy():
    assert metric_of({}) == ACCURACY
    own = Metric("top3", higher_is_better=True, share=True)
    assert metric_of({"metric": own.plain()}) == own


def test_a_diverged_error_is_infinite_and_shares_stay():
    assert MSE.number(math.nan) == math.inf and math.isnan(ACCURACY.number(math.nan))
    assert as_task("regression").values(np.zeros(0), math.nan) == (math.inf,)


def test_undefined_error_differs_from_a_diverged_one():
    padded = torch.full((1, 2, 3), -100)
    counts = as_task("next_token").statistics(torch.zeros(1, 2, 3, 4), padded)
    assert all(map(math.isnan, as_task("next_token").values(counts[0].numpy(), 0.0)))
    assert as_task("next_token").values(np.array([math.nan, 1, 2]), math.nan)[0] == math.inf


@pytest.mark.parametrize(
    ("name", "labels", "text"),
    [
        ("classification", np.array([0, 3]), "must be 0..2, got 0..3"),
        ("classification", np.array([0.5]), "must be whole numbers [n] or [n, T], got float64 [1]"),
        ("regression", np.array([0, 1]), "must be finite float32 numbers, [n], got int64 [2]"),
        ("next_token", np.array([[-100, 1], [-100, -100]]), "in every sample, got 1 of 2 without"),
        ("next_token", np.array([1, -100, -100]), "in every sample, got 2 of 3 without"),
        ("next_token", np.array([[-1, 2]]), "must be 0..2, got -1..2"),
        ("multi_label", np.array([[0, 2]]), "0 or 1 for each of L labels, [n, L], got int64 [1, 2], 0..2"),
        ("multi_label", np.array([0, 1]), "0 or 1 for each of L labels"),
    ],
)
def test_invalid_labels_are_reported(name, labels, text):
    assert text in as_task(name).wrong_labels(labels, 3)


def test_data_of_another_task_is_refused():
    from ddlsim.data import Dataset

    x, y, one = np.zeros((2, 4), np.float32), np.array([0, 1]), np.ones(1, np.float32)
    whole = Dataset("own", x, y, x, y, 2, one, one, "mine.npz")
    with pytest.raises(DataDamaged, match=r"mine.npz: train labels must be 0 or 1 for each .* \(task: multi label\)"):
        dataclasses.replace(whole, task="multi_label")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Good(Task):
    """A valid task, for subclasses with errors."""

    measured: ClassVar = (Metric("hits"),)

    def loss(self, outputs, labels, reduction="mean"):
        return F.cross_entropy(outputs, labels, reduction=reduction)

    def statistics(self, outputs, labels):
        return (outputs.argmax(-1) == labels).float().sum(dim=1, keepdim=True)

    def measures(self, statistics, loss):
        return {"hits": float(statistics[0])}


def checked(**methods):
    task = dataclasses.dataclass(frozen=True, kw_only=True)(type("Mine", (Good,), methods))()
    check_task(task, torch.zeros(1, 3), torch.tensor([1]))


@pytest.mark.parametrize(
    ("methods", "text"),
    [
        ({"loss": lambda *_: None}, r"loss of Mine returns nothing \(None\) with reduction 'mean', expected a scalar"),
        ({"loss": lambda self, x, y, reduction="mean": x}, r"a tensor float32 \[1, 3\] with .*, expected a scalar"),
        ({"loss": lambda self, x, y, reduction="mean": x.detach().sum()}, "expected a scalar with a gradient"),
        ({"loss": lambda self, x, y, reduction="mean": x.sum()}, "'none', expected one value per sample"),
        ({"loss": lambda self, x, y, reduction="mean": x.sum()[0]}, "raises IndexError.*Choose another task"),
        ({"statistics": lambda self, x, y: x.sum()}, r"expected a tensor \[1, ...\]"),
        ({"has_classes": True}, r"expected int64 \[1, C, C\], confusion matrices: has_classes is True"),
        ({"measures": lambda self, s, loss: {"misses": 1.0}}, r"returns nothing \(None\) for hits, expected a number"),
        ({"measures": lambda self, s, loss: {"hits": None}}, r"returns nothing \(None\) for hits, expected a number"),
        ({"measures": lambda self, s, loss: 1.0}, "returns a float as measures, expected a dict with hits"),
    ],
)
def test_faulty_task_is_reported_with_its_place(methods, text):
    checked()
    with pytest.raises(ScenarioError, match=text) as refused:
        checked(**methods)
    assert "test_tasks.py:" in str(refused.value)


@pytest.mark.parametrize(
    ("names", "meant"),
    [
        (("test_loss",), "something else"),
        (("bytes",), "something else"),
        (("time_s",), "something else"),
        (("cluster_1",), "something else"),
        (("hits", "hits_std"), "the deviation of hits"),
        (("hits", "hits_0"), "the cluster of hits"),
    ],
)
def test_metric_names_do_not_conflict_with_other_names(names, meant):
    spoilt = {"measured": tuple(map(Metric, names)), "measures": lambda self, s, loss: dict.fromkeys(names, 0.5)}
    with pytest.raises(ScenarioError, match=f"a metric of Mine is called {names[-1]}, which stands for {meant}"):
        checked(**spoilt)


def test_metrics_may_not_use_names_of_summary_values(tmp_path):
    smoke = Path(__file__).parents[2] / "scenarios" / "smoke.yaml"
    more = ("energy={watts: 10}", "attacks=[{name: sign_flip, nodes: [1]}]", "secure_aggregation={}")
    summary = runs.run(load(smoke, ("algorithm={name: fedavg}", "rounds=1", *more)), out=tmp_path / "run")
    assert summary.keys() - {"accuracy"} <= ROWS | ELSEWHERE
    found = set(columns.rounds(read(tmp_path / "run"))) - {"accuracy"}
    assert {"round", "time_s", "bytes", "joules", "accuracy_std", "test_loss_0"} <= found
    assert all(name_conflict(Metric(name), ()) for name in found)


def test_unknown_metric_is_refused_with_the_known_ones():
    task = dataclasses.dataclass(frozen=True, kw_only=True)(type("Mine", (Good,), {"metric": "hit"}))()
    with pytest.raises(ScenarioError, match=r"metric: unknown metric 'hit'.* measures hits. Choose one"):
        _ = task.metrics


@dataclasses.dataclass(frozen=True, kw_only=True)
class Errors(Classification):
    """A classification with a custom metric."""

    metric: str = "error"
    measured: ClassVar = (*Classification.measured, Metric("error", higher_is_better=False))


def test_metric_added_to_a_classification_is_recorded():
    assert [metric.name for metric in Errors().metrics] == ["error", "accuracy"]
    assert [metric.name for metric in Errors(metric="accuracy").metrics] == ["accuracy", "error"]
    assert [metric.name for metric in Classification().metrics] == ["accuracy"]
    assert [metric.name for metric in Classification(metric="f1_macro").metrics] == ["f1_macro", "accuracy"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Balanced(Classification):
    """A classification with another metric in place of accuracy."""

    metric: str = "balanced"
    measured: ClassVar = (Metric("balanced"),)

    def measures(self, statistics, loss):
        return {"balanced": 0.5}


def test_classification_without_accuracy_is_refused_before_the_run():
    with pytest.raises(ScenarioError, match="for accuracy, expected a number for each of balanced, accuracy"):
        check_task(Balanced(), torch.zeros(1, 3), torch.tensor([1]))
