from dataclasses import dataclass

import numpy as np
import pytest
from simpy import Environment

from ddlsim.assembly.draws import step_times_drawn
from ddlsim.devices.base import Devices, StepTimeTrace, Trace
from ddlsim.devices.step_times import Constant, LogNormal, PerNode, Table
from ddlsim.engine.clock import SimulatedClock
from ddlsim.foundation.errors import DdlsimError, ScenarioError


def table(tmp_path, *rows: str) -> Table:
    path = tmp_path / "devices.csv"
    path.write_text("\n".join(("node,step_time_s", *rows)))
    return Table(path=str(path))


def test_constant_is_the_same_for_all():
    assert Constant(step_time_s=0.2).draw(3, seed=0).tolist() == [0.2, 0.2, 0.2]


def test_per_node_needs_one_value_per_node():
    assert PerNode(step_times_s=(1, 2)).draw(2, seed=0).tolist() == [1, 2]
    with pytest.raises(ScenarioError, match="expected 3 values, one per node, got 2"):
        PerNode(step_times_s=(1, 2)).draw(3, seed=0)


def test_lognormal_has_its_median_and_spread():
    drawn = np.log(LogNormal(median_step_time_s=0.1, sigma=0.5).draw(2000, seed=0))
    assert np.median(drawn) == pytest.approx(np.log(0.1), abs=0.05)
    assert drawn.std() == pytest.approx(0.5, abs=0.04)


def test_lognormal_is_not_shifted_by_another_node():
    assert LogNormal().draw(3, seed=0).tolist() == LogNormal().draw(4, seed=0)[:3].tolist()


def test_table_gives_each_node_its_row(tmp_path):
    assert table(tmp_path, "1,0.5", "0,2", "5,9").draw(2, seed=0).tolist() == [2, 0.5]


def test_table_needs_a_row_for_each_node(tmp_path):
    with pytest.raises(ScenarioError, match=r"devices\.csv: expected a row for each of 3 nodes, got none for node 1"):
        table(tmp_path, "0,1", "2,1").draw(3, seed=0)


def test_bad_rows_of_a_table_are_named_with_their_lines(tmp_path):
    with pytest.raises(ScenarioError, match=r"devices\.csv:3: node: expected one row per node, got node 0 again"):
        table(tmp_path, "0,1", "0,2").draw(1, seed=0)
    with pytest.raises(ScenarioError, match=r"devices\.csv:2: step_time_s: expected a .* 1e\+09, got '-1'"):
        table(tmp_path, "0,-1").draw(1, seed=0)


def trace(tmp_path, *rows: str) -> Trace:
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(("time_s,node,step_time_s", *rows)))
    return Trace(path=str(path))


def test_trace_is_followed_in_the_middle_of_a_training(tmp_path):
    drawn = trace(tmp_path, "10,0,2", "0,0,1", "0,1,5", "20,0,0.5", "3,7,1").draw(2, seed=0)
    assert len(drawn.times_s) == 2
    assert drawn.duration_s(0, 4, start_s=0) == 4
    assert drawn.duration_s(0, 4, start_s=8) == 2 + 4  # two steps of 1 s, then two of 2 s
    assert drawn.duration_s(0, 10, start_s=8) == 2 + 10 + 1.5  # all three speeds
    assert drawn.duration_s(0, 2.5, start_s=10) == 5
    assert drawn.duration_s(0, 4, start_s=100) == 2
    assert drawn.duration_s(1, 3, start_s=100) == 15


def test_trace_may_contain_steps_of_zero_time(tmp_path):
    drawn = trace(tmp_path, "0,0,2", "10,0,0", "20,0,1").draw(1, seed=0)
    assert drawn.duration_s(0, 8, start_s=6) == 4
    assert drawn.duration_s(0, 8, start_s=19) == 0


def test_trace_needs_each_node_from_the_start(tmp_path):
    with pytest.raises(ScenarioError, match=r"a row at time 0 for each of 2 nodes, got none for node 1"):
        trace(tmp_path, "0,0,1", "0.5,1,1").draw(2, seed=0)
    with pytest.raises(ScenarioError, match=r"trace\.csv:3: .* got node 0 at 0 s again"):
        trace(tmp_path, "0,0,1", "0,0,2").draw(1, seed=0)


@dataclass(frozen=True, kw_only=True)
class Own(Devices):
    """User-defined devices."""

    drawn: object = None

    def draw(self, num_nodes, seed):
        return self.drawn


@pytest.mark.parametrize(
    ("drawn", "text"),
    [
        (None, "expected numbers, got nothing (None)"),
        ([1.0, 2.0, 3.0], "expected an array [2], one number per node, got [3]"),
        ([1.0, np.nan], "of node 1: expected finite numbers of 0 or more, got nan"),
        ([-1.0, np.inf], "of node 0: expected finite numbers of 0 or more, got -1.0 (2 of 2 are wrong)"),
        (StepTimeTrace(((0.0,),), ((1.0,),)), "expected traces of 2 nodes, got 1"),
        (StepTimeTrace(((0.0,), (1.0,)), ((1.0,), (1.0,))), "times_s of node 1: expected times in order, the first"),
        (StepTimeTrace(((0.0,), (0.0,)), ((1.0,), (1.0, 2.0))), "step_times_s of node 1: expected an array [1]"),
    ],
)
def test_invalid_step_times_are_errors(drawn, text):
    with pytest.raises(ScenarioError) as raised:
        step_times_drawn(Own(drawn=drawn), 2, 0)
    assert str(raised.value).startswith("devices: draw of Own") and text in str(raised.value)


@pytest.mark.parametrize("seconds", [np.nan, -1.0, np.inf])
def test_invalid_delay_of_the_clock_is_an_error(seconds):
    with pytest.raises(DdlsimError, match="expected simulated seconds of 0 or more"):
        SimulatedClock(Environment(), np.ones(1)).after(seconds)
