import pytest

import ddlsim


def small(**changes):
    """Return a scenario of three nodes in clusters 2:1 whose run takes a fraction of a second."""
    return {
        "name": "small",
        "rounds": 2,
        "nodes": {"clusters": [2, 1]},
        "algorithm": {"name": "dpsgd"},
        "model": {"name": "mlp", "hidden": [4]},
        "data": {"name": "fashion-mnist-mini"},
        "topology": {"name": "ring"},
        "training": {"learning_rate": 0.1, "local_steps": 1},
        "evaluation": {"every": 1},
        **changes,
    }


@pytest.fixture
def scenario():
    return small


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Return a finished run, for reading only."""
    return ddlsim.run(small(), out=tmp_path_factory.mktemp("finished") / "run")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Change to an empty folder and return it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
