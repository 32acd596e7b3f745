"""Options of executors, placement of workers, and assignment of nodes."""

import socket

import numpy as np
import pytest

from ddlsim.foundation.errors import DataMissing, DdlsimError, ScenarioError
from ddlsim.runs.cluster import cluster
from ddlsim.runs.cluster.cluster import Executor, executor_of, plan
from ddlsim.runs.cluster.ray_workers import deal


def test_an_address_is_part_of_the_name():
    assert executor_of("ray:10.0.0.1:6379", workers=4) == Executor(name="ray", address="10.0.0.1:6379", workers=4)
    assert executor_of("ray:auto").address == "auto"
    assert executor_of() == Executor()


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("slurm", {}, "expected local, ray"),
        ("ray:", {}, "expected local, ray"),
        ("ray:somewhere", {}, "HOST:PORT"),
        ("local", {"workers": 2}, "--workers: is an option of Ray's workers"),
        ("ray", {"workers": 0}, "--workers 0: expected a whole number from 1 on"),
        ("ray", {"gpus_per_worker": 2}, "--gpus-per-worker 2: expected 0 or 1"),
        ("ray", {"shards": "random"}, "--shards random: expected contiguous"),
        ("ray", {"object_store_gb": 0.01}, "--object-store-gb"),
    ],
)
def test_a_wrong_option_is_one_error(text, options, message):
    with pytest.raises(ScenarioError, match=message):
        executor_of(text, **options)


def test_without_ray_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(DataMissing, match=r"ddlsim\[ray\]"):
        cluster.import_ray()


def test_unreachable_address_is_one_error_at_once():
    pytest.importorskip("ray", reason="the extra ray is not installed")
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        with pytest.raises(DdlsimError, match=r"no Ray cluster answers at 127.0.0.1:.*refused"):
            cluster.connect(executor_of(f"ray:127.0.0.1:{bound.getsockname()[1]}"))


def host(name, cpus, gpus=0):
    return {"NodeID": name, "NodeManagerAddress": name, "Resources": {"CPU": cpus, "GPU": gpus}}


def test_workers_are_spread_over_hosts_and_share_their_cores():
    places = plan(Executor(name="ray", workers=3), [host("a", 8), host("b", 8)])
    assert [(place.host, place.threads) for place in places] == [("a", 4), ("a", 4), ("b", 8)]


def test_there_is_one_worker_per_host_or_per_gpu():
    hosts = [host("a", 8, gpus=2), host("b", 8, gpus=1)]
    assert len(plan(Executor(name="ray"), hosts)) == 2
    assert len(plan(Executor(name="ray", gpus_per_worker=1), hosts)) == 3


def test_too_many_workers_are_refused_except_after_losses():
    executor = Executor(name="ray", workers=4, cpus_per_worker=4)
    with pytest.raises(ScenarioError, match="room for 2"):
        plan(executor, [host("a", 8)])
    assert len(plan(executor, [host("a", 8)], fewer=True)) == 2
    with pytest.raises(DdlsimError, match="none of the 0 hosts"):
        plan(executor, [], fewer=True)


def test_nodes_are_dealt_in_the_largest_possible_blocks():
    clusters = np.array([0, 1, 0, 1, 0, 1, 0])
    assert deal("contiguous", 3, clusters, list)[:-1] == [0, 0, 0, 1, 1, 2, 2]
    assert deal("clusters", 2, clusters, list)[:-1] == [0, 1, 0, 1, 0, 1, 0]
    assert deal("contiguous", 3, clusters, list)[-1] == 0  # a server


def test_neighbors_are_brought_together():
    order = [(3 * i) % 16 for i in range(16)]
    neighbors: list[list[int]] = [[] for _ in range(16)]
    for place, node in enumerate(order):
        neighbors[node] = [order[place - 1], order[(place + 1) % 16]]
    found = deal("graph", 2, np.zeros(16, int), lambda: neighbors)
    assert sorted(found[:-1]) == [0] * 8 + [1] * 8
    assert sum(found[a] != found[b] for a, own in enumerate(neighbors) for b in own) == 2 * 2
