from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from ddlsim.cli import app
from ddlsim.runs import load_data, prepare
from ddlsim.runs.calibrate import StepTimes, devices_section, measure
from ddlsim.scenario import load

SMOKE = Path(__file__).parents[1] / "helpers" / "smoke.yaml"


def test_the_section_holds_medians():
    times = {"a": StepTimes(np.array([1.0, 2.0, 9.0])), "b": StepTimes(np.array([0.5]))}
    assert devices_section(times, ["a", "b", "a"]) == {"name": "per_node", "step_times_s": [2.0, 0.5, 2.0]}
    assert devices_section({"b": times["b"]}) == {"name": "constant", "step_time_s": 0.5}


def test_a_step_of_the_scenarios_model_is_measured():
    scenario = load("smoke")
    (times,) = measure(scenario, prepare(load_data(scenario)), seconds=0.0).values()
    assert len(times.seconds) == 10
    assert 0 < times.median_s < 1


def test_written_section_is_valid_in_a_scenario(tmp_path):
    out = tmp_path / "devices.yaml"
    result = CliRunner().invoke(app, ["calibrate", "smoke", "--seconds", "0", "--out", str(out)])
    assert result.exit_code == 0 and "10 measurements" in out.read_text()
    (tmp_path / "mine.yaml").write_text(f"extends: {SMOKE}\n" + out.read_text())
    assert load(str(tmp_path / "mine.yaml")).devices.step_time_s > 0
