"""The deployment's algorithms against ddlsim's: equal models, over the loopback device."""

import socket
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import ddlsim

HERE = Path(__file__).parent / "deployment"
SMALLER = {"nodes.clusters": [4], "rounds": 3, "evaluation.every": 3, "model.hidden": [8]}


@pytest.fixture
def deployed(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    import node

    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setattr(node, "PORT", free.getsockname()[1])
    yield node
    sys.modules.pop("node", None)


@pytest.mark.skipif(sys.platform != "linux", reason="needs several loopback addresses")
@pytest.mark.parametrize(
    ("name", "changes"), [pytest.param("dpsgd", {}, marks=pytest.mark.full), ("el", {"topology.degree": 3})]
)
def test_models_of_a_deployment_equal_the_simulation(name, changes, deployed, tmp_path):
    settings = {**SMALLER, **changes}
    config = {
        "scenario": str(HERE / f"{name}.yaml"),
        "overrides": [f"{key}={value}" for key, value in settings.items()],
        "step_times_s": [0.0] * 4,
        "addresses": [f"127.0.0.{host + 1}" for host in range(4)],
    }
    nodes = [deployed.Node(config, number) for number in range(4)]
    for each in nodes:
        each.peers.connect()
    threads = [threading.Thread(target=each.run, args=(time.monotonic(),)) for each in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    run = ddlsim.run(config["scenario"], set=settings, out=tmp_path, progress=None)
    for each in nodes:
        np.testing.assert_allclose(each.models["round_3"], deployed.flat(run.model(each.number)), atol=2e-6)
