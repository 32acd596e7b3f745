import pytest

BASE = """\
rounds: 2
nodes: {clusters: [2, 2]}
algorithm: {name: dpsgd}
model: {name: linear}
data: {name: synthetic_regression, test_samples: 20}
partition: {name: domains}
topology: {name: ring}
training: {learning_rate: 0.003, local_steps: 2}
"""

MATRIX = """\
description: A tiny table
source: Table 1
note: made up
seeds: [1, 2]
scenario: {extends: base.yaml, rounds: 3}
axes:
  rate:
    slow: {training: {learning_rate: 0.0001}}
    fast: {training: {learning_rate: 0.003}}
  graph:
    ring: {topology: {name: ring}}
    complete: {topology: {name: complete}}
cells:
  slow/ring: {published: {mean: 9000.0, std: 100.0, clusters: [8000.0, 9500.0]}}
  fast/complete:
    scenario: {training: {local_steps: 1}}
    published: {mean: 3000.0}
    note: one step
  alone: {scenario: {algorithm: {name: el}}, seeds: [7]}
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Return a function that writes a matrix and its base scenario; (old, new) pairs change its text."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_text(BASE)

    def write(*changes, text=MATRIX, name="tiny.yaml"):
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new)
        (tmp_path / name).write_text(text)
        return name

    return write
