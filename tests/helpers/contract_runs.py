"""Small runs for the contract of algorithms: a simulated network of eight nodes with the embedded data."""

import json
from pathlib import Path

import pytest

from ddlsim import runs
from ddlsim.algorithms import ALGORITHMS
from ddlsim.scenario import load

SMOKE = Path(__file__).parent / "smoke.yaml"
SETTINGS = {
    "mapl": ", warmup_rounds: 1, projection_units: 64, temperature: 0.5",
    "pens": ", loss_batches: local_steps, sampled_peers: 3, stage1_rounds: 3",
    "panm": ", loss_batches: local_steps, sampled_peers: 2, stage1_rounds: 3",
    "ifca": ", loss_batches: 3",
    "streaming_diloco": ", bits: 32",
    "dac": ", loss_batches: local_steps, sampled_peers: 3",  # scoring on all samples takes longer than a round here
}
QUICK = ("model={name: mlp, hidden: [8]}", "evaluation.samples=50")
UNEQUAL = "devices={name: lognormal, median_step_time_s: 0.05}"
ONE_PER_SET_OF_HOOKS = (
    "adpsgd",
    "dac",
    "diloco",
    "el",
    "facade",
    "fedadam",
    "fedbuff",
    "fedsim",
    "mapl",
    "scaffold",
    "sgp",
)


def each(*default: str) -> list:
    """Return parameters for a test of every algorithm: these by default, one per set of hooks if full, all if slow."""
    return [
        name
        if name in default
        else pytest.param(name, marks=pytest.mark.full if name in ONE_PER_SET_OF_HOOKS else pytest.mark.slow)
        for name in sorted(ALGORITHMS)
    ]


def run(out: Path, name: str, *overrides: str) -> tuple[dict, list[dict]]:
    scenario = load(SMOKE, (f"algorithm={{name: {name}{SETTINGS.get(name, '')}}}", *overrides))
    summary = runs.run(scenario, out=out)
    return summary, read_lines(out / "metrics.jsonl")


def read_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def is_silent(name: str) -> bool:
    return ALGORITHMS[name].exchanges == "nothing"
