"""The cost of dropout, BatchNorm, augmented images and residual blocks in local training on the CPU, as ratios.

LeNets of three 5x5 convolutions on 3x32x32 images, ten SGD steps of 8 images, on one thread. ddlsim runs a node's whole
training as in a run; the alternative is the same training through PyTorch's operators (one by one), which has
the same batches, masks and augmented images. Networks with residual blocks have no native plan; the last ratio compares
training them one by one on the CPU with stacking them as on a GPU: a wave of eight ResNet8, two steps each.
"""

import copy
import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from ddlsim.learning.backends.stacked import make_backends
from ddlsim.learning.bank import keep_freed_memory
from ddlsim.learning.learner import Learner
from ddlsim.models import MODELS
from ddlsim.models.split import SplitModel
from ddlsim.scenario.sections import Training

SAMPLES, STEPS, BATCH, CLASSES, NODES = 80, 10, 8, 10, 8


def lenet(norm) -> SplitModel:
    """Return a module like gn_lenet with this normalization, or None for no normalization."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 32), (32, 64)):
        layers += [nn.Conv2d(inputs, outputs, 5, padding=2), *([norm(outputs)] if norm else []), nn.ReLU()]
        layers.append(nn.MaxPool2d(2))
    return SplitModel(nn.Sequential(*layers, nn.Flatten()), nn.Sequential(nn.Linear(1024, CLASSES)))


def with_dropout() -> SplitModel:
    core = lenet(lambda channels: nn.GroupNorm(2, channels)).core
    return SplitModel(core, nn.Sequential(nn.Dropout(0.5), nn.Linear(1024, CLASSES)))


CASES = {
    "group norm": (lambda: MODELS["gn_lenet"]().build((3, 32, 32), CLASSES), {}),
    "no norm": (lambda: lenet(None), {}),
    "batch norm": (lambda: lenet(nn.BatchNorm2d), {}),
    "dropout": (with_dropout, {}),
    "crop and flip": (lambda: MODELS["gn_lenet"]().build((3, 32, 32), CLASSES), {"augmentation": "crop_flip"}),
    "batches of 80": (lambda: MODELS["gn_lenet"]().build((3, 32, 32), CLASSES), {"batch_size": SAMPLES}),
    "adamw, clipping": (
        lambda: MODELS["gn_lenet"]().build((3, 32, 32), CLASSES),
        {"optimizer": {"name": "adamw"}, "clip_norm": 1.0},
    ),
}


def learner_of(build, keys: dict) -> Learner:
    rng = np.random.default_rng(0)
    images, labels = rng.normal(size=(SAMPLES, 3, 32, 32)).astype(np.float32), rng.integers(0, CLASSES, SAMPLES)
    prepared = SimpleNamespace(
        num_classes=CLASSES,
        task="classification",
        mean=np.zeros(3, np.float32),
        std=np.ones(3, np.float32),
        node_cluster=[0] * NODES,
        node_train=[(images, labels)] * NODES,
        node_validation=None,
        cluster_validation=None,
        cluster_test=[(images[:8], labels[:8])],
    )
    section = {"optimizer": {"name": "sgd"}, "learning_rate": 0.01, "batch_size": BATCH, **keys}
    return Learner({"net": copy.deepcopy(build)}, prepared, Training.model_validate(section), torch.device("cpu"), 1, 8)


@pytest.fixture
def pair(request):
    """Return a default learner and one without native plans."""
    keep_freed_memory()
    build, keys = CASES[request.param]
    ours = learner_of(build, keys)
    os.environ["DDLSIM_NATIVE_TRAINING"] = "0"
    try:
        plain = learner_of(build, keys)
        train(plain)
    finally:
        del os.environ["DDLSIM_NATIVE_TRAINING"]
    yield ours, plain
    ours.close()
    plain.close()


def train_all(learner: Learner) -> list[torch.Tensor]:
    """Run a wave in which every node trains its start."""
    starts = [learner.init_models(node, whole=True)[0] for node in range(NODES)]
    trained = [learner.train(node, starts[node], 2, np.random.default_rng(node))[0] for node in range(NODES)]
    learner.jobs.force_params(trained)
    return [params.values().clone() for params in trained]


def train(learner: Learner) -> torch.Tensor:
    (model,) = learner.init_models(0, whole=True)
    (trained,) = learner.train(0, model, STEPS, np.random.default_rng(1))
    learner.jobs.force_params([trained])
    return trained.values().clone()


@pytest.mark.parametrize("pair", CASES, indirect=True)
def bench_a_local_training(ratio, pair):
    ours, plain = pair
    (start,) = plain.init_models(0, whole=True)
    expected = train(plain)
    # As a whole: Adam divides by the gradient's size, so rounding decides single values; and in
    # many images rounding changes the larger of two pixels of a maximum, which gets the gradient.
    apart = float((train(ours) - expected).norm() / (expected - start[0].values()).norm())
    assert apart < (0.1 if plain.training.batch_size == SAMPLES else 0.005), apart
    ratio(lambda: train(ours), lambda: train(plain), "PyTorch one by one", rounds=15)


def bench_a_wave_of_resnets(ratio):
    keep_freed_memory()
    alone, stacked = (learner_of(lambda: MODELS["resnet8"]().build((3, 32, 32), CLASSES), {}) for _ in range(2))
    stacked.backends.close()
    stacked.backends = make_backends(
        stacked.architectures, stacked.data, stacked.training, 8, torch.device("cpu"), 1, stacked=True
    )
    stacked.jobs._run = stacked.backends.run
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for one, other in zip(train_all(alone), train_all(stacked), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-3)
        assert not stacked.fallback_counts and "native" in alone.fallback_counts
        ratio(lambda: train_all(alone), lambda: train_all(stacked), "stacked", rounds=5)
    finally:
        torch.set_num_threads(threads)
    alone.close()
    stacked.close()
