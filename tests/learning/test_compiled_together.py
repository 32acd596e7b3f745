"""Kernels of a run are compiled in threads before their launches; neither compiled nor launched here."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from stacked_learners import fallback_reasons, rng, train_all
from torch.nn import functional as F

from ddlsim import assembly
from ddlsim.kernels import grouped_conv, launching
from ddlsim.learning.backends import stacked_models
from ddlsim.learning.stacking import layers
from ddlsim.runs.loading import load_data, prepare
from ddlsim.scenario import load

SMOKE = Path(__file__).parents[1] / "helpers" / "smoke.yaml"


class Recorder:
    """Replaces Triton's compiler and launches.

    Attributes:
        compiled: kernels with Triton's keys, compiled ahead of launches.
        launched: likewise.
        missing: launched before they were compiled.
    """

    def __init__(self):
        self.compiled, self.launched, self.missing = set(), set(), set()

    def __call__(self, *, key, fn, is_manual_warmup, **_):
        kernel = fn.name.rpartition(".")[2], str(key)
        if is_manual_warmup:
            self.compiled.add(kernel)
        else:
            self.launched.add(kernel)
            self.missing |= {kernel} - self.compiled
        return True  # neither compile nor launch


@pytest.fixture
def recorder(monkeypatch):
    knobs, driver = pytest.importorskip("triton").knobs, pytest.importorskip("triton.runtime").driver
    target = pytest.importorskip("triton.backends.compiler").GPUTarget("cuda", 90, 32)
    device = SimpleNamespace(
        get_current_target=lambda: target, get_current_device=lambda: "none", get_current_stream=lambda device: 0
    )
    found = Recorder()
    monkeypatch.setattr(driver, "_active", device)
    monkeypatch.setattr(knobs.runtime, "jit_cache_hook", found)
    return found


@pytest.fixture
def learner(monkeypatch, as_on_a_gpu, recorder):
    """Return a learner of GN-LeNets whose convolutions launch kernels; their results are arbitrary."""
    loaded = load_data(load(SMOKE, ("model={name: gn_lenet}",)))
    monkeypatch.setattr(
        grouped_conv, "_precision", lambda images, weights: weights.dtype if weights.dtype == torch.float32 else None
    )
    monkeypatch.setattr(layers, "normalizes", lambda images, *_: images.dtype == torch.float32)
    monkeypatch.setattr(stacked_models, "why_no_kernels", lambda device: "")
    monkeypatch.setattr(stacked_models, "is_close", lambda *_: True)
    learner = as_on_a_gpu(assembly.build_learner(loaded.scenario, prepare(loaded), "cpu", threads=2))
    yield learner
    learner.close()


def run_first_waves(learner):
    """Compute losses, a training and an evaluation of all nodes."""
    models = [learner.init_models(node)[0] for node in range(8)]
    for job in [learner.losses(node, [model], 2, rng(node)) for node, model in enumerate(models)]:
        learner.value(job)
    train_all(learner, range(8))
    learner.value(learner.test([tuple(learner.init_models(0, whole=True)[0])], 0))
    assert not fallback_reasons(learner)


def test_first_waves_launch_nothing_that_is_not_compiled(learner, recorder):
    run_first_waves(learner)
    assert {name for name, _ in recorder.launched} == {"_copy", "_convolve", "_weight_gradient", "_pool", "_unpool"}
    assert not recorder.missing
    assert recorder.compiled == recorder.launched


def test_outputs_are_right_while_kernels_are_compiled(recorder):
    images, weights, biases, found = torch.randn(2, 6, 5, 5), torch.randn(8, 3, 3, 3), torch.randn(8), []
    geometry = grouped_conv.Geometry((2, 1), (1, 0), (1, 2))
    inputs = images, weights, biases, 2, geometry, torch.float32
    launching.compile_together(lambda: found.append(grouped_conv.grouped_conv2d(*inputs)))
    torch.testing.assert_close(found[0], F.conv2d(images, weights, biases, *geometry, 2))
    assert len(recorder.compiled) == 3
    assert not recorder.launched


class Broken:
    """A kernel that cannot be compiled in threads.

    Attributes:
        launches: grids and options.
    """

    def __init__(self):
        self.launches = []

    def warmup(self, *arguments, **options):
        raise RuntimeError("no compiler")

    def __getitem__(self, grid):
        return lambda *arguments, **options: self.launches.append((grid, options))


def test_errors_leave_the_compilation_to_the_launch():
    kernel = Broken()
    launch = lambda: launching.launch(kernel, (1,), torch.zeros(1), 2, num_warps=4)  # noqa: E731
    launching.compile_together(lambda: (launch(), 1 / 0))
    assert not kernel.launches
    launch()
    assert kernel.launches == [((1,), {"num_warps": 4})]
