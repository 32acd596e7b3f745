from textwrap import dedent

import pytest

MINE = '''
from dataclasses import dataclass

from ddlsim.algorithms.base import Algorithm
from ddlsim.node.candidates import EvaluationCandidates


@dataclass
class State:
    model: object


@dataclass(frozen=True, kw_only=True)
class Mine(Algorithm):
    """Trains, and averages with its neighbors."""

    every: int = 1

    def start(self, node):
        ((model,),) = node.init_models(whole=True)
        return State(model)

    def round(self, node, state, round_num):
        (state.model,) = yield node.train((state.model,))
        if round_num % self.every == 0:
            node.send(node.peers(round_num), round_num, model=state.model)
            inbox = yield node.receive(round_num)
            state.model = node.average(state.model, {m.src: m.payload["model"] for m in inbox})

    def serving(self, node, state):
        return EvaluationCandidates([(state.model,)])
'''
SCENARIO = """\
rounds: 2
nodes: {clusters: [3]}
algorithm: {name: "./mine.py:Mine"}
model: {name: mlp, hidden: [4]}
data: {name: fashion-mnist-mini}
topology: {name: ring}
training: {learning_rate: 0.1, local_steps: 1}
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Change to an empty folder and return it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def write(here):
    """Write mine.py with more classes, and a scenario with Mine; return the scenario's path."""

    def write(more="", scenario=SCENARIO, folder="."):
        (here / folder).mkdir(parents=True, exist_ok=True)
        (here / folder / "mine.py").write_text(MINE + dedent(more))
        (here / folder / "s.yaml").write_text(scenario)
        return f"{folder}/s.yaml" if folder != "." else "s.yaml"

    return write
