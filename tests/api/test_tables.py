"""Tables of one and several runs, with and without pandas; models, figures and notebook output."""

import sys

import numpy as np
import pytest

import ddlsim
from ddlsim.algorithms.decentralized.el import EpidemicLearning
from ddlsim.foundation.errors import ScenarioError
from ddlsim.report import columns as frames

EVALUATIONS = ["round", "time_s", "bytes", "node", "cluster", "metric", "value"]


@pytest.fixture
def no_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)


def test_evaluations_have_a_row_per_evaluation_node_and_metric(finished):
    found = frames.evaluations(finished.records)
    assert list(found) == EVALUATIONS and len({len(column) for column in found.values()}) == 1
    accuracy = found["metric"] == "accuracy"
    assert accuracy.sum() == 2 * 3  # after rounds 1 and 2
    assert found["node"][accuracy].tolist() == [0, 1, 2] * 2 and found["cluster"][accuracy].tolist() == [0, 0, 1] * 2
    last = accuracy & (found["round"] == 2)
    assert found["value"][last].mean() == pytest.approx(finished.summary["accuracy"]["all"])
    assert set(found["bytes"][last]) == {finished.summary["bytes"]["total"]}


def test_rounds_have_means_over_nodes_and_clusters(finished):
    found, summary = frames.rounds(finished.records), finished.summary
    assert found["round"].tolist() == [1, 2]
    assert found["accuracy"][-1] == summary["accuracy"]["all"]
    assert found["accuracy_std"][-1] == pytest.approx(summary["accuracy"]["std"])
    assert [found["accuracy_0"][-1], found["accuracy_1"][-1]] == summary["accuracy"]["clusters"]
    assert found["fair_accuracy"][-1] == summary["fair_accuracy"]


def test_messages_and_links_add_up_to_the_bytes_of_the_run(finished):
    traffic, links = frames.messages(finished.records), frames.links(finished.records)
    names = ("payload_bytes", "header_bytes", "wasted_bytes", "in_flight_bytes")
    assert sum(traffic[name].sum() for name in names) == finished.summary["bytes"]["total"]
    assert links["node"].tolist() == [0, 1, 2] and links["sent_bytes"].sum() == finished.summary["bytes"]["total"]


def test_rows_can_be_selected_by_name(finished):
    assert set(frames.rows(finished.records, "test_loss")["name"]) == {"test_loss"}
    assert set(frames.rows(finished.records)["name"]) >= {"accuracy", "test_loss", "bytes_sent"}
    assert len(frames.rows(finished.records, "nothing")["value"]) == 0


def test_network_only_run_has_a_table_of_round_times(scenario, tmp_path):
    run = ddlsim.run(scenario(learning="none"), out=tmp_path / "run")
    found = frames.rounds(run.records)
    assert found["round"].tolist()[:2] == [1, 2] and (found["first_s"] <= found["last_s"]).all()
    assert len(frames.evaluations(run.records)["value"]) == 0


def test_with_pandas_tables_are_frames(finished):
    pandas = pytest.importorskip("pandas")
    table = finished.evaluations()
    assert isinstance(table, pandas.DataFrame) and list(table.columns) == EVALUATIONS
    means = table[table.metric == "accuracy"].groupby("round").value.mean()
    assert means.iloc[-1] == pytest.approx(finished.summary["accuracy"]["all"])
    for each in (finished.rounds(), finished.messages(), finished.links(), finished.rows()):
        assert isinstance(each, pandas.DataFrame) and len(each)


def test_without_pandas_tables_are_dictionaries_of_arrays(finished, no_pandas):
    for table in (finished.evaluations(), finished.rounds(), ddlsim.compare(finished).frame()):
        assert isinstance(table, dict) and all(isinstance(column, np.ndarray) for column in table.values())


def test_model_of_a_node_has_its_trained_values(finished):
    import torch

    module, values = finished.model(1), finished.state_dict(1)
    assert not module.training and module(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert all(torch.equal(own, values[name]) for name, own in module.state_dict().items())
    with pytest.raises(ScenarioError, match=r"expected one of the nodes .*, got 7"):
        finished.state_dict(7)


def test_notebook_escapes_html_in_the_summary(finished, monkeypatch):
    evil = {**finished.summary, "scenario": "<script>alert(1)</script>", "labels": ["<b>x"]}
    run = ddlsim.load(finished.dir)
    run.__dict__["summary"] = evil
    shown = run._repr_html_()
    assert "accuracy %, all nodes" in shown and str(finished.dir) in shown
    assert "<script>" not in shown and "&lt;script&gt;" in shown and "NOTE: &lt;b&gt;x" in shown


def test_notebook_shows_tables_of_a_comparison_and_of_its_runs(finished):
    comparison = ddlsim.compare(finished, group_by="algorithm.name")
    comparison.rows[0].labels.append("<b>x")
    accuracy = f"{100 * finished.summary['accuracy']['all']:.2f}"
    shown, listed = comparison._repr_html_(), comparison.runs._repr_html_()
    assert "<table>" in shown and f"<td>{accuracy}</td>" in shown and "&lt;b&gt;x" in shown
    assert listed.count("<tr>") == 2 and f"<td>{accuracy}</td>" in listed


def test_figure_is_displayed_in_a_notebook(finished):
    pytest.importorskip("matplotlib")
    figure = finished.plot(x="bytes", y="worst_cluster")
    assert figure._repr_png_().startswith(b"\x89PNG")
    (line,) = figure.axes[0].lines
    assert len(line.get_xdata()) == 2 and line.get_marker() == "o"


def test_a_comparison_takes_runs_directories_and_folders(finished):
    by_folder = ddlsim.compare(finished.dir.parent)
    assert len(by_folder) == len(ddlsim.compare([finished])) == len(ddlsim.compare([str(finished.dir)])) == 1
    frame = ddlsim.compare(finished, at=0.01).frame()
    assert frame["reached"][0] == 1 and frame["target_round_mean"][0] == 1 and frame["runs"][0] == 1
    with pytest.raises(ScenarioError, match="expected at least one run"):
        ddlsim.compare([])


def test_repeated_run_is_compared_once(scenario, tmp_path, monkeypatch):
    zero, one = ddlsim.sweep(scenario(learning="none"), seeds=[0, 1], out=tmp_path / "both").runs
    monkeypatch.chdir(tmp_path)
    for given in ([zero, zero, one], [zero.dir, "both/seed-0", one], [zero, "both"], ["both", zero]):
        assert [run.dir.name for run in ddlsim.compare(given).runs] == ["seed-0", "seed-1"]
        assert ddlsim.compare(given).frame()["runs"][0] == 2
    assert [run.dir.name for run in ddlsim.compare([one, "both", zero]).runs] == ["seed-1", "seed-0"]


def test_sweep_runs_every_combination_once(scenario, tmp_path):
    def sweep():
        grid = {"algorithm": ["local", EpidemicLearning], "topology.name": ["ring", "complete"]}
        return ddlsim.sweep(scenario(learning="none"), grid, seeds=[0, 1], out=tmp_path / "sweep")

    first = sweep()
    names = {run.dir.relative_to(tmp_path / "sweep").as_posix() for run in first.runs}
    assert len(names) == 8 and "algorithm=EpidemicLearning,topology.name=ring/seed-1" in names
    assert len(first.frame()["setting"]) == 4
    (first.runs[0].dir / "summary.json").unlink()
    began = {run.dir: run.manifest["started"] for run in sweep().runs}
    again = [path for path in names if (tmp_path / "sweep" / f"{path}.earlier-1").exists()]
    assert len(again) == 1 and len(began) == 8


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"grid": {"seed": [1, 2]}, "seeds": [5]}, "seed is given twice"),
        ({"seeds": [1, 2], "seed": 7}, "seed is given twice"),
        ({"grid": {"seed": [1, 2]}, "seed": 7}, "seed is given twice"),
        (
            {"grid": {"algorithm": ["el", "el"]}},
            "would be the same: 'algorithm=el-1 seed 0' and 'algorithm=el-2 seed 0'",
        ),
    ],
)
def test_sweep_refuses_runs_with_ambiguous_names(scenario, tmp_path, given, text):
    with pytest.raises(ScenarioError, match=text):
        ddlsim.sweep(scenario(learning="none"), out=tmp_path / "sweep", **given)
    assert not (tmp_path / "sweep").exists()


def test_sweep_runs_each_seed_once_and_accepts_a_common_seed(scenario, tmp_path):
    assert len(ddlsim.sweep(scenario(learning="none"), seeds=[1, 1], out=tmp_path / "one")) == 1
    (only,) = ddlsim.sweep(scenario(learning="none"), {"rounds": [1]}, seed=7, out=tmp_path / "seven").runs
    assert only.scenario["seed"] == 7


def test_sweep_accepts_arrays_like_a_run(scenario, tmp_path):
    x, y = np.arange(96, dtype="float32").reshape(32, 3), np.arange(32) % 2
    pair = (x, y)
    values = [(pair, pair), {"train": (x + 1, y), "test": pair}, ddlsim.data.Arrays(train=(x + 2, y), test=pair)]
    small = scenario(learning="none", partition={"name": "random"})
    found = ddlsim.sweep(small, {"data": values}, out=tmp_path)
    assert [run.dir.relative_to(tmp_path).as_posix() for run in found.runs] == [
        f"data=Arrays-{number}/run" for number in (1, 2, 3)
    ]
    assert len({run.scenario["data"]["sha256"] for run in found.runs}) == 3


def test_paths_and_classes_in_a_sweep_have_separate_directories(scenario, tmp_path, monkeypatch):
    (tmp_path / "one").mkdir()
    monkeypatch.chdir(tmp_path / "one")
    (tmp_path / "parts.py").write_text("from torch import nn\n\n\nclass Net(nn.Linear):\n    pass\n")
    models = [{"name": "../parts.py:Net", "in_features": 784, "out_features": number} for number in (10, 11)]
    algorithms = [{"name": EpidemicLearning, "fanout": 2}, "local"]
    grid = {"training.learning_rate": [0.05, 0.1], "model": models, "algorithm": algorithms}
    found = ddlsim.sweep(scenario(learning="none"), grid, out="out")
    names = [run.dir.relative_to("out").as_posix() for run in found.runs]
    first = "training.learning_rate=0.05,model=..-parts.py-Net-in_features=784-out_features=10"
    assert names[:2] == [f"{first},algorithm=EpidemicLearning-fanout=2/run", f"{first},algorithm=local/run"]
    assert len(set(names)) == 8 and [path.name for path in tmp_path.glob("one/*")] == ["out"]


def test_a_sweep_with_a_bad_combination_runs_nothing(scenario, tmp_path):
    with pytest.raises(ScenarioError, match="rounds: expected a number of at least 1"):
        ddlsim.sweep(scenario(learning="none"), {"rounds": [1, 0]}, out=tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()
