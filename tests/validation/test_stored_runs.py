"""Measured real runs against current simulations without learning."""

import numpy as np
import pytest
from compare_runs import TCP, read_runs

RUNS = read_runs()
EACH_RUN = pytest.mark.parametrize("run", RUNS, ids=[run.name for run in RUNS])


TOLERANCES = {"el_cifar10": (0.02, 0.005)}
"""Of a parameter, and of accuracy. Sums of convolutions are rounded in another order, which 600 steps enlarge."""


@EACH_RUN
def test_models_of_the_stored_deployment_equal_the_simulation(run):
    of_parameters, of_accuracy = TOLERANCES.get(run.about["name"], (1e-5, 1e-6))
    assert run.about["largest_difference"] < of_parameters
    last = run.about["accuracy"][str(len(run.complete_s))]
    assert last == pytest.approx(run.about["simulated_accuracy"], abs=of_accuracy)
    assert max(run.about["accuracy"].values()) > run.target


@EACH_RUN
def test_seconds_to_the_target_are_within_ten_percent(run):
    simulated_s = run.simulated_s(run.tcp)
    assert simulated_s[run.target_round - 1] == pytest.approx(run.complete_s[run.target_round - 1], rel=0.1)


@pytest.mark.parametrize("name", ["dpsgd, fair", "el, fair"])
def test_stored_rounds_are_within_five_percent_with_fair_queues(name):
    for run in (run for run in RUNS if run.name == name):
        simulated_s, measured_s = np.diff(run.simulated_s(TCP)), np.diff(run.complete_s)
        assert np.median(simulated_s) == pytest.approx(np.median(measured_s), rel=0.05)
