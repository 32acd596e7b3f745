"""Several raylets on this machine stand for hosts: one is taken away in the middle of a run."""

import json

import pytest
from torn_runs import SMOKE, outcome, run_whole

from ddlsim import runs
from ddlsim.executors.options import Executor
from ddlsim.runs.checkpoint import Every
from ddlsim.runs.progress import Progress
from ddlsim.scenario import load

ray = pytest.importorskip("ray", reason="the extra ray is not installed")

SETTINGS = ("algorithm={name: dac, sampled_peers: 3, loss_batches: local_steps}",)


@pytest.fixture
def hosts():
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 100 * 2**20}
    made = Cluster(initialize_head=True, head_node_args=head)
    added = [made.add_node(num_cpus=1, object_store_memory=100 * 2**20) for _ in range(3)]
    made.wait_for_nodes()
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made, added
    ray.shutdown()
    made.shutdown()


@pytest.mark.slow
def test_a_run_goes_on_without_a_host_that_is_gone(tmp_path, monkeypatch, hosts):
    made, added = hosts
    whole = run_whole(tmp_path / "whole", SETTINGS)
    out, told = tmp_path / "run", Progress.round

    def remove_one(self, completed, *rest):
        told(self, completed, *rest)
        if completed == 3 and len(added) == 3:
            made.remove_node(added.pop(), allow_graceful=False)

    monkeypatch.setattr(Progress, "round", remove_one)
    executor = Executor(name="ray", address=made.address, workers=3)
    runs.run(load(SMOKE, SETTINGS), out=out, executor=executor, checkpoint_every=Every(rounds=1))
    assert outcome(out) == whole
    assert len(json.loads((out / "manifest.json").read_text())["executor"]["workers"]) == 2
