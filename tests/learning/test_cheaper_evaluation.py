"""Cheaper evaluations: on a sample, in bfloat16, and without repeating unchanged models."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ddlsim import runs
from ddlsim.learning.job_types import TestSpec as Evaluation
from ddlsim.scenario import load
from ddlsim.tasks import metrics

SMOKE = Path(__file__).parents[1] / "helpers" / "smoke.yaml"


def smoke(tmp_path, *sets):
    return runs.run(load(SMOKE, ("rounds=4", "evaluation.every=2", *sets)), out=tmp_path)


def test_half_the_width_of_an_interval():
    """Cochran: p = 0.5, n = 101 of 201: 1.96 sqrt(0.25 / 100 * 100 / 201)."""
    assert metrics.sampling_error(0.5, 101, 201) == pytest.approx(1.96 * np.sqrt(0.25 / 202), rel=0.01)
    assert metrics.sampling_error([0.3, 0.7], 50, 50).tolist() == [0, 0]


def test_the_interval_holds_the_share_of_the_whole_set_19_times_of_20():
    """3,000 samples of 200 out of 1,000 that are 30 % right."""
    rng, whole = np.random.default_rng(0), np.arange(1000) < 300
    shares = np.array([rng.choice(whole, 200, replace=False).mean() for _ in range(3000)])
    held = np.abs(shares - 0.3) <= metrics.sampling_error(shares, 200, 1000)
    assert 0.93 < held.mean() < 0.97


def test_bfloat16_affects_only_its_evaluations(make_learner):
    learner = make_learner()
    model = learner.init_models(0)[0]
    exact, rounded = learner.resolve([learner.test([model], 0), learner.test([model], 0, precision="bf16")])
    assert exact[0].loss != rounded[0].loss
    assert rounded[0].loss == pytest.approx(exact[0].loss, rel=2e-2)
    assert learner.resolve([learner.test([model], 0)])[0][0].loss == exact[0].loss


def test_unchanged_model_is_not_evaluated_again(make_learner):
    learner = make_learner()
    models = [learner.init_models(node)[0] for node in range(2)]
    trained = learner.train(0, models[0], 2, np.random.default_rng(0))

    def computed():
        return sum((counts for counts in learner.backends.taken.values()), Counter())[Evaluation.kind]

    first = learner.resolve([learner.test([model], 0) for model in models])
    assert computed() == 2
    second = learner.resolve([learner.test([trained], 0), learner.test([models[1]], 0)])
    assert computed() == 3
    assert second[1][0].loss == first[1][0].loss
    assert second[0][0].loss != first[0][0].loss
    learner.resolve([learner.test([models[0]], 0)])  # two evaluations ago
    assert computed() == 4


def test_run_reports_the_number_of_test_samples(tmp_path):
    whole, sampled = smoke(tmp_path / "whole"), smoke(tmp_path / "sampled", "evaluation.samples=50")
    data = json.loads((tmp_path / "sampled" / "manifest.json").read_text())["data"]
    assert data["tested"] == [[50, data["test"]]]
    (note,) = [label for label in sampled["labels"] if label.startswith("SAMPLED")]
    assert f"50 of {data['test']:,} samples" in note
    assert not [label for label in whole["labels"] if label.startswith("SAMPLED")]


def test_run_reports_evaluation_in_bfloat16(tmp_path):
    assert "tested in bf16: evaluation.precision" in smoke(tmp_path, "evaluation.precision=bf16")["labels"]


def test_evaluation_on_a_sample_changes_only_the_measurements(tmp_path):
    """Trained models and simulated time do not change."""
    smoke(tmp_path / "whole")
    smoke(tmp_path / "sampled", "evaluation.samples=50", "evaluation.precision=bf16")
    traffic = [(tmp_path / name / "communication.jsonl").read_bytes() for name in ("whole", "sampled")]
    assert traffic[0] == traffic[1]
    kept = [(tmp_path / name / "models-0.safetensors").read_bytes() for name in ("whole", "sampled")]
    assert kept[0] == kept[1]
