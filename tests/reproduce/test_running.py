import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from ddlsim.cli import app
from ddlsim.foundation.errors import ScenarioError
from ddlsim.runs.reproduce.matrix import Outcome, read_matrix, reproduce, runs_of
from ddlsim.runs.reproduce.result import Result, result_of, results
from ddlsim.runs.reproduce.table import console_table, markdown_table

pytestmark = pytest.mark.usefixtures("forked_runs")

DONE = Outcome(interrupted=False, failures=())


@pytest.fixture
def matrix(write):
    return read_matrix(write())


def test_first_seeds_of_all_cells_come_first(matrix, tmp_path):
    runs = runs_of(matrix, tmp_path)
    order = [(run.cell.name, run.seed) for run in runs]
    assert order == [("slow/ring", 1), ("fast/complete", 1), ("alone", 7), ("slow/ring", 2), ("fast/complete", 2)]
    assert runs[0].directory == tmp_path / "slow+ring" / "seed-1"


def test_seeds_and_cells_can_be_limited(matrix, tmp_path):
    assert [run.seed for run in runs_of(matrix, tmp_path, 1)] == [1, 1, 7]
    assert {run.cell.name for run in runs_of(matrix, tmp_path, None, ["*/ring", "al*"])} == {"slow/ring", "alone"}
    with pytest.raises(ScenarioError, match=r"no cell of tiny matches. Known: slow/ring, fast/complete, alone"):
        runs_of(matrix, tmp_path, None, ["none"])


@pytest.mark.full
def test_existing_runs_are_not_repeated(matrix, tmp_path):
    runs = runs_of(matrix, tmp_path, patterns=["alone"])
    lines: list[str] = []
    assert reproduce(runs, notify=lines.append) == DONE
    written = (runs[0].directory / "manifest.json").stat().st_mtime_ns
    assert re.match(r"\[1/1\] alone seed 7: mse \d+", lines[0])
    assert reproduce(runs_of(matrix, tmp_path, patterns=["alone"]), notify=lines.append) == DONE
    assert lines[1:] == ["1 of 1 runs exist already."]
    assert (runs[0].directory / "manifest.json").stat().st_mtime_ns == written


@pytest.mark.full
def test_a_changed_cell_is_run_again(matrix, write, tmp_path):
    reproduce(runs_of(matrix, tmp_path, patterns=["alone"]))
    changed = read_matrix(write(("{algorithm: {name: el}}", "{algorithm: {name: el}, rounds: 2}")))
    (run,) = runs_of(changed, tmp_path, patterns=["alone"])
    assert run.summary() is None
    reproduce([run])
    assert run.summary()["rounds"] == 2


@pytest.mark.full
def test_table_holds_means_over_seeds_and_differences(matrix, tmp_path):
    runs = runs_of(matrix, tmp_path, patterns=["*/*"])
    reproduce(runs)
    slow, fast = results(matrix, runs)
    values = [
        json.loads((tmp_path / "slow+ring" / f"seed-{seed}" / "summary.json").read_text())["mse"]["all"]
        for seed in (1, 2)
    ]
    assert slow.mean == pytest.approx(np.mean(values)) and slow.std == pytest.approx(np.std(values))
    assert slow.difference == pytest.approx(slow.mean - 9000)
    assert slow.deviations == pytest.approx(slow.difference / 100)
    assert np.mean(slow.clusters) == pytest.approx(slow.mean)
    assert fast.deviations is None and fast.difference is not None
    text = console_table(matrix, [slow, fast])
    assert f"{slow.mean:.2f} ± {slow.std:.2f}" in text and "9000.00 ± 100.00" in text and "8000.00 9500.00" in text
    assert "published: Table 1" in text and "fast/complete: one step" in text


@pytest.mark.slow
def test_runs_side_by_side_give_the_same_numbers(matrix, tmp_path):
    alone = runs_of(matrix, tmp_path / "one", seeds=1, patterns=["*/*"])
    beside = runs_of(matrix, tmp_path / "two", seeds=1, patterns=["*/*"])
    assert reproduce(alone) == reproduce(beside, jobs=2) == DONE
    for one, two in zip(alone, beside, strict=True):
        assert (one.directory / "metrics.jsonl").read_bytes() == (two.directory / "metrics.jsonl").read_bytes()


def with_keys(matrix, **keys):
    return replace(matrix, content=matrix.content.model_copy(update=keys))


def summary(values, clusters):
    return {"all": values, "clusters": clusters}


@pytest.mark.parametrize(
    "average, spread, mean, std",
    [("nodes", "seeds", 60.0, 10.0), ("clusters", "seeds", 50.0, 10.0), ("nodes", "clusters", 60.0, 25.0)],
)
def test_means_and_deviations_equal_the_table(matrix, monkeypatch, average, spread, mean, std):
    from ddlsim.tasks.base import ACCURACY

    monkeypatch.setattr(type(matrix), "judged_by", ACCURACY)
    own = [(1, summary(0.5, [0.2, 0.6])), (2, summary(0.7, [0.3, 0.9]))]
    result = result_of(with_keys(matrix, average=average, spread=spread), matrix.cells[0], own)
    assert (result.mean, result.std) == (pytest.approx(mean), pytest.approx(std))
    assert result.clusters == pytest.approx((25.0, 75.0))


def test_measure_missing_for_some_seeds_is_reported(matrix):
    own = [
        (1, summary(0.5, [0.5, 0.5]) | {"measures": {"rounds_to_target": 40.0, "heads_apart": 100.0}}),
        (2, summary(0.5, [0.5, 0.5]) | {"measures": {"rounds_to_target": None, "heads_apart": 0.0}}),
    ]
    wanted = with_keys(matrix, measures=("rounds_to_target", "heads_apart"))
    result = result_of(wanted, matrix.cells[0], own)
    text = console_table(wanted, [result])
    assert re.search(r"^slow/ring +40 \[1/2\] +50$", text, re.MULTILINE)
    assert "[k/n]: the mean over k of n seeds" in text


def test_diverged_seed_is_reported(matrix):
    own = [(1, summary(None, [1.0, None])), (2, summary(1.0, [1.0, 1.0]))]
    result = result_of(matrix, matrix.cells[0], own)
    assert result == Result(matrix.cells[0], (1, 2), None, None, ())
    assert "diverged" in console_table(matrix, [result])


@pytest.mark.parametrize("spread", ["seeds", "nodes"])
def test_infinite_error_of_a_seed_is_reported_as_diverged(matrix, spread):
    own = [(1, summary(math.inf, [math.inf, 1.0]) | {"std": None}), (2, summary(1.0, [1.0, 1.0]) | {"std": 0.0})]
    result = result_of(with_keys(matrix, spread=spread), matrix.cells[0], own)
    assert result == Result(matrix.cells[0], (1, 2), None, None, ())


def test_only_clusters_without_honest_nodes_have_no_value(matrix):
    own = [(1, summary(0.5, [0.5, None])), (2, summary(0.7, [0.7, None]))]
    result = result_of(matrix, matrix.cells[0], own)
    assert (result.mean, result.clusters) == (pytest.approx(0.6), (pytest.approx(0.6), None))
    assert result.value(1) is None


@pytest.mark.parametrize(("share", "mean"), [(1.0, None), (0.25, 0.5)])
def test_accuracy_is_undefined_if_all_nodes_diverged(matrix, share, mean):
    result = result_of(matrix, matrix.cells[0], [(1, summary(0.5, [0.5, 0.5]) | {"diverged": share})])
    assert result.mean == mean
    table = console_table(matrix, [result])
    assert ("diverged" in table) and ("some nodes have diverged with the seeds 1" in table) == (share < 1)


def test_settings_from_the_command_line_are_listed(write):
    assert "NOT AS" not in markdown_table(read_matrix(write(), ["records.detail=total"]), [])  # changes no result
    matrix = read_matrix(write(), ["rounds=1", "records.detail=total"])
    text = markdown_table(matrix, [Result(matrix.cells[0], (), None, None, ())])
    assert "NOT AS PUBLISHED: run with rounds=1\n" in text and "| slow/ring | 0/2 | - | 9000.00 ± 100.00 |" in text


@pytest.mark.full
def test_command_runs_writes_and_shows_the_table(write, tmp_path):
    name = write()
    done = CliRunner().invoke(app, ["reproduce", name, "--cells", "alone", "--out", "here"])
    assert done.exit_code == 0, done.output
    assert re.search(r"alone +1/1", done.stdout) and "[1/1] alone seed 7" in done.stderr
    assert (tmp_path / "here" / "table.md").read_text().startswith("# tiny: A tiny table")
    shown = CliRunner().invoke(app, ["reproduce", name, "--out", "here", "--table"])
    assert shown.exit_code == 0 and "slow/ring" in shown.stdout and "0/2" in shown.stdout
    wrong = CliRunner().invoke(app, ["reproduce", name, "--cells", "nothing"])
    assert wrong.exit_code == 2 and "no cell of tiny matches" in wrong.stderr


@pytest.mark.full
def test_command_continues_results_of_another_machine(write, tmp_path):
    words = ["reproduce", write(), "--cells", "alone", "--results", "kept", "--out"]
    here = CliRunner().invoke(app, [*words, "here"])
    assert here.exit_code == 0 and (tmp_path / "kept" / "tiny.json").exists()
    there = CliRunner().invoke(app, [*words, "there"])
    assert there.exit_code == 0 and "1 of 1 runs exist already." in there.stderr
    assert re.search(r"alone +1/1", there.stdout) and not (tmp_path / "there" / "alone").exists()


@pytest.mark.parametrize("option", ["--results", "--out"])
def test_file_in_place_of_a_folder_is_refused_before_any_run(write, tmp_path, option):
    (tmp_path / "taken").touch()
    wrong = CliRunner().invoke(app, ["reproduce", write(), "--out", "here", option, "taken"])
    assert wrong.exit_code == 2 and "'taken' is a file" in wrong.stderr
    assert not (tmp_path / "here").exists() and not (tmp_path / "taken").read_bytes()


def test_check_takes_matrices_too(write):
    done = CliRunner().invoke(app, ["check", write()])
    assert done.exit_code == 0 and "Matrix tiny: 3 cells, 5 runs" in done.stdout
