import math
import pickle
from itertools import islice
from pathlib import Path

import pytest

from ddlsim.churn.traces import FedScale, Trace, fold
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.input_files import read_data_only


def write(tmp_path: Path, *rows: str) -> str:
    path = tmp_path / "online.csv"
    path.write_text("\n".join(("node,start_s,end_s", *rows)))
    return str(path)


def phone(active, inactive, finish_time=100) -> dict:
    return {"duration": 60, "inactive": inactive, "finish_time": finish_time, "active": active, "model": "made by hand"}


def store(tmp_path: Path, devices) -> str:
    path = tmp_path / "behave.pkl"
    path.write_bytes(pickle.dumps(devices, protocol=2))
    return str(path)


def gaps_of(tmp_path: Path, one: dict, length=5, **keys) -> list:
    return list(islice(FedScale(path=store(tmp_path, {1: one}), **keys).absences(1, seed=0)[0], length))


def test_absences_are_the_gaps_between_online_intervals(tmp_path):
    path = write(tmp_path, "1,0,4", "0,9,12", "0,2,5", "1,4,6")
    absences = {node: list(gaps) for node, gaps in Trace(path=path).absences(2, seed=0).items()}
    assert absences == {0: [(0, 2), (5, 9), (12, math.inf)], 1: [(6, math.inf)]}  # 4 to 4 is no gap


def test_time_scale_shortens_a_trace(tmp_path):
    path = write(tmp_path, "0,0,3600", "0,7200,10800")
    assert list(Trace(path=path, time_scale=3600).absences(1, seed=0)[0]) == [(1, 2), (3, math.inf)]


def test_trace_may_have_more_nodes_than_the_run(tmp_path):
    assert Trace(path=write(tmp_path, "0,0,1", "7,0,1")).absences(1, seed=0).keys() == {0}


def test_every_bad_interval_is_named_with_its_line(tmp_path):
    path = write(tmp_path, "0,3,3", "1,0,5", "1,4,6")
    with pytest.raises(ScenarioError) as error:
        Trace(path=path).check(2)
    assert str(error.value).splitlines() == [
        f"{path}:2: end_s: expected more than start_s (3), got 3",
        f"{path}:4: start_s: expected 5 or more, the end of node 1's interval of line 3, got 4",
    ]


def test_error_on_a_row_that_is_not_a_number_names_its_line(tmp_path):
    path = write(tmp_path, "0,0,soon")
    with pytest.raises(ScenarioError, match=r"online\.csv:2: end_s: expected a finite number from 0, got 'soon'"):
        Trace(path=path).check(1)


def test_node_without_interval_is_named(tmp_path):
    with pytest.raises(ScenarioError, match="each of 2 nodes, got none for node 1"):
        Trace(path=write(tmp_path, "0,0,1")).check(2)


def test_phone_is_offline_between_its_active_times_in_every_repetition(tmp_path):
    one = phone(active=[10, 50], inactive=[30, 90])
    assert gaps_of(tmp_path, one) == [(0, 10), (30, 50), (90, 110), (130, 150), (190, 210)]
    assert gaps_of(tmp_path, one, time_scale=10)[:2] == [(0, 1), (3, 5)]


def test_interval_beyond_the_finish_is_folded(tmp_path):
    assert fold(phone(active=[80], inactive=[120])) == [(0, 20), (80, 100)]
    assert fold(phone(active=[80], inactive=[20])) == [(0, 20), (80, 100)]
    assert fold(phone(active=[180, 5], inactive=[190, 15])) == [(5, 15), (80, 90)]
    assert gaps_of(tmp_path, phone(active=[80], inactive=[120]), 3) == [(20, 80), (120, 180), (220, 280)]


def test_overlapping_active_times_are_one():
    assert fold(phone(active=[10, 20], inactive=[30, 40])) == [(10, 40)]


def test_phone_always_or_never_online(tmp_path):
    assert gaps_of(tmp_path, phone(active=[0], inactive=[100])) == []
    assert gaps_of(tmp_path, phone(active=[], inactive=[])) == [(0, math.inf)]


def test_adding_a_node_changes_no_phone_of_other_nodes(tmp_path):
    churn = FedScale(path=store(tmp_path, {k: phone([k], [k + 40]) for k in range(1, 41)}))
    few, more = ([next(iter(gaps)) for gaps in churn.absences(n, seed=0).values()] for n in (20, 21))
    assert few == more[:20]
    assert len(set(few)) > 5


class Harmful:
    def __reduce__(self):
        return print, ("harm is done",)


def test_pickle_that_names_code_is_an_error_and_runs_nothing(tmp_path, capsys):
    path = store(tmp_path, {1: Harmful()})
    with pytest.raises(ScenarioError, match=r"behave\.pkl: .* names .*print, which is code and not data"):
        FedScale(path=path).check(1)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_builtin_containers_and_numbers_are_read(tmp_path, protocol):
    data = {"a": [1, 2.5, (True, None)], 2**70: "text"}
    (tmp_path / "data.pkl").write_bytes(pickle.dumps(data, protocol))
    assert read_data_only(str(tmp_path / "data.pkl"), "expected a pickle") == data


@pytest.mark.parametrize(
    ("devices", "error"),
    [
        ([1, 2], "availability: expected a valid dictionary, got \\[1, 2\\]"),
        ({7: 3}, "device 7: expected a valid dictionary, got 3"),
        ({7: phone([1, "x"], [2, 3])}, "device 7: active: 1: expected a valid number, got 'x'"),
        ({7: phone([1, 2], [3])}, "device 7: expected as many active as inactive times, got 2 and 1"),
        ({7: phone([1], [2], math.nan)}, "device 7: finish_time: expected less than 1000000000000000000, got nan"),
    ],
)
def test_pickle_of_another_form_is_an_error(tmp_path, devices, error):
    with pytest.raises(ScenarioError, match=error):
        FedScale(path=store(tmp_path, devices)).check(1)


@pytest.mark.parametrize("content", [b"", b"\x80\x04", b"node,start_s,end_s\n0,1,2\n"])
def test_file_that_is_not_a_pickle_is_an_error(tmp_path, content):
    path = tmp_path / "behave.pkl"
    path.write_bytes(content)
    with pytest.raises(ScenarioError, match=r"behave\.pkl: expected FedScale's pickle"):
        FedScale(path=str(path)).check(1)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(ScenarioError, match=r"nowhere: expected .* No such file"):
        FedScale(path=str(tmp_path / "nowhere")).check(1)


@pytest.mark.parametrize("time", [10**400, -1, 1e18, math.inf])
def test_time_out_of_range_is_an_error(tmp_path, time):
    with pytest.raises(ScenarioError, match=r"device 7: active: 0: expected .*, got "):
        FedScale(path=store(tmp_path, {7: phone([time], [2])})).check(1)


def test_error_on_deeply_nested_lists_is_short(tmp_path):
    depth = 100_000
    (tmp_path / "deep.pkl").write_bytes(b"\x80\x02}K\x07" + b"]" * depth + b"a" * (depth - 1) + b"s.")
    with pytest.raises(ScenarioError, match="device 7: expected a valid dictionary, got ") as error:
        FedScale(path=str(tmp_path / "deep.pkl")).check(1)
    assert len(str(error.value)) < 400
