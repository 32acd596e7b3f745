"""Damaged records: one line with the place, and the other runs are shown."""

import json

import pytest
from compared_runs import compare
from typer.testing import CliRunner

from ddlsim.cli import app
from ddlsim.foundation.errors import RecordsDamaged
from ddlsim.report.reading import read
from ddlsim.report.run_report import report
from ddlsim.report.summary import summarize, summary_of
from ddlsim.report.text import comma_separated, printable
from ddlsim.runs.recorder import Recorder
from ddlsim.tasks.base import Metric, loss_rows


def changed(directory, file, line, **values):
    """Change keys of one line (from 1) of a JSON-lines file; None removes a key."""
    lines = (directory / file).read_text().splitlines()
    row = json.loads(lines[line - 1])
    for key, value in values.items():
        row.pop(key) if value is None else row.update({key: value})
    lines[line - 1] = json.dumps(row)
    (directory / file).write_text("\n".join(lines) + "\n")
    return directory


@pytest.mark.parametrize(
    ("file", "line", "values", "message"),
    [
        ("metrics.jsonl", 3, {"round": None}, r"metrics\.jsonl:3: round: not a value of a run: null"),
        ("metrics.jsonl", 5, {"time_s": "x"}, r'metrics\.jsonl:5: time_s: not a value of a run: "x"'),
        ("metrics.jsonl", 5, {"node": [1]}, r"metrics\.jsonl:5: node: not a value of a run: \[1\]"),
        ("metrics.jsonl", 5, {"node": 10**9}, r"metrics\.jsonl: a row is of node 1000000000, but the run has 3 nodes"),
        ("communication.jsonl", 2, {"messages": None}, r"communication\.jsonl:2: messages: not a value"),
        ("communication.jsonl", 2, {"payload_bytes": "9"}, r"communication\.jsonl:2: payload_bytes: not a value"),
    ],
)
def test_damaged_row_is_reported_with_its_line(make_run, file, line, values, message):
    with pytest.raises(RecordsDamaged, match=message):
        read(changed(make_run(), file, line, **values))


@pytest.mark.parametrize("clusters", [[0, 0, 10**9], "x", [0, 0.5], [], None])
def test_damaged_clusters_in_a_manifest_are_reported(make_run, clusters):
    with pytest.raises(RecordsDamaged, match=r"manifest\.json: node_cluster: expected the cluster of each node, got"):
        read(make_run(node_cluster=clusters))


def test_manifest_without_an_object_is_reported_with_the_directory(make_run):
    with pytest.raises(RecordsDamaged, match=r"run: its records do not fit together.*AttributeError"):
        report([make_run(data=3)])


def test_unforeseen_damage_is_reported_with_the_directory(make_run):
    directory = make_run()
    (directory / "scenario.yaml").write_text("evaluation: {target_accuracy: [1]}\nalgorithm: {name: facade}\n")
    with pytest.raises(RecordsDamaged, match=r"run: its records do not fit together.*TypeError"):
        report([directory])


def test_damaged_runs_are_left_out_and_the_others_shown(make_run, tmp_path):
    make_run("all/good")
    (make_run("all/torn") / "manifest.json").write_text('{"seed": 1,\n')
    changed(make_run("all/wrong"), "metrics.jsonl", 3, round=None)
    damaged = []
    assert "facade" in compare([tmp_path / "all"], on_damaged=damaged.append)
    assert [str(error).split(": ")[0].removeprefix(str(tmp_path)) for error in damaged] == [
        "/all/torn/manifest.json:2",
        "/all/wrong/metrics.jsonl:3",
    ]
    for command in ("compare", "report"):
        done = CliRunner().invoke(app, [command, str(tmp_path / "all")])
        assert done.exit_code == 1 and "facade" in done.stdout
        assert [line.startswith("!! left out: ") for line in done.stderr.splitlines()] == [True, True]


def test_cut_last_line_of_a_finished_run_is_reported(make_run):
    directory = make_run()
    whole = (directory / "metrics.jsonl").read_text()
    (directory / "metrics.jsonl").write_text(whole[:-9])
    assert summarize(directory)["labels"] == [
        f"metrics.jsonl:{whole.count(chr(10))}: the last line is cut off; rows are lost"
    ]
    assert "!! NOTE: metrics.jsonl:" in report([directory]) and "cut off" in compare([directory])


def test_lost_whole_lines_are_reported(make_run):
    directory = make_run(files={"metrics.jsonl": 10**6, "links.jsonl": 10})
    size = (directory / "metrics.jsonl").stat().st_size
    assert summarize(directory)["labels"] == [
        f"metrics.jsonl has {size} bytes, but 1000000 when the run ended; rows were lost since",
        "links.jsonl is missing",
    ]


def test_running_run_has_no_lost_rows(make_run):
    directory = make_run(status="running")
    (directory / "metrics.jsonl").write_text((directory / "metrics.jsonl").read_text()[:-9])
    assert summarize(directory)["labels"] == []


def test_nodes_with_a_non_finite_loss_are_named_with_the_first_round(make_run):
    rows = make_run.rows()
    for row in rows:
        if row["name"] == "test_loss" and (row["node"], row["round"]) in ((1, 4), (2, 2), (2, 4)):
            row["value"] = float("nan") if row["node"] == 1 else float("inf")
    records = read(make_run(rows=rows))
    assert records.diverged == {1: 4, 2: 2}
    summary = summary_of(records)
    assert summary["diverged"] == {"nodes": [1, 2], "round": 2}
    assert summary["labels"] == [
        "DIVERGED: the loss of 2 of 3 nodes (node 1, 2) is not a finite number, first at the evaluation after round 2"
    ]


def test_a_manifest_cannot_send_commands_to_a_terminal(make_run):
    directory = make_run(labels=["\x1b]0;pwn\x07\x9b2J"])
    for command in ("report", "compare"):
        out = CliRunner().invoke(app, [command, str(directory)]).stdout
        assert "\\x1b]0;pwn\\x07\\x9b2J" in out
        assert not any(char in out for char in "\x1b\x07\x9b")


def test_control_characters_are_shown_and_lines_stay_lines():
    assert printable("a\tb\nç\x00\x7f\u009b") == "a\tb\nç\\x00\\x7f\\x9b"


@pytest.mark.parametrize("cell", ["=cmd()", "+1", "-1", "@x", "\t=x"])
def test_spreadsheet_treats_no_cell_as_a_formula(cell):
    assert comma_separated(["a"], [[cell], [-1.5]]) == f"a\n'{cell}\n-1.5"


def test_metric_equal_to_the_loss_of_a_custom_task_shows_divergence(make_run):
    own = Metric("mae", higher_is_better=False)
    rows = [row for row in make_run.rows() if row["name"] == "accuracy"]
    for row in rows:
        row |= {"name": "mae", "value": float("inf") if (row["node"], row["round"]) == (1, 4) else 1.0}
    assert read(make_run(rows=rows, task="mine", metric=own.plain())).diverged == {1: 4}
    recorder = Recorder(losses=loss_rows(own, records_loss=False))
    for row in rows:
        recorder.row(**{("round_num" if key == "round" else key): value for key, value in row.items()})
    assert recorder.diverged == {1: 4}
