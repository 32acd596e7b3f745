"""DAC on the synthetic problem against a second simulation that shares no code with ddlsim."""

import json
from statistics import mean

import pytest
from dac_in_numpy import mean_error

from ddlsim import runs
from ddlsim.runs.reproduce.matrix import read_matrix, runs_of


@pytest.mark.slow
def test_dac_on_the_synthetic_problem_equals_plain_numpy(tmp_path):
    ours = []
    for run in runs_of(read_matrix("synthetic"), tmp_path, seeds=3, patterns=["cosine_gradients/fedavg"]):
        runs.run(run.scenario, out=run.directory)
        ours.append(json.loads((run.directory / "summary.json").read_text())["mse"]["all"])
    theirs = [mean_error(seed) for seed in range(1, 11)]
    assert len(ours) == 3
    assert mean(ours) == pytest.approx(mean(theirs), abs=0.5)
    assert mean(theirs) == pytest.approx(10.32, abs=0.3)  # published: 10.32 +- 0.23
