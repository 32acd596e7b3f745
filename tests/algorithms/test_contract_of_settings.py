"""Every algorithm with other models, tasks, devices, evaluations and modes runs, or the check reports an error."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from contract_runs import QUICK, UNEQUAL, each, run

from ddlsim.algorithms import ALGORITHMS
from ddlsim.learning import learner
from ddlsim.learning.backends.stacked import make_backends
from ddlsim.scenario import ScenarioProblems

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def test_another_seed_gives_other_records(tmp_path):
    for seed in (0, 1):
        run(tmp_path / str(seed), "el", *QUICK, f"seed={seed}", "rounds=1")
    assert (tmp_path / "0/metrics.jsonl").read_bytes() != (tmp_path / "1/metrics.jsonl").read_bytes()


@pytest.mark.parametrize("trains_by_a_loss_of_its_own", ["fedproto", "fedclassavg", "mapl"])
def test_custom_losses_can_be_computed_in_bfloat16(tmp_path, trains_by_a_loss_of_its_own):
    losses = []
    for precision in ("float32", "bf16"):
        settings = (
            f"training.precision={precision}",
            "training.learning_rate=0.05",
            "rounds=2",
            "evaluation={every: 2, samples: 100}",
        )
        rows = run(tmp_path / precision, trains_by_a_loss_of_its_own, *settings)[1]
        losses.append([row["value"] for row in rows if row["name"] == "test_loss"])
    assert losses[0] != losses[1] and losses[1] == pytest.approx(losses[0], rel=0.05)


def runs_or_is_refused(tmp_path: Path, name: str, place: str, *overrides: str) -> dict | None:
    """Return the summary of a run, or None if the check reports an error at this place before the run."""
    try:
        return run(tmp_path / "run", name, *overrides, "rounds=1")[0]
    except ScenarioProblems as error:
        assert [problem.path for problem in error.problems] == [place]


def test_model_without_core_runs_or_is_an_error(tmp_path, name):
    changes = ["model={name: linear}", "evaluation.samples=50"]
    if name == "streaming_diloco":
        changes.append("algorithm.fragments=1")  # the model has one layer
    summary = runs_or_is_refused(tmp_path, name, "model.name", *changes)
    assert (summary is None) == ALGORITHMS[name].needs_core


def test_regression_runs_or_is_an_error(tmp_path, name):
    changes = (
        "data={name: synthetic_regression, test_samples: 20}",
        "shift={name: none}",
        "partition={name: domains}",
        "evaluation.target_accuracy=null",
        "training.learning_rate=0.0001",
    )
    summary = runs_or_is_refused(tmp_path, name, "algorithm.name", *changes)
    if summary is None:
        assert ALGORITHMS[name].needs_classes
    else:
        assert summary["status"] == "done" and np.isfinite(summary["mse"]["all"])


@pytest.mark.parametrize("algorithm", each("dac", "facade", "fedbuff", "mapl", "scaffold"))
@pytest.mark.parametrize(
    ("mode", "device"),
    [("async", "cpu"), pytest.param("sync", "cuda", marks=needs_cuda), pytest.param("async", "cuda", marks=needs_cuda)],
)
def test_stacked_waves_give_the_same_run(tmp_path, algorithm, mode, device, monkeypatch):
    """The GPU backend, on a GPU or on the CPU: models are stacked instead of computed one by one."""
    options = (*QUICK, "rounds=2", f"mode={mode}", UNEQUAL, "evaluation.every=1")
    expected, expected_rows = run(tmp_path / "threads", algorithm, *options, "compute_device=cpu")
    monkeypatch.setattr(learner, "make_backends", partial(make_backends, stacked=True))
    summary, rows = run(tmp_path / "stacked", algorithm, *options, f"compute_device={device}")
    assert (summary["bytes"], summary["sim_time_s"]) == (expected["bytes"], expected["sim_time_s"])
    assert [(row["node"], row["name"]) for row in rows] == [(row["node"], row["name"]) for row in expected_rows]
    for found, row in zip(rows, expected_rows, strict=True):
        off = np.abs(np.subtract(row["value"], found["value"])).sum()
        limit = 2 if row["name"] == "confusion" else 0.021  # one image of fifty may lie on the decision boundary
        assert off <= limit, (found, row)


LOOKS = {"accuracy", "accuracy_lowest_test_loss", "bytes_sent", "confusion", "evaluated_head", "test_loss"}


@pytest.mark.parametrize("algorithm", each("dac", "facade", "fedbuff", "mapl", "scaffold"))
def test_evaluation_interval_changes_no_other_record(tmp_path, algorithm):
    """All other records are the same to the byte, between evaluations and after the last one."""
    found = []
    mode = "async" if sorted(ALGORITHMS).index(algorithm) % 2 else "sync"
    for every in (1, 3, 1000):
        out = tmp_path / str(every)
        changes = (*QUICK, f"evaluation.every={every}", f"mode={mode}", UNEQUAL, "rounds=4")
        summary, rows = run(out, algorithm, *changes)
        last = max(row["round"] for row in rows if row["name"] == "accuracy")
        trained = [row for row in rows if row["name"] not in LOOKS or row["round"] == last]
        files = [(out / file).read_bytes() for file in ("communication.jsonl", "contents.jsonl", "links.jsonl")]
        found.append((trained, files, summary["sim_time_s"]))
    assert len(found[0][0]) >= 8 * 4
    assert all(other == found[0] for other in found[1:])


@pytest.mark.parametrize(
    "server",
    [
        name if name in ("fedavg", "fedproto", "scaffold") else pytest.param(name, marks=pytest.mark.full)
        for name in sorted(ALGORITHMS)
        if ALGORITHMS[name].has_server
    ],
)
def test_nodes_wait_for_the_server_in_both_modes(tmp_path, server):
    """A node that does not wait would train a model that late answers overwrite."""
    found = []
    for mode in ("sync", "async"):
        settings = (f"mode={mode}", UNEQUAL, "rounds=3", "evaluation={every: 1, samples: 50}")
        summary, rows = run(tmp_path / mode, server, *settings)
        found.append((summary["sim_time_s"], [row for row in rows if row["name"] != "online"]))
    assert found[0] == found[1]
