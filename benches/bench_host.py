"""Host time of FACADE 30:2 on a GPU: rounds of a run whose device computes nothing, against rounds without learning.

Models and images of few values take the place of GN-LeNet's, so that copies of rows cost no more than their launch.
Tensors that are ready replace decoded images and the passes of the networks. The rest is the run's code of a GPU:
events, jobs, full waves, batches, uploads, updates and merges. Figures are CPU time of the process.
"""

import gc
import time
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import facade_cell as cell
import numpy as np
import pytest
import torch
from under_way import UnderWay

from ddlsim.engine.gc_tuning import relaxed_gc
from ddlsim.learning.backends.stacked import make_backends

SCENARIO = Path(__file__).parents[1] / "scenarios" / "facade_30_2.yaml"
SETTINGS = (
    "model={name: mlp, hidden: [2]}",
    "rounds=100000",
    "algorithm.warmup_rounds=0",
    "algorithm.thorough_every=0",
    "algorithm.final_all_reduce=false",
    "evaluation.every=1000000",
)
ROUNDS = 10
"""Rounds of a turn."""
RATE, CLASSES = 0.01, 2


@pytest.fixture(scope="module")
def with_learning(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learning")
    rng = np.random.default_rng(0)
    arrays = {
        f"{name}_{split}": rng.integers(0, highest, size)
        for split, count in (("train", 50_000), ("test", 100))
        for name, highest, size in (("x", 256, (count, 2, 2, 3)), ("y", CLASSES, (count,)))
    }
    np.savez(folder / "data.npz", **{name: each.astype(np.uint8) for name, each in arrays.items()})
    run = UnderWay(folder, SCENARIO, (*SETTINGS, f"data={{name: npz, path: {folder / 'data.npz'}}}"))
    learner = run.learner
    learner.backends.close()
    device, training = torch.device("cpu"), run.scenario.node_training
    own = learner.architectures, learner.data, training, 250, device, 1
    learner.backends = make_backends(*own, stacked=True, asynchronous=True)
    learner.jobs._run = learner.backends.run
    learner.launch_full(run.simulation.membership.num_training)
    run.go_on(2)  # stacked models have been compared with single ones
    _, stacked, _ = learner.backends.backends
    for models in stacked._stacked.values():
        replace_passes(models)
    for images, _ in stacked._pool._pools:
        images.decoder = Decoded(images.decoder.shape)
    yield run
    run.close()


class Decoded:
    """Returns images that are ready instead of decoding bytes."""

    def __init__(self, shape):
        self.shape = shape
        self._ready = cache(lambda count: torch.zeros(count, *shape))

    def __call__(self, stored, own):
        return self._ready(len(stored))


def replace_passes(models) -> None:
    """Replace the passes of stacked models: every gradient is 1, and losses depend on the place of a model alone."""
    size = sum(entry.size for entry in models.trained_entries(None))
    ready = cache(lambda count: (torch.ones(count, size), torch.zeros(count)))
    outputs = cache(lambda count, images: torch.arange(count * images * CLASSES).view(count, images, -1) % 7.0)

    def gradients(weights, others, floats, numbers, images, labels):
        slopes, losses = ready(len(weights))
        return slopes, floats, numbers, losses

    models.gradients = lambda job: gradients
    models.features = lambda cores, images, shared: images
    models.outputs = lambda heads, features: outputs(len(heads), features.shape[1])


@pytest.fixture(scope="module")
def without_learning(tmp_path_factory):
    run = UnderWay(tmp_path_factory.mktemp("events"), SCENARIO, (*SETTINGS, "learning=none"))
    yield run
    run.recorder.close()


def mean_core(run) -> torch.Tensor:
    """Return the mean over nodes of their cores; merges of a regular graph leave it unchanged."""
    cores = [member.state.core for member in run.simulation.members]
    run.learner.jobs.force_params(cores)
    return torch.stack([core.values() for core in cores]).double().mean(dim=0)


def test_facade_round_of_a_device_that_computes_nothing(ratio, benchmark, with_learning, without_learning):
    learner, before = with_learning.learner, mean_core(with_learning)
    computed = {name: Counter(kinds) for name, kinds in learner.paths.items()}
    with relaxed_gc(cell.NODES):
        with_learning.go_on(ROUNDS)
        jobs = {name: Counter(kinds) - computed[name] for name, kinds in learner.paths.items()}
        assert jobs["stacked"] == {kind: ROUNDS * cell.NODES for kind in ("training", "head losses")}
        assert jobs["rows"]["merging"] > 2 * ROUNDS * cell.NODES  # cores, and the heads that a message has brought
        moved = torch.full_like(before, ROUNDS * cell.STEPS * RATE)
        torch.testing.assert_close(before - mean_core(with_learning), moved, atol=1e-4, rtol=0)
        seconds = defaultdict(float)
        measure_waves(learner.jobs, seconds)
        gc.freeze()  # a search of pytest's objects would be charged to some wave
        ours = lambda: with_learning.go_on(ROUNDS)  # noqa: E731
        ratio(ours, lambda: without_learning.go_on(ROUNDS), "the round's events alone", 15, clock=time.process_time)
        gc.unfreeze()
    if "ours_s" in benchmark.extra_info:
        ours_s, rounds = benchmark.extra_info["ours_s"], 16 * ROUNDS  # a turn is not counted
        kinds = {kind: round(1000 * own_s / rounds, 2) for kind, own_s in seconds.items()}
        benchmark.extra_info["round_ms"] = {"all": round(1000 * ours_s / ROUNDS, 2), **kinds}
        print(benchmark.extra_info["round_ms"])


def measure_waves(jobs, seconds: dict[str, float]) -> None:
    """Add the CPU seconds of every wave to those of its kind."""
    run = jobs._run

    def measured(kind, specs):
        start = time.process_time()
        values = run(kind, specs)
        seconds[kind] += time.process_time() - start
        return values

    jobs._run = measured
