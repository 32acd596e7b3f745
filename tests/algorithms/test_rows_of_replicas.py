"""Memory of DiLoCo's workers, counted in rows of parameters, and the sizes that the documentation gives."""

import re
import weakref
from functools import partial
from pathlib import Path

import pytest

from ddlsim import runs
from ddlsim.learning import bank, learner
from ddlsim.scenario import from_mapping

WORKERS, GPT2 = 8, 124_439_808
PAGE = (Path(__file__).parents[2] / "docs" / "language_models.md").read_text()
SCENARIO = {
    "name": "rows",
    "algorithm": {"name": "diloco"},
    "data": {"name": "shakespeare", "length": 12},
    "partition": {"name": "random"},
    "model": {"name": "gpt", "layers": 1, "heads": 2, "width": 8},
    "nodes": {"clusters": [WORKERS]},
    "training": {"optimizer": "adamw", "optimizer_state": "kept", "learning_rate": 0.003, "local_steps": 1},
    "devices": {"name": "constant", "step_time_s": 0.05},
    "evaluation": {"every": 1, "samples": 10},
}


@pytest.fixture
def most_rows(tmp_path, monkeypatch):
    """Return a function of a number of rounds, which returns the largest number of models and moments in memory."""
    peak, banks = [0], weakref.WeakSet()
    allocate = bank.Bank.allocate

    def counted(self):
        found = allocate(self)
        banks.add(self)
        used = [each._num_allocated - len(each._free) for each in banks if each.size > 1]  # not the rows of losses
        peak[0] = max(peak[0], sum(used))
        return found

    def run(rounds):
        peak[0] = 0
        runs.run(from_mapping({**SCENARIO, "rounds": rounds}), out=tmp_path / str(rounds))
        return peak[0]

    monkeypatch.setattr(bank.Bank, "allocate", counted)
    return run


@pytest.mark.parametrize("device", ["CPU", "GPU"])
def test_diloco_keeps_one_common_model_and_the_moments_of_every_worker_once(most_rows, monkeypatch, device):
    if device == "GPU":  # whose waves of training start before the outer step
        monkeypatch.setattr(learner, "make_backends", partial(learner.make_backends, asynchronous=True))
    (row,) = re.findall(rf"^\| in all, {device} \|.*", PAGE, re.MULTILINE)
    formula, rows, size = (cell.strip() for cell in row.split("|")[2:5])
    per_worker, shared = re.fullmatch(r"(\d+) n \+ (\d+)", formula).groups()
    assert most_rows(2) == most_rows(4) == int(per_worker) * WORKERS + int(shared) == int(rows)
    assert size == f"{int(rows) * 4 * GPT2 / 1e9:.1f}"
