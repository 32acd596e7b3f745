"""Rows of a comparison and the targets of their runs."""

from pathlib import Path

import pytest

from ddlsim import runs
from ddlsim.report.comparing.curves import Target
from ddlsim.report.comparing.rows import compared
from ddlsim.report.comparing.tables import table_of
from ddlsim.report.reading import read
from ddlsim.report.summary import summary_of
from ddlsim.scenario import load

SMOKE = Path(__file__).parents[1] / "helpers" / "smoke.yaml"

ERRORS = """
from dataclasses import dataclass
from typing import Any, ClassVar

from ddlsim.tasks.builtin import Classification
from ddlsim.tasks.base import ACCURACY, F1_MACRO, Metric


@dataclass(frozen=True, kw_only=True)
class Mine(Classification):
    measured: ClassVar = (ACCURACY, F1_MACRO, Metric("error_rate", higher_is_better=False, share=True))
    metric: Any = "accuracy"

    def measures(self, statistics, loss):
        found = dict(super().measures(statistics, loss))
        return found | {"error_rate": 1 - found["accuracy"]}
"""


@pytest.fixture
def run(tmp_path):
    def run(*changes: str):
        out = tmp_path / f"run-{len(list(tmp_path.glob('run-*')))}"
        runs.run(load(SMOKE, changes), out=out)
        return read(out)

    return run


def test_seeds_that_stop_at_their_target_in_different_rounds_share_a_row(run):
    stops = "evaluation={every: 1, target_accuracy: 0.4, stop_at_target: true, samples: 500}"
    given = [run("rounds=15", "algorithm={name: el}", f"seed={seed}", stops) for seed in range(3)]
    summaries = [summary_of(records) for records in given]
    ended = sorted(summary["evaluated_round"] for summary in summaries)
    assert ended[0] < ended[-1] < 15
    (row,) = compared(given)
    assert row.seeds == [0, 1, 2] and row.reached == 3 and row.evaluated_round is None
    between = [summary["target"]["interpolated"]["round"] for summary in summaries]
    assert row.numbers["target_round"]["mean"] == pytest.approx(sum(between) / 3)
    assert all(last - 1 < at <= last for at, last in zip(sorted(between), ended, strict=True))
    assert f"{ended[0]} to {ended[-1]}" in table_of([row])


def test_runs_with_different_targets_share_no_row_of_a_grouping(run):
    given = [run("rounds=2", f"evaluation.target_accuracy={target}") for target in (0.1, 0.1, 0.9)]
    rows = compared(given, by=["algorithm.name"])
    assert [(row.target, row.reached, len(row.seeds)) for row in rows] == [(0.1, 2, 2), (0.9, 0, 1)]
    (row,) = compared(given, by=["algorithm.name"], target=Target(0.15))
    assert len(row.seeds) == 3


def test_group_by_a_constant_key_averages_all_runs(run):
    given = [run("rounds=1", f"algorithm={{name: {name}}}") for name in ("el", "dpsgd")]
    (row,) = compared(given, by=[])
    assert len(row.seeds) == 2 and "algorithm.name" in row.mixed


def test_runs_with_different_user_code_share_no_row(run, tmp_path):
    file = tmp_path / "algo.py"
    given = []
    for seed, rest in enumerate((0.5, 50)):
        file.write_text(
            "from ddlsim.algorithms.decentralized.baselines import Local\n\n\nclass Lazy(Local):\n"
            f"    def round(self, node, state, round_num):\n        yield node.sleep({rest})\n"
        )
        given.append(run("rounds=1", f"seed={seed}", f"algorithm={{name: '{file}:Lazy'}}"))
    assert [row.seeds for row in compared(given)] == [[0], [1]]


def test_run_without_evaluations_has_not_missed_its_target(run):
    (row,) = compared([run("rounds=1", "learning=none")])
    assert "not reached" not in table_of([row])


def test_custom_metric_is_written_as_its_task_defines(run, tmp_path):
    (tmp_path / "own.py").write_text(ERRORS)
    given = [
        run(
            "rounds=4",
            "evaluation.every=1",
            "training={learning_rate: 0.2, batch_size: 64, local_steps: 5}",
            f"task={{name: '{tmp_path / 'own.py'}:Mine'}}",
        )
    ]
    (by_error,), (by_accuracy,) = (
        compared(given, target=target) for target in (Target(0.45, "error_rate"), Target(0.55))
    )
    assert by_error.target_metric.falling
    assert by_error.numbers["target_round"] == pytest.approx(by_accuracy.numbers["target_round"])
    assert by_error.numbers["target_round"]["mean"] > 1
