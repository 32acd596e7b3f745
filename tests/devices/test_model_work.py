"""Step times from a model's operations, counted by hand: a product of matrices [a, b] [b, c] has 2abc."""

from pathlib import Path

import pytest
import torch
from simpy import Environment
from torch import nn

from ddlsim import assembly, runs
from ddlsim.devices.base import StepWork
from ddlsim.devices.step_times import LAUNCH_S, PRESETS, Estimated, LogNormal
from ddlsim.engine.clock import SimulatedClock
from ddlsim.foundation.errors import ScenarioError
from ddlsim.learning.model_sizes import MOST_VALUES, count_step
from ddlsim.report.summary_table import step_times_text
from ddlsim.runs import load_data, prepare
from ddlsim.scenario import load
from ddlsim.scenario.tree import ScenarioProblems

SMOKE = Path(__file__).parents[1] / "helpers" / "smoke.yaml"
SMALL = "devices={name: estimated}", "model={name: mlp, hidden: [32]}", "training.batch_size=4", "rounds=1"


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.recurrent = nn.LSTM(6, 5, batch_first=True)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.recurrent(self.embedding(tokens))[0]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.zeros(4, 5, 3))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(self.query + inputs, inputs, inputs)


class Unwilling(nn.Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no zeros here")


def counted(make, *shape, batch=4, dtype=torch.float32, is_sequence=False, size=1):
    return count_step(make, shape, dtype, batch, is_sequence, size)


@pytest.mark.parametrize("size", [1, MOST_VALUES + 1], ids=["computed", "without memory"])
def test_operations_of_an_mlp_by_hand(size):
    """In the backward pass each layer computes the gradient of its weights, and all but the first of their inputs."""
    found = counted(lambda: nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10)), 784, size=size)
    first, second = 2 * 4 * 784 * 32, 2 * 4 * 32 * 10
    assert found == StepWork(first + second, 2 * first + 3 * second)


def test_operations_of_convolutions_by_hand():
    """Each output value takes two operations per weight: input channels x kernel."""
    make = lambda: nn.Sequential(nn.Conv2d(3, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 6, 3, stride=2))  # noqa: E731
    first, second = 2 * 4 * (8 * 16 * 16) * (3 * 5 * 5), 2 * 4 * (6 * 7 * 7) * (8 * 3 * 3)
    assert counted(make, 3, 16, 16) == StepWork(first + second, 2 * first + 3 * second)


def test_operations_of_recurrent_layers_and_attention_by_hand():
    """Four gates of 5 from 6 features and 5 states, at 7 tokens; scores and sums of 4 heads over 5 x 5 pairs of 3."""
    tokens = counted(Recurrent, 7, dtype=torch.int64, is_sequence=True)
    assert tokens.forward_flops == 2 * 4 * 7 * 20 * (6 + 5)
    attention = counted(Attention, 4, 5, 3, batch=1)
    assert attention.forward_flops == 2 * (2 * 4 * 5 * 5 * 3)


def test_uncountable_model_costs_six_operations_per_parameter_and_sample():
    assert counted(lambda: Unwilling(3, 2), 3, size=8) == StepWork(2 * 8 * 4, 6 * 8 * 4, counted=False)
    sequences = counted(lambda: Unwilling(3, 2), 7, is_sequence=True, size=8)
    assert sequences.training_flops == 6 * 8 * 4 * 7


def test_counting_draws_no_random_number_of_the_run():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    counted(lambda: nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)), 8)
    assert torch.get_rng_state().equal(before)


def built(*changes):
    scenario = load(SMOKE, (*SMALL, *changes))
    loaded = load_data(scenario)
    prepared = prepare(loaded)
    return scenario, assembly.build_learner(scenario, prepared, "none" if scenario.learning == "none" else "cpu")


@pytest.mark.parametrize("learning", ["real", "none"])
def test_nodes_of_different_architectures_have_different_step_times(learning):
    scenario, learner = built(
        f"learning={learning}", "algorithm={name: mapl}", "devices.device=raspberry_pi_5",
        "model={name: mixed, models: [{name: mlp, hidden: [64, 32]}, {name: mlp, hidden: [96, 32]}], latent: null}",
    )  # fmt: skip
    found = assembly.step_times_of(scenario, learner)
    rate = PRESETS["raspberry_pi_5"].peak_flops_per_s * PRESETS["raspberry_pi_5"].utilization
    expected = []
    for hidden in (64, 96):
        first, others = 2 * 4 * 784 * hidden, 2 * 4 * (hidden * 32 + 32 * 10)
        expected.append(((2 * first + 3 * others) / rate + LAUNCH_S, (first + others) / (2 * first + 3 * others)))
    assert found.seconds == pytest.approx([step_s for step_s, _ in expected] * 4)
    assert found.forward_share == pytest.approx([share for _, share in expected] * 4)


def test_lognormal_speeds_spread_around_the_estimated_time():
    scenario, learner = built("devices={name: lognormal, device: h100, sigma: 0.5}")
    base_s = Estimated(device="h100").base_step_s("", learner.step_work()["MLP"])
    given = LogNormal(median_step_time_s=base_s, sigma=0.5).draw(8, scenario.seed)
    assert assembly.step_times_of(scenario, learner).seconds == pytest.approx(given)


def test_model_given_as_a_size_has_step_times():
    scenario, learner = built("learning=none", "model={name: sizes, core: 900, head: 100}", "algorithm={name: el}")
    assert assembly.step_times_of(scenario, learner).about["flops"] == {"Sizes": 6 * 1000 * 4}


def test_the_summary_names_device_step_time_and_operations(tmp_path):
    summary = runs.run(load(SMOKE, (*SMALL, "learning=none")), out=tmp_path / "run")
    flops = 2 * (2 * 4 * 784 * 32) + 3 * (2 * 4 * 32 * 10)
    shown = f"{1e3 * (LAUNCH_S + flops / (2 * 104.7e9 * 0.15)):.3g} ms per step ({flops / 1e3:.0f} kFLOP, estimated)"
    assert step_times_text(summary["step_times"]) == f"laptop_cpu, {shown}; run `ddlsim calibrate` for your device"
    given = runs.run(load(SMOKE, (*SMALL, "learning=none", "devices={name: constant}")), out=tmp_path / "given")
    assert step_times_text(given["step_times"]) == "constant, 50 ms per step"


@pytest.mark.parametrize("devices", ["{name: estimated}", "{name: constant, step_time_s: 1}"])
def test_a_forward_pass_costs_its_share_of_the_operations_or_a_third(devices):
    scenario, learner = built("learning=none", f"devices={devices}")
    times = assembly.step_times_of(scenario, learner)
    clock = SimulatedClock(Environment(), times.seconds, None, times.forward_share)
    first, second = 784 * 32, 32 * 10
    share = (first + second) / (2 * first + 3 * second) if "estimated" in devices else 1 / 3
    assert clock.computing_s(0, 2, 3) == pytest.approx((2 + 3 * share) * times.seconds[0])


@pytest.mark.full
def test_calibrated_devices_are_measured_once_and_stored_in_the_scenario(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = load(SMOKE, (*SMALL, "devices={name: calibrated}"))
    first = runs.run_in_directory(asked)
    kept = load(first[0] / "scenario.yaml")
    (step_s,) = kept.devices.step_times_s.values()
    assert first[1]["step_times"]["source"] == "measured" and first[1]["step_times"]["step_s"] == [step_s, step_s]
    assert runs.run_in_directory(asked) == first  # found again, not measured again
    again = runs.run(kept, out=tmp_path / "again")
    assert again["sim_time_s"] == first[1]["sim_time_s"]


def test_calibration_of_an_unmeasurable_scenario_is_refused():
    with pytest.raises(ScenarioProblems, match="measures training steps, and learning is none"):
        load(SMOKE, (*SMALL, "devices={name: calibrated}", "learning=none"))
    scenario, learner = built("devices={name: calibrated}")
    with pytest.raises(ScenarioError, match="expected a measured step time of MLP, got none"):
        assembly.step_times_of(scenario, learner)
