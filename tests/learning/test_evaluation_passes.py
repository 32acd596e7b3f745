"""The passes of stacked evaluations depend on bytes of activations, for any images."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from ddlsim.learning.architecture import read_architecture
from ddlsim.learning.backends import device
from ddlsim.learning.backends.device import Memory
from ddlsim.learning.backends.stacked_models import StackedModels
from ddlsim.learning.backends.workspace import ModelWorkspace
from ddlsim.models import MODELS

IMAGES = 25
LARGEST = 2 * 4 * 36 * 4  # bytes of an image: 4 channels 6 x 6, in and out


@pytest.fixture
def stacked(make_learner, as_on_a_gpu, monkeypatch):
    """Return a learner of stacked models, and (cores, images) of every later pass."""
    learner, seen, features = as_on_a_gpu(make_learner()), [], StackedModels.features
    learner.value(
        learner.test(learner.init_models(9, 2), 0)
    )  # which checks that they can be stacked, and measures them

    def noted(self, cores, images, shared):
        seen.append((len(cores), images.shape[0 if shared else 1]))
        return features(self, cores, images, shared)

    monkeypatch.setattr(StackedModels, "features", noted)
    return learner, seen


def memory_of(learner) -> Memory:
    return learner.backends.backends[1]._memory


def evaluate(learner, clusters, seeds=(1, 2, 3)):
    return learner.resolve(
        [learner.test([learner.init_models(seed)[0]], cluster) for seed, cluster in zip(seeds, clusters, strict=True)]
    )


def test_a_core_that_computes_nothing_is_measured(make_learner, as_on_a_gpu):
    learner = as_on_a_gpu(make_learner(builders={"linear": lambda: MODELS["linear"]().build((2, 6, 6), 3)}))
    (tested,) = learner.value(learner.test(learner.init_models(1, whole=True), 0))
    assert np.isfinite(tested.loss) and learner.paths["stacked"]["evaluation"] == 1


def test_image_of_gn_lenet_needs_the_input_and_output_of_its_first_normalization():
    architecture = read_architecture("own", lambda: MODELS["gn_lenet"]().build((3, 32, 32), 10))
    workspace = ModelWorkspace(architecture, torch.device("cpu"))
    models = StackedModels(workspace, nn.functional.cross_entropy, SimpleNamespace(precision="float32"))
    assert models.image_bytes(torch.randn(1, 3, 32, 32)) == (2 * 32 * 32 * 32 * 4, 3 * 10 * 4)


def test_a_pass_has_as_many_images_as_its_bytes_allow(stacked):
    learner, seen = stacked
    memory_of(learner).pass_bytes = 3 * 7 * LARGEST  # three cores on seven images
    evaluate(learner, (0, 0, 0))
    assert [cores for cores, _ in seen] == [3] * len(seen)
    assert sum(images for _, images in seen) == IMAGES
    assert seen[0] == (3, 7)


def test_models_of_both_clusters_are_one_stack(stacked):
    learner, seen = stacked
    found = evaluate(learner, (0, 1, 1))
    assert seen == [(3, IMAGES)]
    alone = [evaluate(learner, (cluster,), (seed,))[0] for cluster, seed in zip((0, 1, 1), (1, 2, 3), strict=True)]
    for (one,), (other,) in zip(found, alone, strict=True):
        assert np.array_equal(one.confusion, other.confusion) and one.loss == pytest.approx(other.loss, rel=1e-5)


def test_failed_pass_size_is_not_retried(stacked, monkeypatch):
    learner, _ = stacked
    expected = evaluate(learner, (0, 0, 0), (4, 5, 6))
    learner.backends._evaluations = type(learner.backends._evaluations)()  # which would have stored the answers
    features, tried = StackedModels.features, []

    def limited(self, cores, images, shared):
        tried.append(images.shape[0])
        if images.shape[0] > 6:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return features(self, cores, images, shared)

    monkeypatch.setattr(StackedModels, "features", limited)
    found = evaluate(learner, (0, 0, 0), (4, 5, 6))
    assert tried[:3] == [25, 12, 6] and max(tried[2:]) == 6
    tried.clear()
    evaluate(learner, (0, 0, 0), (7, 8, 9))
    assert tried == [6, 6, 6, 6, 1]
    for (one,), (other,) in zip(found, expected, strict=True):
        assert np.array_equal(one.confusion, other.confusion)


def test_wave_exceeding_the_memory_is_split_in_later_calls():
    tried, fits = [], Memory()

    def run(jobs):
        tried.append(len(jobs))
        if len(jobs) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return [job * 10 for job in jobs]

    assert fits.in_pieces("training", range(10), run) == [job * 10 for job in range(10)]
    assert tried == [10, 5, 3, 3, 3, 1]
    tried.clear()
    fits.in_pieces("training", range(4), run)
    fits.in_pieces("losses", range(3), run)
    assert tried == [3, 1, 3]


class Scale:
    """A memory gauge of a device of 1,000 bytes."""

    def __init__(self, job_bytes):
        self.job_bytes, self.measured = job_bytes, []

    def free(self):
        return 1000

    def peak(self, call):
        found = call()
        self.measured.append(len(found))
        return found, len(found) * self.job_bytes


@pytest.mark.parametrize(("job_bytes", "pieces"), [(5, [64, 100, 36]), (1, [64, 136]), (50, [64, 64, 64, 8])])
def test_first_trainings_of_a_large_wave_measure_its_size(job_bytes, pieces):
    tried, scale = [], Scale(job_bytes)
    fits = Memory(scale)

    def run(jobs):
        tried.append(len(jobs))
        return list(jobs)

    assert fits.in_pieces("training", range(200), run, measured=True) == list(range(200))
    assert tried == pieces and scale.measured == [64]
    fits.in_pieces("training", range(200), run, measured=True)
    assert tried[len(pieces)] == min(200, max(64, 500 // job_bytes)) and scale.measured == [64]
    fits.in_pieces("evaluation", range(200), run)
    assert tried[-1] == 200


def test_trainings_of_a_small_wave_are_not_measured():
    fits = Memory(Scale(1000))
    assert fits.in_pieces("training", range(64), list, measured=True) == list(range(64))
    assert not fits._gauge.measured


def test_single_image_exceeding_the_memory_raises():
    fits = Memory()

    def too_much(part):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        list(fits.passes(10, 1000, too_much))
    assert fits.pass_bytes == device.PASS_BYTES
