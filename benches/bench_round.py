"""One round of FACADE's CIFAR-10 30:2 cell: 32 nodes, 10 SGD steps of 8 images each, GN-LeNet on 3x32x32.

The alternative is the loop that one would write in plain PyTorch: node after node, default memory layout, as many
operator threads as the wave has worker threads, and the same allocator setting.
"""

import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ddlsim.learning.allocator import keep_freed_memory
from ddlsim.learning.batches import draw_batches
from ddlsim.learning.learner import Learner
from ddlsim.models import MODELS

NODES, STEPS, BATCH, HEADS, DEGREE = 32, 10, 8, 2, 4
THREADS = len(os.sched_getaffinity(0))
SETTINGS = SimpleNamespace(optimizer="sgd", learning_rate=0.01, momentum=0.0, weight_decay=0.0, batch_size=BATCH,
                           drop_last=False, betas=(0.9, 0.999), augmentation="none")


def build():
    return MODELS["gn_lenet"]().build((3, 32, 32), 10)


@pytest.fixture(scope="module")
def learner():
    keep_freed_memory()
    rng = np.random.default_rng(0)

    def draw(count: int):
        return rng.normal(size=(count, 3, 32, 32)).astype(np.float32), rng.integers(0, 10, count)

    prepared = SimpleNamespace(
        num_classes=10, task="classification", mean=np.zeros(3, np.float32), std=np.ones(3, np.float32),
        node_cluster=[0] * 30 + [1] * 2, node_train=[draw(200) for _ in range(NODES)],
        node_validation=None, cluster_validation=None, cluster_test=[draw(50), draw(50)],
    )
    learner = Learner({"gn_lenet": build}, prepared, SETTINGS, torch.device("cpu"), THREADS, 250)
    yield learner
    learner.close()


@pytest.fixture(scope="module")
def starts(learner):
    return [learner.init_models(node)[0] for node in range(NODES)]


def plain_layers() -> torch.nn.Module:
    """The same network from torch's own layers only."""
    from torch import nn

    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 32), (32, 64)):
        layers += [nn.Conv2d(inputs, outputs, 5, padding=2), nn.GroupNorm(2, outputs), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, 10))


def plain_loop(learner, starts, steps: int = STEPS) -> list[torch.Tensor]:
    """Node after node; returns the flat trained models."""
    torch.set_num_threads(THREADS)
    module, found = plain_layers(), []
    optimizer = torch.optim.SGD(module.parameters(), 0.01)
    for node, start in enumerate(starts):
        torch.nn.utils.vector_to_parameters(torch.cat([p.values() for p in start]).clone(), module.parameters())
        images, labels = learner.shards.train[node]
        for batch in draw_batches(np.random.default_rng(node), len(labels), BATCH, steps):
            optimizer.zero_grad()
            F.cross_entropy(module(images[batch]), labels[batch]).backward()
            optimizer.step()
        found.append(torch.nn.utils.parameters_to_vector(module.parameters()).detach().clone())
    torch.set_num_threads(1)
    return found


def training_wave(learner, starts, steps: int = STEPS):
    trained = [learner.train(node, starts[node], steps, np.random.default_rng(node)) for node in range(NODES)]
    learner.jobs.force_params([params for model in trained for params in model])
    return trained


def whole_round(learner, starts):
    """Head selection on other batches per head, training, merging with four peers."""
    other = [starts[(node + 1) % NODES][1] for node in range(NODES)]
    losses = [
        learner.losses(node, [starts[node], (starts[node][0], other[node])], STEPS, np.random.default_rng(node))
        for node in range(NODES)
    ]
    learner.jobs.force(losses)
    trained = [learner.train(node, starts[node], STEPS, np.random.default_rng(node)) for node in range(NODES)]
    merged = []
    for node in range(NODES):
        members = [trained[(node + offset) % NODES] for offset in range(DEGREE + 1)]
        for part in (0, 1):
            merged.append(learner.merge([member[part] for member in members], [1 / (DEGREE + 1)] * (DEGREE + 1)))
    learner.jobs.force_params(merged)
    return merged


def test_training_wave(ratio, learner, starts):
    expected = plain_loop(learner, starts, steps=1)  # later steps amplify the rounding of other operators
    for model, flat in zip(training_wave(learner, starts, steps=1), expected, strict=True):
        torch.testing.assert_close(torch.cat([p.values() for p in model]), flat, rtol=1e-3, atol=1e-5)
    ratio(lambda: training_wave(learner, starts), lambda: plain_loop(learner, starts), "plain PyTorch training loop", 5)


def test_facade_round(ratio, learner, starts):
    merged = whole_round(learner, starts)
    assert len(merged) == 2 * NODES and torch.isfinite(merged[0].values()).all()
    ratio(lambda: whole_round(learner, starts), lambda: plain_loop(learner, starts), "plain PyTorch training loop", 5)
