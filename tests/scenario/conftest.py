from textwrap import dedent

import pytest

from ddlsim.scenario import ScenarioProblems, load

BASE = """\
rounds: 3
nodes: {clusters: [5, 3]}
algorithm: {name: facade}
model: {name: mlp}
data: {name: fashion-mnist-mini}
training: {learning_rate: 0.1}
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Change to an empty folder, so that messages contain short paths."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def write(here):
    """Return a function that writes a scenario file, by default a small complete one."""

    def write(text=BASE, name="test.yaml", more=""):
        (here / name).write_text(dedent(text) + dedent(more))
        return name

    return write


@pytest.fixture
def problems(write):
    """Return a function that gives a scenario's problems, without source and caret."""

    def problems(text=BASE, more="", sets=()):
        with pytest.raises(ScenarioProblems) as caught:
            load(write(text, more=more), sets)
        return [str(problem).partition("\n")[0] for problem in caught.value.problems]

    return problems
