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
    """An empty folder that is the current one, so that messages hold short paths."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def write(here):
    """Writes a scenario file; without a text a small complete one."""

    def write(text=BASE, name="test.yaml", more=""):
        (here / name).write_text(dedent(text) + dedent(more))
        return name

    return write


@pytest.fixture
def problems(write):
    """The lines without source and caret that a scenario's problems give."""

    def problems(text=BASE, more="", sets=()):
        with pytest.raises(ScenarioProblems) as caught:
            load(write(text, more=more), sets)
        return [str(problem).partition("\n")[0] for problem in caught.value.problems]

    return problems
