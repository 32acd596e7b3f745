"""Callbacks: the time of each call, ending a run, and errors in a callback."""

import json
import os

import pytest

import ddlsim
from ddlsim.report.summary_table import table


class Diary(ddlsim.Callback):
    def __init__(self):
        self.events = []

    def on_start(self, started):
        assert (started.directory / "manifest.json").is_file()
        self.events.append(("start", started.rounds, started.after_round, started.scenario["name"]))

    def on_round(self, completed):
        self.events.append(("round", completed.round))

    def on_evaluation(self, evaluation):
        self.events.append(("evaluation", evaluation.round, len(evaluation.values), len(evaluation.clusters)))
        self.last = evaluation

    def on_end(self, summary):
        self.events.append(("end", summary["status"]))


class Until(ddlsim.Callback):
    def __init__(self, hook, round, act):
        def called(about):
            if about.round == round:
                act()

        setattr(self, hook, called)


def stop():
    raise ddlsim.StopRun("enough")


def fail():
    raise ValueError("no idea")


def test_callbacks_receive_rounds_and_evaluations_in_order(scenario, tmp_path):
    diary = Diary()
    run = ddlsim.run(scenario(), out=tmp_path / "run", callbacks=[diary])
    rounds = [event for number in (1, 2) for event in (("round", number), ("evaluation", number, 3, 2))]
    assert diary.events == [("start", 2, 0, "small"), *rounds, ("end", "done")]
    assert diary.last.mean == run.summary["accuracy"]["all"] and diary.last.metric == "accuracy"
    assert diary.last.bytes_sent == run.summary["bytes"]["total"]


def test_final_exchange_does_not_count_as_a_round(scenario, tmp_path):
    diary = Diary()
    ddlsim.run(
        scenario(algorithm={"name": "facade", "heads": 2, "final_all_reduce": True}),
        out=tmp_path / "run",
        callbacks=[diary],
    )
    assert [event for event in diary.events if event[0] == "round"] == [("round", 1), ("round", 2)]
    assert ("evaluation", 3, 3, 2) in diary.events


def test_callbacks_change_no_result(finished, tmp_path):
    run = ddlsim.run(finished.scenario, out=tmp_path / "run", callbacks=[Diary()])
    assert (run.dir / "metrics.jsonl").read_bytes() == (finished.dir / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize("hook", ["on_round", "on_evaluation"])
def test_callback_can_end_the_run_and_the_summary_reports_it(scenario, tmp_path, hook):
    diary = Diary()
    run = ddlsim.run(scenario(rounds=9), out=tmp_path / "run", callbacks=[Until(hook, 2, stop), diary])
    assert run.status == "stopped" and run.summary["stopped"] == {"round": 2, "reason": "enough"}
    assert json.loads((run.dir / "summary.json").read_text())["stopped"]["reason"] == "enough"
    assert diary.events[-1] == ("end", "stopped")
    assert diary.events[-2][:2] == (hook.removeprefix("on_"), 2)  # later callbacks are still called
    assert "status stopped, ended after round 2 by a callback: enough" in table(run.summary)


@pytest.mark.parametrize("hook", ["on_round", "on_evaluation"])
def test_run_ended_by_a_callback_resumes_to_the_same_result(finished, tmp_path, hook):
    run = ddlsim.run(finished.scenario, out=tmp_path / "run", callbacks=[Until(hook, 1, stop)])
    diary = Diary()
    assert ddlsim.resume(run.dir, callbacks=[diary]).summary["stopped"] is None
    assert (run.dir / "metrics.jsonl").read_bytes() == (finished.dir / "metrics.jsonl").read_bytes()
    assert diary.events[0] == ("start", 2, 1, "small") and ("round", 1) not in diary.events


def test_run_ended_at_an_evaluation_can_be_branched_there(scenario, tmp_path):
    run = ddlsim.run(scenario(rounds=9), out=tmp_path / "run", callbacks=[Until("on_evaluation", 2, stop)])
    branch = ddlsim.resume(run.dir, set={"network.links": {"name": "4g"}}, out=tmp_path / "branch")
    assert branch.status == "done" and any("after round 2" in label for label in branch.summary["labels"])


@pytest.mark.parametrize("hook", ["on_round", "on_evaluation"])
def test_failing_callback_fails_the_run_and_keeps_its_records(scenario, tmp_path, hook):
    diary = Diary()
    with pytest.raises(ddlsim.CallbackFailed) as caught:
        ddlsim.run(scenario(), out=tmp_path / "run", callbacks=[Until(hook, 2, fail), diary])
    assert f"the callback Until has raised in {hook}: " in str(caught.value)
    assert "test_callbacks.py:" in str(caught.value) and "ValueError: no idea" in str(caught.value)
    assert f"kept in {tmp_path / 'run'}" in str(caught.value)
    run = ddlsim.load(tmp_path / "run")
    assert run.status == "failed" and run.summary["evaluated_round"] == (1 if hook == "on_round" else 2)
    assert diary.events[-1] == ("end", "failed")


def test_callback_failing_at_the_end_leaves_a_finished_run(scenario, tmp_path):
    class Bad(ddlsim.Callback):
        def on_end(self, summary):
            fail()

    diary = Diary()
    with pytest.raises(ddlsim.CallbackFailed, match=r"in on_end: .*no idea"):
        ddlsim.run(scenario(learning="none"), out=tmp_path / "run", callbacks=[Bad(), diary])
    assert ddlsim.load(tmp_path / "run").status == "done" and diary.events[-1] == ("end", "done")


class Meddler(ddlsim.Callback):
    """Writes into all its arguments."""

    def on_start(self, started):
        started.node_cluster[:] = 0
        started.scenario.clear()

    def on_evaluation(self, evaluation):
        evaluation.values[:] = 0
        evaluation.node_cluster[:] = 0

    def on_end(self, summary):
        summary.clear()


def test_callbacks_receive_copies(finished, tmp_path):
    diary = Diary()
    run = ddlsim.run(finished.scenario, out=tmp_path / "run", callbacks=[Meddler(), diary])
    assert (run.dir / "metrics.jsonl").read_bytes() == (finished.dir / "metrics.jsonl").read_bytes()
    assert run.summary["accuracy"] == finished.summary["accuracy"] and diary.events[-1] == ("end", "done")
    assert run.summary["accuracy"] == json.loads((run.dir / "summary.json").read_text())["accuracy"]


def test_callback_can_end_the_run_before_its_first_round(scenario, tmp_path):
    class Never(ddlsim.Callback):
        def on_start(self, started):
            raise ddlsim.StopRun("not today")

    diary = Diary()
    run = ddlsim.run(scenario(), out=tmp_path / "run", callbacks=[Never(), diary])
    assert run.status == "stopped" and run.summary["stopped"] == {"round": 0, "reason": "not today"}
    assert [event[0] for event in diary.events] == ["start", "end"]


def test_changed_working_directory_does_not_move_the_records(scenario, here):
    class Wanderer(ddlsim.Callback):
        def on_round(self, completed):
            (here / "elsewhere").mkdir(exist_ok=True)
            os.chdir(here / "elsewhere")

    run = ddlsim.run(scenario(), out="run", callbacks=[Wanderer()])
    assert run.status == "done" and run.dir == here / "run" and (here / "run" / "summary.json").is_file()
    assert list((here / "elsewhere").iterdir()) == []
