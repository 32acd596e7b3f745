"""Stored results, their table, and the pages of all tables."""

import json
import multiprocessing
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from ddlsim.foundation.errors import ScenarioError
from ddlsim.runs.reproduce.matrix import read_matrix, reproduce, runs_of
from ddlsim.runs.reproduce.published import MEASURES, measured
from ddlsim.runs.reproduce.result import Result, ResultStore, results, standing, table_name
from ddlsim.runs.reproduce.table import console_table
from ddlsim.scenario.files import is_matrix

ROOT = Path(__file__).parents[2]
write_pages = runpy.run_path(str(ROOT / "tools" / "results_pages.py"))["write_pages"]
pytestmark = pytest.mark.usefixtures("forked_runs")
OWN = """\
from dataclasses import dataclass

from ddlsim.algorithms.decentralized.el import EpidemicLearning


@dataclass(frozen=True, kw_only=True)
class Own(EpidemicLearning):
    share: float = {share}
"""


def summary(value, **more):
    return {"mse": {"all": value, "clusters": [value, value], "std": 0.0}, "rounds": 3, "wall_s": 1.0, **more}


@pytest.fixture
def filled(write, tmp_path):
    """Return a matrix and its folder with both seeds of its first cell."""
    matrix = read_matrix(write())
    store = ResultStore(matrix, tmp_path / "results")
    for run, value in zip(runs_of(matrix, tmp_path / "runs", patterns=["slow/*"]), (9100.0, 9300.0), strict=True):
        store.add(run, summary(value))
    return matrix, tmp_path / "results"


def test_table_is_computed_from_stored_results_without_runs(filled, tmp_path):
    matrix, folder = filled
    slow, fast, alone = results(matrix, runs_of(matrix, tmp_path / "no runs"), folder)
    assert (slow.seeds, slow.mean, slow.std, slow.deviations) == ((1, 2), 9200.0, 100.0, 2.0)
    assert fast.seeds == alone.seeds == ()


def test_stored_results_name_their_origin(filled):
    _matrix, folder = filled
    table = json.loads((folder / "tiny.json").read_text())
    assert (table["matrix"], table["overrides"], table["metric"]) == ("tiny", [], "mse")
    found = table["cells"]["slow/ring"]
    assert found["settings"]["training"]["learning_rate"] == 0.0001
    assert set(found["seeds"]) == {"1", "2"}
    assert {"command", "commit", "cpu", "started", "all", "clusters"} <= set(found["seeds"]["1"])


@pytest.mark.full
def test_earlier_run_is_stored_with_its_commit(write, tmp_path):
    matrix = read_matrix(write(), ["rounds=1"])
    runs = runs_of(matrix, tmp_path / "runs", patterns=["alone"])
    reproduce(runs)
    (runs[0].directory / "origin.json").write_text('{"commit": "0123456789ab"}')
    reproduce(runs, add=ResultStore(matrix, tmp_path / "results").add)
    table = json.loads((tmp_path / "results" / "tiny+rounds=1.json").read_text())
    (seed,) = table["cells"]["alone"]["seeds"].values()
    assert seed["commit"] == "0123456789ab"


@pytest.mark.full
def test_stored_seed_is_not_run_again(write, tmp_path):
    matrix = read_matrix(write(), ["rounds=1"])
    store = ResultStore(matrix, tmp_path / "results")
    one, two = runs_of(matrix, tmp_path / "runs", patterns=["slow/*"])
    store.add(one, summary(9100.0))  # from another machine, without its directory
    lines: list[str] = []
    reproduce([one, two], add=store.add, stored=store.read(), notify=lines.append)
    assert lines[0] == "1 of 2 runs exist already." and lines[1].startswith("[1/1] slow/ring seed 2: ")
    assert not one.directory.exists() and two.summary() is not None
    (slow,) = results(matrix, [one, two], tmp_path / "results")
    assert slow.seeds == (1, 2)
    changed = read_matrix("tiny.yaml", ["rounds=2"])
    assert ResultStore(changed, tmp_path / "results").read() == {}


def test_results_of_other_settings_are_not_read(filled, write):
    _, folder = filled
    changed = read_matrix(write(("{training: {learning_rate: 0.0001}}", "{training: {learning_rate: 0.0002}}")))
    assert ResultStore(changed, folder).read() == {"slow/ring": {}}
    published = read_matrix(write(("mean: 9000.0, std: 100.0", "mean: 8000.0, std: 50.0")))
    assert len(ResultStore(published, folder).read()["slow/ring"]) == 2  # published numbers change no result


def test_shortened_runs_have_a_separate_file(filled, write):
    _, folder = filled
    short = read_matrix("tiny.yaml", ["rounds=1", "records.detail=total"])
    assert table_name(short) == "tiny+rounds=1"
    assert ResultStore(short, folder).read() == {}


def result(cell, mean, seeds=(1,)):
    return Result(cell, seeds, mean, None, ())


def test_cell_has_a_standing_by_its_deviation(write):
    matrix = read_matrix(write())
    slow, fast, alone = matrix.cells
    assert standing(result(slow, 9200.0), matrix) == "reproduced"
    assert standing(result(slow, 9201.0), matrix) == "outside"
    assert standing(result(slow, None), matrix) == "outside"  # diverged
    assert standing(result(slow, None, ()), matrix) == "not run"
    assert standing(result(fast, 1.0), matrix) == "no verdict"  # no published deviation
    assert standing(result(alone, 1.0), matrix) == "no number"


def test_cell_without_published_deviation_is_outside_beyond_two_points():
    matrix = read_matrix("dac_cifar10_equal_rotations")
    cell = next(cell for cell in matrix.cells if cell.name == "dropout/random")  # published: 43.77
    assert standing(result(cell, 41.78), matrix) == "no verdict"
    assert standing(result(cell, 41.76), matrix) == "outside"


def test_pages_count_cells_by_their_standing(filled, write):
    matrix, folder = filled
    write(
        (
            "note: made up",
            "note: made up\nshapes: [{claim: slow is worse, order: [slow/ring, alone]}]\nnot_run: no time",
        ),
        ("clusters: [8000.0, 9500.0]}}", "clusters: [8000.0, 9500.0]}, outside: it is slow}"),
    )
    for run in runs_of(matrix, folder, patterns=["slow/*"]):
        run.directory.mkdir(parents=True)
        (run.directory / "manifest.json").write_text('{"device": "cpu", "threads": 2}')
        ResultStore(matrix, folder).add(run, summary(9500.0, wall_s=3600.0))
    pages = write_pages(folder, ["tiny.yaml"])
    assert [page.name for page in pages] == ["tiny.md", "README.md"]
    overview = pages[1].read_text()
    assert "| [tiny](tiny.md) | 3 | 0 | 1 | 0 | 0 | 2 | 0 of 0 |" in overview
    assert "| tiny: slow/ring | +500.00 | +5.0 | it is slow |" in overview
    # a run of 3 rounds of 4 nodes took 2 core hours; 2 seeds of one cell and 1 of another are left
    assert "\n## Runs that are left\n" in overview and "| tiny | 2 of 3 | 3 | 6.0 | tiny | no time |" in overview
    assert "| slow is worse | not run |" in pages[0].read_text()


def test_shortened_table_has_a_page_but_is_not_counted(write, tmp_path):
    write()
    short = read_matrix("tiny.yaml", ["training.learning_rate=1e+0"])
    ResultStore(short, tmp_path).add(runs_of(short, tmp_path, patterns=["alone"])[0], summary(1.0))
    pages = {page.name: page.read_text() for page in write_pages(tmp_path, ["tiny.yaml"])}
    assert set(pages) == {"tiny+training.learning_rate=1e+0.md", "README.md"}
    assert "NOT AS PUBLISHED: run with training.learning_rate=1e+0" in pages["tiny+training.learning_rate=1e+0.md"]
    assert "| tiny | 3 of 3 | 5 | - | - | - |" in pages["README.md"] and "[tiny](tiny.md)" not in pages["README.md"]


def test_missing_measures_of_a_run_are_none(tmp_path):
    nothing = {"settlement": None, "target": {"bytes": None, "round": None}, "nodes": 4, "accuracy": {"all": 0.5}}
    names = ("heads_agreed", "gb_per_node_to_target", "fair_accuracy", "accuracy_peeking")
    assert measured(nothing, tmp_path, names) == {**dict.fromkeys(names), "accuracy_peeking": 50.0}
    target = {"bytes": 8e9, "round": 680}
    found = measured({**nothing, "target": target}, tmp_path, ("gb_per_node_to_target", "rounds_to_target"))
    assert found == {"gb_per_node_to_target": 2.0, "rounds_to_target": 680}


def test_unrecorded_measure_differs_from_an_unreached_one(write, tmp_path):
    folder, more = tmp_path / "results", ("note: made up", "note: made up\nmeasures: [fair_accuracy]")
    for seed, changes, fair in ((1, (), {}), (2, (more,), {"fair_accuracy": 0.5})):
        matrix = read_matrix(write(*changes))
        run = runs_of(matrix, tmp_path / "runs", patterns=["slow/*"])[seed - 1]
        ResultStore(matrix, folder).add(run, summary(9100.0, **fair))
    found = results(matrix, runs_of(matrix, tmp_path / "no runs"), folder)
    assert found[0].unmeasured == {"fair_accuracy"} and found[0].having == {"fair_accuracy": 1}
    assert "the others did not come to it, or were kept before this measure" in console_table(matrix, found)


def test_measures_of_a_run_under_attack_are_of_honest_nodes(tmp_path):
    summary = {"fair_accuracy": 0.5, "equalized_odds": 0.2, "honest": {"fair_accuracy": 0.75, "equalized_odds": 0.1}}
    found = measured(summary, tmp_path, ("fair_accuracy", "equalized_odds"))
    assert found == {"fair_accuracy": 75.0, "equalized_odds": 0.1}


def test_a_measure_in_a_matrix_must_exist(write):
    with pytest.raises(Exception, match=r"measures\[0\]: expected one of fair_accuracy, .*, got 'fairness'"):
        read_matrix(write(("note: made up", "note: made up\nmeasures: [fairness]")))


@pytest.mark.full
def test_stored_pages_equal_the_generated_ones(tmp_path):
    """Renew them with `python tools/results_pages.py`."""
    folder = ROOT / "docs" / "results"
    copy = tmp_path / "results"
    copy.mkdir()
    for path in folder.glob("*.json"):
        (copy / path.name).write_text(path.read_text())
    matrices = sorted(path for path in (ROOT / "scenarios").rglob("*.yaml") if is_matrix(path))
    made = {page.name: page.read_text() for page in write_pages(copy, matrices)}
    studies = {"facade_cifar10.md", "mapl_short.md", "similarity_real_data.md", "similarity_study.md"}  # by hand
    studies |= {"diloco.md", "diloco_learning_claims.md", "robust.md"}  # by hand, and by tools/robust_page.py
    assert made == {page.name: page.read_text() for page in folder.glob("*.md") if page.name not in studies}


def test_titles_of_measures_are_unique():
    titles = [measure.title for measure in MEASURES.values()]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize(
    ("text", "message"), [("<<<<<<< HEAD\n{}", "cannot be read"), ("[]", "expected a results file")]
)
def test_invalid_results_file_is_reported_and_not_overwritten(filled, tmp_path, text, message):
    matrix, folder = filled
    path = folder / "tiny.json"
    path.write_text(text)
    run = runs_of(matrix, tmp_path / "runs")[0]
    for attempt in (lambda: results(matrix, [run], folder), lambda: ResultStore(matrix, folder).add(run, summary(1.0))):
        with pytest.raises(ScenarioError, match=message):
            attempt()
    assert path.read_text() == text


def test_results_of_other_settings_move_to_earlier_when_a_run_is_added(filled, write, tmp_path):
    _, folder = filled
    before = json.loads((folder / "tiny.json").read_text())["cells"]["slow/ring"]
    changed = read_matrix(write(("{training: {learning_rate: 0.0001}}", "{training: {learning_rate: 0.0002}}")))
    ResultStore(changed, folder).add(runs_of(changed, tmp_path / "runs")[0], summary(1.0))
    found = json.loads((folder / "tiny.json").read_text())["cells"]["slow/ring"]
    assert list(found["seeds"]) == ["1"] and found["earlier"] == [before]


def test_concurrent_processes_lose_no_result_of_a_table(filled, tmp_path):
    matrix, folder = filled
    run = runs_of(matrix, tmp_path / "runs", patterns=["alone"])[0]
    seeds = range(100, 124)

    def add(seed):
        ResultStore(matrix, folder).add(replace(run, seed=seed), summary(float(seed)))

    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=lambda own: [add(seed) for seed in own], args=(seeds[i::4],)) for i in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    stored = json.loads((folder / "tiny.json").read_text())["cells"]
    assert {int(seed): values["all"] for seed, values in stored["alone"]["seeds"].items()} == {
        s: float(s) for s in seeds
    }
    assert len(stored["slow/ring"]["seeds"]) == 2


@pytest.mark.full
def test_seed_of_other_plugin_code_is_not_read(write, tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(OWN.format(share=1.0))
    matrix = read_matrix(
        write(("algorithm: {name: el}", 'algorithm: {name: "./own.py:Own"}'), ("seeds: [7]", "seeds: [7, 8]"))
    )
    (run,) = runs_of(matrix, tmp_path / "runs", seeds=1, patterns=["alone"])
    store = ResultStore(matrix, tmp_path / "results")
    reproduce([run], add=store.add)
    assert list(store.read()["alone"]) == [run.seed]
    (tmp_path / "own.py").write_text(OWN.format(share=2.0))
    changed = read_matrix("tiny.yaml")
    assert ResultStore(changed, tmp_path / "results").read() == {"alone": {}}


def test_generated_pages_are_not_read_as_results(write, tmp_path):
    matrix = read_matrix(write(), ["rounds=1"])
    folder = tmp_path / "results"
    ResultStore(matrix, folder).add(runs_of(matrix, tmp_path / "runs")[0], summary(9100.0))
    first, again = ([page.name for page in write_pages(folder, ["tiny.yaml"])] for _ in range(2))
    assert first == again == ["tiny+rounds=1.md", "README.md"]
