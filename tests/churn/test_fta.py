"""Churn from the Failure Trace Archive's event_trace, from lines made by hand."""

import json
import math
from pathlib import Path

import pytest

from ddlsim.churn.traces import FailureTrace, read_events
from ddlsim.foundation.errors import ScenarioError
from ddlsim.scenario import load


@pytest.fixture
def trace(tmp_path):
    """Writes lines of (node_id, event_type, start, stop) in the archive's columns; returns the path."""

    def trace(*events, header="", divider="\t"):
        rows = [
            divider.join(map(str, (i, 1, node, 1, "name", kind, a, b, 0)))
            for i, (node, kind, a, b) in enumerate(events)
        ]
        path = tmp_path / "event_trace.tab"
        path.write_text("\n".join([header] * bool(header) + rows) + "\n")
        return str(path)

    return trace


def test_availability_is_counted_from_the_earliest_event(trace):
    path = trace((7, 1, 1000, 1100), (7, 0, 1100, 1150), (7, 1, 1150, 1200), (8, 0, 900, 1000), (8, 1, 1000, 1300))
    assert read_events(path) == {"7": [(100, 200), (250, 300)], "8": [(100, 400)]}


def test_intervals_that_touch_or_overlap_are_one(trace):
    path = trace((1, 1, 0, 10), (1, 1, 10, 20), (1, 1, 15, 18), (1, 1, 30, 30), (1, 1, 40, 50))
    assert read_events(path) == {"1": [(0, 20), (40, 50)]}


def test_columns_may_have_names_and_comma_separators(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("# node_id,event_start_time,event_stop_time,event_type\n3,5,9,1\n# a remark\n3,9,12,0\n")
    assert read_events(str(path)) == {"3": [(0, 4)]}


def test_header_may_follow_comments(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("# of a pool\n\n# event_start_time,event_stop_time,event_type,node_id\n5,9,1,3\n9,12,0,4\n")
    assert read_events(str(path)) == {"3": [(0, 4)]}


def test_only_event_type_1_is_available(trace):
    assert read_events(trace((7, 1, 0, 10), (7, 2, 10, 50), (7, 3, 50, 60), (7, 1, 60, 70))) == {
        "7": [(0, 10), (60, 70)]
    }


def test_lines_of_several_components_are_an_error(trace):
    path = Path(trace((7, 1, 0, 10), (8, 1, 0, 10), (7, 0, 10, 20)))
    text = path.read_text().splitlines()
    path.write_text("\n".join([*text, text[0].replace("\t1\t7", "\t2\t7"), text[2].replace("\t1\t7", "\t2\t7")]))
    with pytest.raises(ScenarioError, match=r"tab:4: expected component_id 1, as in other lines of node_id 7, got 2"):
        list(FailureTrace(path=str(path)).problems(1, 0))


def test_a_node_is_offline_around_its_machine_s_intervals(trace):
    path = trace((7, 1, 0, 100), (7, 1, 150, 200))
    absences = FailureTrace(path=path, time_scale=10).absences(2, seed=0)
    assert [list(gaps) for gaps in absences.values()] == [[(10, 15), (20, math.inf)]] * 2
    later = FailureTrace(path=path, start_s=160).absences(1, seed=0)
    assert list(later[0]) == [(40, math.inf)]


def test_machines_repeat_only_after_all_are_used(trace):
    path = trace(*((machine, 1, 0, 10 + machine) for machine in range(5)))
    ends = [next(iter(gaps))[0] for gaps in FailureTrace(path=path).absences(5, seed=2).values()]
    assert sorted(ends) == [10, 11, 12, 13, 14]


def test_start_after_the_last_interval_is_an_error(trace):
    path = trace((7, 1, 1000, 1100), (8, 1, 1050, 1200), (8, 0, 1200, 2000))
    assert list(FailureTrace(path=path, start_s=199).problems(2, 0)) == []
    ((place, text),) = FailureTrace(path=path, start_s=200).problems(2, 0)
    assert place == ("start_s",)
    assert text.startswith(f"expected less than 200 s, after which {path} has no available machine")
    churn = {"name": "fta", "path": path, "start_s": 5000}
    with pytest.raises(ScenarioError, match=r"churn\.start_s: expected less than 200 s, .* got 5000\."):
        load("smoke", [f"churn={json.dumps(churn)}"])


def test_a_wrong_line_is_named(trace):
    with pytest.raises(ScenarioError, match=r"event_trace.tab:2: expected lines"):
        list(FailureTrace(path=trace((1, 1, 0, 5), (1, "up", 5, 6))).problems(1, 0))
    with pytest.raises(ScenarioError, match="available"):
        list(FailureTrace(path=trace((1, 0, 0, 5))).problems(1, 0))
