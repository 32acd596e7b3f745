"""Memory of DiLoCo's workers, counted in rows of parameters, and the sizes that the documentation gives."""

import re
from functools import partial
from pathlib import Path

import pytest
import torch
from torchvision.models import resnet18

from ddlsim import runs
from ddlsim.kernels import row_blocks
from ddlsim.learning import bank, learner
from ddlsim.scenario import from_mapping

GPT2, BLOCK_ROWS = 124_439_808, 2
ROW_GB = 4 * GPT2 / 1e9
PAGE = (Path(__file__).parents[2] / "docs" / "language_models.md").read_text()
SCENARIO = {
    "name": "rows",
    "algorithm": {"name": "diloco"},
    "data": {"name": "shakespeare", "length": 12},
    "partition": {"name": "random"},
    "model": {"name": "gpt", "layers": 1, "heads": 2, "width": 8},
    "training": {"optimizer": "adamw", "optimizer_state": "kept", "learning_rate": 0.003, "local_steps": 1},
    "devices": {"name": "constant", "step_time_s": 0.05},
    "evaluation": {"every": 1, "samples": 10},
}


@pytest.fixture
def most_rows(tmp_path, monkeypatch):
    """Return a function of a scenario, which returns the largest number of models and moments in memory, and per bank
    the number of places that they have taken.
    """
    peak, banks = [0], []
    allocate = bank.Bank.allocate

    def counted(self):
        found = allocate(self)
        if self not in banks and self.size > 1:  # not the rows of losses
            banks.append(self)
        peak[0] = max(peak[0], sum(each._num_allocated - len(each._free) for each in banks))
        return found

    def run(scenario):
        peak[0] = 0
        banks.clear()
        runs.run(from_mapping(scenario), out=tmp_path / str(len(list(tmp_path.iterdir()))))
        return peak[0], [each._num_allocated for each in banks]

    monkeypatch.setattr(bank.Bank, "allocate", counted)
    return run


def with_workers(count, rounds=2):
    return {**SCENARIO, "nodes": {"clusters": [count]}, "rounds": rounds}


@pytest.mark.parametrize("device", ["CPU", "GPU"])
def test_diloco_keeps_one_common_model_and_the_moments_of_every_worker_once(most_rows, monkeypatch, device):
    if device == "GPU":  # whose waves of training start before the outer step
        monkeypatch.setattr(learner, "make_backends", partial(learner.make_backends, asynchronous=True))
    (row,) = re.findall(rf"^\| in all, {device} \|.*", PAGE, re.MULTILINE)
    formula, *table = (cell.strip() for cell in row.split("|")[2:7])
    per_worker, shared = re.fullmatch(r"(\d+) n \+ (\d+)", formula).groups()
    for workers, rows, size in zip((8, 16), table[::2], table[1::2], strict=True):
        found, places = most_rows(with_workers(workers))
        assert found == int(per_worker) * workers + int(shared) == int(rows)
        assert size == f"{found * ROW_GB:.1f}"
    assert most_rows(with_workers(8, rounds=4))[0] == int(table[0])
    if device == "GPU":
        blocks = sum(-(-count // BLOCK_ROWS) for count in places)
        assert f"16 workers hold {blocks} blocks of two rows,\n{blocks * BLOCK_ROWS * ROW_GB:.1f} GB" in PAGE


def test_blocks_of_gpt2_have_two_rows(monkeypatch):
    """Without memory: on the device `meta`."""
    monkeypatch.setattr(row_blocks, "HOST_BYTES", 0)
    rows = row_blocks.RowBlocks(GPT2, torch.device("meta"))
    for _ in range(99):
        rows.allocate()
    assert {len(block) for block in rows.blocks} == {BLOCK_ROWS} and len(rows.blocks) == 50


def test_nodes_of_dpsgd_keep_three_rows_each(most_rows):
    scenario = with_workers(8) | {"algorithm": {"name": "dpsgd"}, "topology": {"name": "ring"}}
    scenario["training"] = {"learning_rate": 0.1, "local_steps": 1}
    assert most_rows(scenario) == (24, [24])
    values = sum(each.numel() for each in resnet18(num_classes=10).state_dict().values() if each.is_floating_point())
    assert f"192 rows, {3 * 64 * 4 * values / 1e9:.1f} GB, for 64 nodes with ResNet-18" in PAGE


@pytest.mark.slow
def test_a_gpt_of_25_million_parameters_takes_as_many_rows_as_a_small_one(most_rows):
    keys = {"tie_word_embeddings": True, "activation_checkpointing": True}
    small = with_workers(2, rounds=1) | {"records": {"models": "none"}}
    large = small | {"model": {"name": "gpt", "layers": 8, "heads": 8, "width": 512, **keys}}
    found = most_rows(large)
    assert found == most_rows(small) == (14, [10, 4])
