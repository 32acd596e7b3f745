"""Rows are sent at most once to each worker and freed when unreferenced; workers keep the samples of their nodes."""

from functools import partial

from torn_runs import SMOKE
from workers_here import workers_here

from ddlsim import runs
from ddlsim.learning import learner
from ddlsim.learning.backends import stacked
from ddlsim.learning.bank import RowBlocks
from ddlsim.learning.remote.shard import Shard
from ddlsim.runs.cluster.cluster import Executor
from ddlsim.scenario import load

LOSS_BYTES, ROW_BYTES = 4, 4 * 25_450  # a float; the model of smoke.yaml
NO_CONSENSUS = "evaluation.consensus_distance=false"  # which compares all models on one worker


def test_each_row_travels_at_most_once_to_each_worker(tmp_path, monkeypatch):
    received: list[tuple[int, int]] = []
    take = Shard._take

    def count(self, block):
        received.extend((id(self), number) for _, numbers, _ in block for number in numbers.tolist())
        take(self, block)

    monkeypatch.setattr(Shard, "_take", count)
    with workers_here(monkeypatch):
        scenario = load(SMOKE, ("algorithm={name: dpsgd}", "topology={name: ring}", "rounds=4", NO_CONSENSUS))
        runs.run(scenario, out=tmp_path / "run", executor=Executor(name="ray", workers=2))
    assert len(received) == len(set(received))
    # A ring on two workers has two borders, each crossed by one model per direction and round; the training losses of
    # the second worker's four nodes are read on the first.
    assert len(received) == 4 * 4 + 4 * 4


def test_workers_free_unreferenced_rows(tmp_path, monkeypatch):
    with workers_here(monkeypatch) as made:
        scenario = load(SMOKE, ("algorithm={name: el}", "rounds=12", "evaluation.every=6"))
        runs.run(scenario, out=tmp_path / "run", executor=Executor(name="ray", workers=2))
    models = [sum(row.values().numel() > 1 for row in shard._rows.values()) for shard in made[0]._shards]
    assert max(models) <= 3 * 8  # of 12 rounds with 8 trained and merged models


def test_manifest_lists_hosts_and_moved_bytes(tmp_path, monkeypatch):
    import json

    with workers_here(monkeypatch):
        scenario = load(SMOKE, ("algorithm={name: dpsgd}", "topology={name: ring}", "rounds=4", NO_CONSENSUS))
        runs.run(scenario, out=tmp_path / "run", executor=Executor(name="ray", workers=2))
    executor = json.loads((tmp_path / "run" / "manifest.json").read_text())["executor"]
    assert (executor["name"], [worker["nodes"] for worker in executor["workers"]]) == ("ray", [4, 4])
    assert executor["moved_bytes"] == 16 * ROW_BYTES + 16 * LOSS_BYTES
    assert executor["moved_between"] == [[0, 1, 8 * ROW_BYTES], [1, 0, 8 * ROW_BYTES + 16 * LOSS_BYTES]]


def test_received_rows_of_a_part_are_copied_together(tmp_path, monkeypatch):
    copies, parts = [], []
    take, store = Shard._take, RowBlocks.store

    def counted(self, block):
        before = len(copies)
        take(self, block)
        parts.append((len(block), len(copies) - before))

    monkeypatch.setattr(Shard, "_take", counted)
    monkeypatch.setattr(RowBlocks, "store", lambda *arguments: copies.append(1) or store(*arguments))
    with workers_here(monkeypatch):
        scenario = load(SMOKE, ("algorithm={name: dpsgd}", "topology={name: complete}", "rounds=1"))
        runs.run(scenario, out=tmp_path / "run", executor=Executor(name="ray", workers=2))
    assert parts and all(number == count for number, count in parts)


def test_workers_pool_the_samples_of_their_nodes_alone(tmp_path, monkeypatch):
    pools, images = [], []
    make = stacked.SamplePool

    def counted(samples):
        pools.append([len(labels) for _, labels in samples])
        images.append({id(inputs.stored): len(inputs.stored) for inputs, labels in samples if len(labels)})
        return make(samples)

    monkeypatch.setattr(learner, "make_backends", partial(learner.make_backends, stacked=True))
    monkeypatch.setattr(stacked, "SamplePool", counted)
    with workers_here(monkeypatch):
        scenario = load(SMOKE, ("algorithm={name: el}", "rounds=1"))
        runs.run(scenario, out=tmp_path / "run", executor=Executor(name="ray", workers=2))
    (first, second), half = pools, scenario.nodes.count // 2
    assert not any(first[half:]) and not any(second[:half]) and all(first[:half]) and all(second[half:])
    assert [list(each.values()) for each in images] == [[sum(first)], [sum(second)]]
