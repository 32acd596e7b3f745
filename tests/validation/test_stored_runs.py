"""Real runs that were measured, beside what ddlsim says of them now; nothing is learned, so it takes no time."""

import numpy as np
import pytest
from compare_runs import NETWORKS, PLAIN_QUEUE, TARGET, read_runs

RUNS = {f"{run.about['name']}, {run.about['queue']}": run for run in read_runs()}


@pytest.mark.parametrize("name", RUNS)
def test_models_of_the_deployment_were_those_of_the_simulation(name):
    about = RUNS[name].about
    assert about["largest_difference"] < 1e-5
    assert about["accuracy"][str(len(RUNS[name].complete_s))] == pytest.approx(about["simulated_accuracy"], abs=1e-6)
    assert max(about["accuracy"].values()) > TARGET


@pytest.mark.parametrize("name", RUNS)
def test_seconds_to_the_target_are_within_ten_percent(name):
    run = RUNS[name]
    network = NETWORKS["tcp"] if run.about["queue"] == "fair" else PLAIN_QUEUE
    simulated_s = run.simulated_s(network)
    assert simulated_s[run.target_round - 1] == pytest.approx(run.complete_s[run.target_round - 1], rel=0.1)


def test_rounds_are_within_five_percent_behind_fair_queues():
    for run in (run for run in RUNS.values() if run.about["queue"] == "fair"):
        simulated_s, measured_s = np.diff(run.simulated_s(NETWORKS["tcp"])), np.diff(run.complete_s)
        assert np.median(simulated_s) == pytest.approx(np.median(measured_s), rel=0.05)
