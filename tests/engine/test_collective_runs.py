"""Collective operations in runs of scenarios: models, compression, sizes, and resume."""

from pathlib import Path

import pytest
import torch
from torn_runs import SMOKE, outcome, run_until, run_whole

import ddlsim
from ddlsim import runs
from ddlsim.foundation.errors import DdlsimError
from ddlsim.runs.checkpoint import Every
from ddlsim.scenario import load

ALGORITHMS = Path(__file__).parents[1] / "helpers" / "collective_algorithms.py"


def settings(name: str, *more: str, **keys: object) -> tuple[str, ...]:
    options = "".join(f", {key}: {value}" for key, value in keys.items())
    quick = ("evaluation.samples=50", "model={name: mlp, hidden: [8]}", "rounds=3")
    return (f"algorithm={{name: '{ALGORITHMS}:{name}'{options}}}", *quick, *more)


def run(out: Path, *overrides: str) -> dict:
    return runs.run(load(SMOKE, overrides), out=out)


def test_models_are_equal_after_a_compressed_all_reduce(tmp_path):
    keys = settings("LocalSGD", "network.compression={name: int8}", algorithm="tree")
    finished = ddlsim.run(load(SMOKE, (*keys, "records.models=last")), out=tmp_path)
    values = (784 + 1) * 8 + (8 + 1) * 10
    assert finished.summary["bytes"]["payload"] == 3 * 2 * 7 * (values + 4 * 4)  # a scale for each of four tensors
    first, other = (finished.state_dict(node) for node in (0, 5))
    assert all(torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (
            ("network.compression={name: top_k}",),
            "node.all_reduce: this network.compression sends changes of a receiver",
        ),
        (("attacks=[{name: sign_flip, nodes: [1]}]",), "node.all_reduce: expected a run without attacks"),
    ],
)
def test_unsupported_settings_of_collectives_are_errors(tmp_path, keys, text):
    with pytest.raises(DdlsimError, match=text):
        run(tmp_path, *settings("LocalSGD", *keys))


def test_all_reduce_of_a_hundred_billion_parameters(tmp_path):
    sizes = "model={name: sizes, core: 100000000000, head: 0}"
    keys = ("learning=none", "network.header_bytes=0", "nodes.clusters=[64]", "rounds=1")
    summary = run(tmp_path, *settings("LocalSGD", sizes, *keys))
    assert summary["bytes"]["payload"] == 2 * 63 * 400_000_000_000
    steps_s = 5 * 0.05 + 2 * 63 / 64 * 400e9 / 12.5e6 + 2 * 63 * 0.02
    assert summary["timetable"][0]["last_s"] == pytest.approx(steps_s, rel=1e-9)


CHURN = "churn={name: schedule, offline: [{node: 2, start_s: 0.27, end_s: 0.4}]}"


@pytest.mark.parametrize("name", ["LocalSGD", "Overlapped"])
def test_resumed_run_with_collectives_has_the_same_bytes(tmp_path, monkeypatch, name):
    keys = settings(
        name, CHURN, "evaluation.every=1", "network.compression={name: float16}", "training.optimizer=adamw"
    )
    whole = run_whole(tmp_path / "whole", keys)
    run_until(tmp_path / "torn", keys, 2, 1, monkeypatch)
    runs.resume(tmp_path / "torn", checkpoint_every=Every(rounds=1))
    assert outcome(tmp_path / "torn") == whole
