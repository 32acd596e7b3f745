"""Curves, targets, comparisons and pages of a run under attack cover only honest nodes."""

from pathlib import Path

import numpy as np
import pytest

from ddlsim import runs
from ddlsim.engine.evaluator import Evaluated
from ddlsim.report.columns import rounds
from ddlsim.report.comparing.curves import measure_of
from ddlsim.report.comparing.rows import compared
from ddlsim.report.comparing.tables import notes_of
from ddlsim.report.html.page import run_tiles
from ddlsim.report.reading import read
from ddlsim.report.sections import quality
from ddlsim.report.sections.tables import curve
from ddlsim.report.summary import quality as flat
from ddlsim.report.summary import summary_of
from ddlsim.runs.callbacks import Callback, Evaluation
from ddlsim.scenario import load
from ddlsim.tasks import metrics
from ddlsim.tasks.base import ACCURACY

SMOKE = Path(__file__).parents[1] / "helpers" / "smoke.yaml"
ATTACKED = (1, 6)
TARGET = 0.3


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two of eight nodes learn wrong labels, and nothing is exchanged."""
    directory, evaluations = tmp_path_factory.mktemp("attacked") / "run", []

    class Told(Callback):
        def on_evaluation(self, evaluation):
            evaluations.append(evaluation)

    settings = (
        "algorithm={name: local}",
        f"attacks=[{{name: label_flip, nodes: {list(ATTACKED)}}}]",
        f"evaluation={{every: 1, target_accuracy: {TARGET}, stop_at_target: true}}",
        "rounds=40",
        "training={learning_rate: 0.05, batch_size: 8, local_steps: 5}",
    )
    runs.run(load(SMOKE, settings), out=directory, callbacks=[Told()])
    return read(directory), evaluations


def test_target_is_judged_over_honest_nodes(run):
    records, evaluations = run
    values = records.evaluations.values["accuracy"]
    honest = np.delete(values, ATTACKED, axis=1).mean(1)
    assert values[-1].mean() < TARGET <= honest[-1]  # the run has stopped at it
    assert (honest[:-1] < TARGET).all()
    assert summary_of(records)["target"]["round"] == len(honest)
    assert [evaluation.mean for evaluation in evaluations] == pytest.approx(honest)
    assert evaluations[-1].attacked == ATTACKED
    assert not np.isnan(evaluations[-1].values).any()


def test_curves_are_of_honest_nodes(run):
    records, _ = run
    values = records.evaluations.values["accuracy"]
    honest = np.delete(values, ATTACKED, axis=1)
    assert rounds(records)["accuracy"] == pytest.approx(honest.mean(1))
    assert measure_of(records) == pytest.approx(honest.mean(1))
    assert measure_of(records, "worst_node") == pytest.approx(honest.min(1))
    (line,) = [series for series in quality.over_rounds(records).figure.series if series.label == "honest nodes"]
    assert line.values == pytest.approx(honest.mean(1))
    assert "honest" in curve(records, TARGET).header
    assert quality.nodes(records).about.endswith("Attacked: 1, 6.")


def test_comparisons_and_pages_are_of_honest_nodes(run):
    records, _ = run
    summary = summary_of(records)
    (row,) = compared([records])
    assert row.numbers["accuracy_all"]["mean"] == summary["honest"]["accuracy"]["all"] == flat(summary)["accuracy_all"]
    assert summary["honest"]["accuracy"]["all"] > summary["accuracy"]["all"]
    assert any("to target: accuracy over honest nodes at or above" in note for note in notes_of([row]))
    assert any("honest nodes only; 2 nodes attack them" in note for note in notes_of([row]))
    shown = {tile.name: tile for tile in run_tiles(summary)}["Accuracy %, honest nodes (6)"]
    assert shown.value == f"{100 * summary['honest']['accuracy']['all']:.2f}" and shown.remark.startswith("clusters")


def test_fairness_over_rounds_is_of_honest_nodes(run):
    records, _ = run
    summary = summary_of(records)
    parity, odds = (values[-1] for values in records.fairness)
    assert parity == pytest.approx(summary["honest"]["demographic_parity"])
    assert odds == pytest.approx(summary["honest"]["equalized_odds"])


def test_means_without_attacked_nodes_by_hand():
    values = np.array([0.9, 0.1, 0.5, np.nan])
    outcome = Evaluated(round=1, time_s=0.0, bytes_sent=0, judged_by=ACCURACY, values=values, attacked=(1,))
    assert outcome.reaches(0.7)
    assert not outcome.reaches(0.71)
    evaluation = Evaluation(**vars(outcome), node_cluster=np.array([0, 0, 1, 1]))
    assert evaluation.clusters.tolist() == [0.9, 0.5]
    assert metrics.without(outcome.values, ()) is outcome.values
