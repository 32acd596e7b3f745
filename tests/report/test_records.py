import numpy as np
import pytest

from ddlsim.foundation.errors import DdlsimError, ScenarioError
from ddlsim.report.reading import find_runs, read


def test_evaluations_are_arrays_by_round_and_node(make_run):
    evaluations = read(make_run()).evaluations
    assert evaluations.round.tolist() == [2, 4]
    assert evaluations.quality.tolist() == [[0.6, 0.6, 0.4], [0.9, 0.9, 0.6]]


def test_an_evaluation_is_at_the_time_of_its_last_node_and_its_bytes_are_added(make_run):
    evaluations = read(make_run()).evaluations
    assert evaluations.time_s.tolist() == [22.0, 42.0]
    assert evaluations.bytes_sent.tolist() == [603.0, 1203.0]


def test_confusion_belongs_to_the_last_evaluation(make_run):
    assert read(make_run()).confusion.tolist() == [[[4, 1], [0, 5]], [[5, 0], [1, 4]], [[3, 2], [2, 3]]]


def test_heads_at_evaluations_and_in_all_rounds(make_run):
    records = read(make_run())
    rounds, heads = records.heads()
    assert (rounds.tolist(), heads.tolist()) == ([2, 4], [[0, 0, 1], [0, 0, 1]])
    rounds, heads = records.head_rounds()
    assert rounds.tolist() == [1, 2, 3, 4]
    assert heads[0].tolist() == [0, 1, 1]


def test_a_run_without_heads_has_none(make_run):
    records = read(make_run(rows=make_run.rows(heads={})))
    assert records.heads() is None and records.head_rounds() is None


def test_a_cut_last_line_is_left_out(make_run):
    directory = make_run(status="running")
    whole = (directory / "metrics.jsonl").read_text()
    (directory / "metrics.jsonl").write_text(whole[:-9])  # cuts the last node's bytes_sent
    records = read(directory)
    assert len(records.rows["bytes_sent"]) == 5
    assert len(records.rows["accuracy"]) == 6


def test_an_evaluation_cut_short_by_a_crash_does_not_count(make_run):
    rows = make_run.rows()
    last_accuracy = max(index for index, row in enumerate(rows) if row["name"] == "accuracy")
    records = read(make_run(rows=rows[:last_accuracy], status="interrupted"))
    assert records.evaluations.round.tolist() == [2]
    assert records.confusion[0].tolist() == [[3, 2], [2, 3]]


def test_last_evaluation_of_a_stopped_run_counts_without_unjoined_nodes(make_run):
    rows = [row for row in make_run.rows() if row["node"] != 2]
    assert read(make_run(rows=rows, status="stopped")).evaluations.round.tolist() == [2, 4]


def test_damage_in_the_middle_is_an_error_with_its_line(make_run):
    directory = make_run()
    (directory / "metrics.jsonl").write_text('{"time_s":\n{}\n')
    with pytest.raises(DdlsimError, match=r"metrics\.jsonl:1: not a JSON object"):
        read(directory)


def test_json_without_an_object_is_an_error_with_its_place(make_run):
    directory = make_run()
    (directory / "metrics.jsonl").write_text("3\n")
    with pytest.raises(DdlsimError, match=r"metrics\.jsonl:1: not a JSON object: '3'"):
        read(directory)
    (directory / "manifest.json").write_text("[]")
    with pytest.raises(DdlsimError, match=r"manifest\.json: node_cluster: expected the cluster of each node"):
        read(directory)


def test_started_run_has_no_evaluations(make_run):
    directory = make_run(status="running", traffic=None)
    (directory / "metrics.jsonl").unlink()
    records = read(directory)
    assert len(records.evaluations) == 0
    assert records.confusion is None and records.communication is None


def test_absent_node_keeps_its_bytes(make_run):
    rows = [row for row in make_run.rows() if (row["node"], row["round"]) != (2, 4)]
    evaluations = read(make_run(rows=rows)).evaluations
    assert np.isnan(evaluations.quality[1, 2])
    assert evaluations.bytes_sent.tolist() == [603.0, 400 + 401 + 202]


def test_traffic_becomes_a_matrix(make_run):
    matrix = read(make_run()).traffic_matrix
    assert matrix.tolist() == [[0, 400, 0], [0, 0, 408], [402, 0, 0]]


def test_a_run_without_traffic_has_empty_communication(make_run):
    assert len(read(make_run(traffic=[])).communication.src) == 0


@pytest.mark.parametrize("what", ["nowhere", "empty"])
def test_directory_without_a_run_is_one_error(tmp_path, what):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ScenarioError, match=r"is not a run: it (is not a directory|has no manifest\.json)"):
        read(tmp_path / what)
    with pytest.raises(ScenarioError, match="is not a run and holds none"):
        find_runs([tmp_path / what])


def test_runs_are_found_below_a_folder_once(make_run, tmp_path):
    one, other = make_run("tiny/facade-s0"), make_run("tiny/facade-s1")
    make_run("tiny/facade-s1.earlier-1")
    assert find_runs([tmp_path, one]) == [one, other]


@pytest.mark.parametrize("text", ["[1]", "3", "name: !!int x", f"{'[' * 3000}{']' * 3000}", "a: [1, 2"])
def test_scenario_without_a_mapping_is_an_error_with_its_place(make_run, text):
    directory = make_run()
    (directory / "scenario.yaml").write_text(text)
    with pytest.raises(DdlsimError, match=r"scenario\.yaml: (not valid YAML|expected a mapping)"):
        read(directory)
