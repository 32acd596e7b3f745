from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ddlsim.cli import app
from ddlsim.foundation.errors import ScenarioError
from ddlsim.runs import load_data, prepare
from ddlsim.runs.calibrate import StepTimes, devices_section, measure, read_measurements
from ddlsim.scenario import load

SMOKE = Path(__file__).parents[1] / "helpers" / "smoke.yaml"


@pytest.fixture
def measured(tmp_path):
    def write(text):
        path = tmp_path / "measured.csv"
        path.write_text(text)
        return path

    return write


def test_repeated_measurements_of_a_device_are_combined(measured):
    times = read_measurements(measured("device,step_time_s\n# a comment\npi,0.02\nphone,0.01\npi,0.03\n"))
    assert {device: found.median_s for device, found in times.items()} == {"pi": 0.025, "phone": 0.01}


def test_byte_order_marks_and_blanks_are_ignored(measured):
    times = read_measurements(measured("\ufeffdevice, step_time_s\r\npi, 0.02\r\n\r\nphone,0.01 \r\n"))
    assert {device: found.median_s for device, found in times.items()} == {"pi": 0.02, "phone": 0.01}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("device,step_time_s\npi,fast\n", ":2: .*step_time_s.*expected a finite number from 0 to below 1e+09, got"),
        ("device,step_time_s\npi,0\n", ":2: step_time_s: expected seconds above 0, got 0"),
        ("device,step_time_s\npi\n", ":2: expected 2 values"),
        ("device,seconds\n", "expected the columns device,step_time_s, got device,seconds"),
        ("", "expected the columns device,step_time_s, got an empty file"),
        ("device,step_time_s\n", "expected at least one measurement, got only the columns"),
    ],
)
def test_a_wrong_measurement_is_named(measured, text, problem):
    with pytest.raises(ScenarioError, match=problem.replace("+", r"\+")):
        read_measurements(measured(text))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ScenarioError, match=r"nothing\.csv: expected a CSV file"):
        read_measurements(tmp_path / "nothing.csv")


def test_the_section_holds_medians():
    times = {"a": StepTimes(np.array([1.0, 2.0, 9.0])), "b": StepTimes(np.array([0.5]))}
    assert devices_section(times, ["a", "b", "a"]) == {"name": "per_node", "step_times_s": [2.0, 0.5, 2.0]}
    assert devices_section({"b": times["b"]}) == {"name": "constant", "step_time_s": 0.5}


def test_a_step_of_the_scenarios_model_is_measured():
    scenario = load("smoke")
    (times,) = measure(scenario, prepare(load_data(scenario)), seconds=0.0).values()
    assert len(times.seconds) == 10
    assert 0 < times.median_s < 1


def test_written_section_is_valid_in_a_scenario(measured, tmp_path):
    found = measured("device,step_time_s\npi,0.02\nphone,0.01\n")
    out = tmp_path / "devices.yaml"
    result = CliRunner().invoke(app, ["calibrate", "smoke", "--measurements", str(found), "--out", str(out)])
    assert result.exit_code == 0
    (tmp_path / "mine.yaml").write_text(f"extends: {SMOKE}\n" + out.read_text())
    assert load(str(tmp_path / "mine.yaml")).devices.step_times_s == (0.02, 0.01) * 4
