"""The first commands of a new user, with user-defined code, models and data."""

import json
import re
from pathlib import Path
from textwrap import dedent

import pytest
from typer.testing import CliRunner

import ddlsim
from ddlsim.cli import app

pytestmark = pytest.mark.usefixtures("forked_runs")

SMALL = ["nodes.clusters=[8]", "topology={name: random_regular, degree: 3}", "rounds=2", "training.local_steps=1"]
MESSAGES = 2 * 8 * 3
"""Of 8 nodes with 3 neighbors each in 2 rounds."""


def ddlsim_command(*words, sets=()):
    """Run a command; return its exit code and output."""
    typed = [*map(str, words), *(word for each in sets for word in ("--set", each))]
    done = CliRunner().invoke(app, typed)
    return done.exit_code, done.stdout + done.stderr


def summary(folder="out"):
    return json.loads((Path(folder) / "summary.json").read_text())


@pytest.fixture
def module(write):
    """Write nets.py with a class Net; return the settings to run it and the payload bytes of its messages."""

    def module(text):
        write()
        Path("nets.py").write_text("import torch\nfrom torch import nn\n" + dedent(text))
        sets = [*SMALL, "algorithm={name: dpsgd}", "model={name: ./nets.py:Net}"]
        code, said = ddlsim_command("run", "s.yaml", "--out", "out", sets=sets)
        assert code == 0, said
        return summary()["bytes"]["payload"]

    return module


def test_one_command_writes_an_algorithm_that_checks_and_runs(here):
    assert ddlsim_command("new", "algorithm", "my_method")[0] == 0
    assert ddlsim_command("check", "my_method.yaml")[0] == 0
    assert ddlsim_command("run", "my_method.yaml", "--out", "out")[0] == 0 and summary()["rounds"] >= 1


def test_an_algorithm_in_a_file_is_named_on_the_command_line(write):
    code, said = ddlsim_command("run", write(), "--out", "out", sets=["algorithm={name: ./mine.py:Mine}"])
    assert code == 0, said
    code, said = ddlsim_command("run", "s.yaml", sets=["algorithm={name: no_such_file:Mine}"])
    assert code == 2 and "A class in a file is named ./mine.py:Mine" in said


def test_check_reports_an_algorithm_without_serving(write):
    lacking = "\n@dataclass(frozen=True)\nclass NoServing(Algorithm):\n    start = Mine.start\n    round = Mine.round\n"
    code, said = ddlsim_command("check", write(lacking), sets=["algorithm={name: ./mine.py:NoServing}"])
    assert code == 2 and re.search(r"mine.py:\d+: .*NoServing.* serving", said), said


def test_model_needs_only_build(write):
    write()
    Path("nets.py").write_text(
        dedent("""
        from dataclasses import dataclass
        from torch import nn
        from ddlsim.models.base import ModelSettings

        @dataclass(frozen=True, kw_only=True)
        class Net(ModelSettings):
            def build(self, image_shape, num_classes):
                return nn.Sequential(nn.Flatten(), nn.Linear(784, num_classes))
        """)
    )
    code, said = ddlsim_command("run", "s.yaml", "--out", "out", sets=["model={name: ./nets.py:Net}"])
    assert code == 0, said


def test_a_plain_sequential_of_modules_is_a_model_and_the_run_names_its_head(here, capsys):
    from torch import nn

    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 4), nn.ReLU(), nn.Linear(4, 10))
    small = {"nodes.clusters": [2], "topology": {"name": "ring"}, "rounds": 1, "training.local_steps": 1}
    run = ddlsim.run("smoke", model=net, set={**small, "algorithm": {"name": "dpsgd"}}, out="out")
    assert run.summary["rounds"] == 1
    assert "its head is its last linear layer, '3' (4 -> 10)" in capsys.readouterr().err


def test_model_with_frozen_layers_sends_only_trained_values(module):
    bytes_sent = module("""
        class Net(nn.Sequential):
            def __init__(self):
                super().__init__(
                    nn.Flatten(), nn.Linear(784, 128), nn.Linear(128, 2, bias=False), nn.Linear(2, 10)
                )
                self[1].requires_grad_(False)  # 100,480 of 100,766 values
        """)
    assert bytes_sent == MESSAGES * 286 * 4


def test_buffers_outside_the_state_of_a_model_are_not_sent(module):
    bytes_sent = module("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.rows, self.head = nn.Linear(28, 28), nn.Linear(28, 10)
                self.register_buffer("position_ids", torch.arange(28)[None], persistent=False)

            def forward(self, x):
                assert self.position_ids.dtype == torch.int64
                return self.head(self.rows(x[:, 0] + self.position_ids).mean(1))
        """)
    assert bytes_sent == MESSAGES * 1102 * 4  # values: 28 x 28 + 28 + 28 x 10 + 10


def test_token_ids_of_user_data_stay_integers(here):
    import numpy as np
    from torch import nn

    tokens = np.arange(240).reshape(60, 4) % 11
    net = nn.Sequential(nn.Embedding(11, 3), nn.Flatten(), nn.Linear(12, 2))
    small = {"nodes.clusters": [2], "topology": {"name": "ring"}, "rounds": 1, "training.local_steps": 1}
    small["shift"] = {"name": "none"}
    data = (tokens, tokens[:, 0] % 2), (tokens[:10], tokens[:10, 0] % 2)
    run = ddlsim.run("smoke", model=net, data=data, set={**small, "algorithm": {"name": "dpsgd"}}, out="out")
    assert run.summary["rounds"] == 1


def test_three_topologies_and_three_seeds_are_three_lines(here):
    pytest.importorskip("matplotlib")
    small = {"nodes.clusters": [4], "rounds": 1, "training.local_steps": 1, "model": {"name": "mlp", "hidden": [2]}}
    for name in ("ring", "complete", "star"):
        for seed in range(3):
            place = f"runs/sweep/{name}/seed-{seed}"
            ddlsim.run("smoke", set={**small, "algorithm": "dpsgd", "topology": {"name": name}}, seed=seed, out=place)
    code, said = ddlsim_command("compare", "runs/sweep", "--plot", "q.svg")
    assert code == 0, said
    drawn = Path("q.svg").read_text()
    assert [drawn.count(f"<!-- {name} (3 seeds) -->") for name in ("ring", "complete", "star")] == [1, 1, 1]
    assert "seed-0" not in drawn


def test_notebook_class_replaces_an_algorithm(here):
    from ddlsim.algorithms.decentralized.el import EpidemicLearning
    from ddlsim.runs import run
    from ddlsim.scenario import load

    class Notebook(EpidemicLearning):
        """Defined in a cell."""

    scenario = load("smoke", ["learning=none"]).model_copy(update={"algorithm": Notebook()})
    assert run(scenario, out=Path("out"))["algorithm"] == "Notebook"


def test_topology_has_a_common_alias(write):
    code, said = ddlsim_command("run", write(), "--out", "out", sets=["topology={name: full}", "learning=none"])
    assert code == 0, said
