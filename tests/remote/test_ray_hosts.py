"""Several raylets on this machine represent hosts; one is removed during a run."""

import json
import os
import signal
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from lost_runs import WAITING, until
from torn_runs import SMOKE, outcome, run_whole

from ddlsim import runs
from ddlsim.foundation.errors import DdlsimError
from ddlsim.runs.checkpoint import Every
from ddlsim.runs.cluster.cluster import Executor
from ddlsim.runs.progress import Progress
from ddlsim.scenario import load

ray = pytest.importorskip("ray", reason="the extra ray is not installed")

SETTINGS = ("algorithm={name: dac, sampled_peers: 3, loss_batches: local_steps}",)
THOUSAND = Path(__file__).parents[2] / "scenarios" / "thousand_nodes.yaml"


@contextmanager
def cluster_with(**head):
    """Provide a cluster with such a head, to which this process is connected in the block."""
    from ray.cluster_utils import Cluster

    always = {"include_dashboard": False, "object_store_memory": 100 * 2**20}
    made = Cluster(initialize_head=True, head_node_args={**always, **head})
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    try:
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


@pytest.fixture
def hosts(request):
    store = getattr(request, "param", 100) * 2**20
    with cluster_with(num_cpus=0) as made:
        added = [made.add_node(num_cpus=1, object_store_memory=store) for _ in range(3)]
        made.wait_for_nodes()
        yield made, added


@pytest.mark.slow
def test_run_continues_after_the_loss_of_a_host(tmp_path, monkeypatch, hosts):
    made, added = hosts
    whole = run_whole(tmp_path / "whole", SETTINGS)
    out, report_round = tmp_path / "run", Progress.round

    def remove_one(self, completed, *rest):
        report_round(self, completed, *rest)
        if completed == 3 and len(added) == 3:
            made.remove_node(added.pop(), allow_graceful=False)

    monkeypatch.setattr(Progress, "round", remove_one)
    executor = Executor(name="ray", address=made.address, workers=3)
    runs.run(load(SMOKE, SETTINGS), out=out, executor=executor, checkpoint_every=Every(rounds=1))
    assert outcome(out) == whole
    assert len(json.loads((out / "manifest.json").read_text())["executor"]["workers"]) == 2


def records(directory):
    """Return name -> bytes of every record file; the files depend on `records.detail`."""
    found = {path.name: path.read_bytes() for path in directory.glob("*.jsonl")}
    assert found.keys() >= {"metrics.jsonl", "communication.jsonl"}
    return found


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [1024], indirect=True)
def test_killed_host_of_three_does_not_change_the_bytes_of_a_thousand_nodes(tmp_path, monkeypatch, hosts):
    made, added = hosts
    scenario = load(THOUSAND)
    runs.run(scenario, out=tmp_path / "here")
    out, report_round, killed = tmp_path / "run", Progress.round, []

    def kill_one(self, completed, *rest):
        report_round(self, completed, *rest)
        if completed == 11 and not killed:
            killed.append(added[1].all_processes["raylet"][0].process.pid)
            os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(Progress, "round", kill_one)
    executor = Executor(name="ray", address=made.address, workers=3)
    runs.run(scenario, out=out, executor=executor, checkpoint_every=Every(rounds=4))
    assert records(out) == records(tmp_path / "here")
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["resumed_after_rounds"] == [8]
    assert len(manifest["executor"]["workers"]) == 2
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (tmp_path / "here", out)]
    print({"executor": manifest["executor"], "wall_s": [one["wall_s"] for one in summaries]})  # pytest -s


@pytest.mark.slow
def test_full_store_and_full_disk_are_one_error(tmp_path):
    settings = ("algorithm={name: dpsgd}", "model.hidden=[4000]", "nodes.clusters=[12, 12]", "rounds=2")  # 12.7 MB each
    full = {"local_fs_capacity_threshold": 0.001}  # any disk counts as full
    with (
        cluster_with(num_cpus=2, _system_config=full) as made,
        pytest.raises(DdlsimError, match=r"object store is full, and so is the disk .*--object-store-gb"),
    ):
        executor = Executor(name="ray", address=made.address, workers=2, cpus_per_worker=1)
        runs.run(load(SMOKE, (*settings, "training.local_steps=1")), out=tmp_path / "run", executor=executor)


@pytest.mark.slow
def test_loss_of_all_hosts_is_one_error_and_the_run_resumes_locally(tmp_path, monkeypatch, hosts):
    made, added = hosts
    whole = run_whole(tmp_path / "whole", SETTINGS)
    out, report_round = tmp_path / "run", Progress.round

    def remove_all(self, completed, *rest):
        report_round(self, completed, *rest)
        while completed == 3 and added:
            made.remove_node(added.pop(), allow_graceful=False)

    executor = Executor(name="ray", address=made.address, workers=3)
    with monkeypatch.context() as patched:
        patched.setattr(Progress, "round", remove_all)
        with pytest.raises(DdlsimError, match=r"none of the 0 hosts|losses without a new checkpoint"):
            runs.run(load(SMOKE, SETTINGS), out=out, executor=executor, checkpoint_every=Every(rounds=1))
    runs.resume(out)
    assert outcome(out) == whole


@pytest.mark.slow
def test_sweep_completes_all_runs_despite_a_lost_host(tmp_path, hosts):
    from ddlsim.runs.sweeps.points import Point
    from ddlsim.runs.sweeps.pool import Resources, run_points

    made, added = hosts
    (tmp_path / "mine.py").write_text(WAITING)
    settings = (f"algorithm={{name: '{tmp_path}/mine.py:Waiting', folder: {tmp_path}}}", "rounds=3")
    scenarios = {seed: load(SMOKE, (*settings, f"seed={seed}")) for seed in range(4)}
    points = [Point(f"seed {seed}", tmp_path / f"there-{seed}", own) for seed, own in scenarios.items()]

    def remove_one():
        try:
            until(lambda: len(list(tmp_path.glob("at-*"))) == 3, 120)
            lost = next(node for node in added if list(tmp_path.glob(f"at-{node.node_id}-*")))
            made.remove_node(lost, allow_graceful=False)
        finally:
            (tmp_path / "go").touch()

    remover = threading.Thread(target=remove_one, daemon=True)
    remover.start()
    ended = list(
        run_points(points, Executor(name="ray", address=made.address), Resources(), {"checkpoint_every": Every()})
    )
    remover.join()
    assert sorted((found.job.name, found.code) for found in ended) == [(f"seed {seed}", 0) for seed in range(4)]
    assert len(list(tmp_path.glob("at-*"))) == len(points) + 1, "no run has begun again"
    for seed, scenario in scenarios.items():
        runs.run(scenario, out=tmp_path / f"here-{seed}", checkpoint_every=Every())
        assert outcome(tmp_path / f"there-{seed}") == outcome(tmp_path / f"here-{seed}")
