"""FACADE's CIFAR-10 cell 30:2 for benches: 32 nodes, 10 SGD steps of 8 images each, GN-LeNet on 3x32x32.

The alternative is what one would write in plain PyTorch: node after node, torch's own layers, default memory layout, as
many operator threads as the wave has worker threads, and the same allocator setting.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from ddlsim.learning.allocator import keep_freed_memory
from ddlsim.learning.learner import Learner
from ddlsim.models import MODELS

NODES, STEPS, BATCH, HEADS, DEGREE, CLASSES = 32, 10, 8, 2, 4, 10
THREADS = len(os.sched_getaffinity(0))
SETTINGS = SimpleNamespace(optimizer="sgd", learning_rate=0.01, momentum=0.0, weight_decay=0.0, batch_size=BATCH,
                           drop_last=False, betas=(0.9, 0.999), augmentation="none")  # fmt: skip


def make_learner(samples: int = 200, test_samples: int = 50) -> Learner:
    """A learner on random images; nodes 30 and 31 are cluster 1."""
    keep_freed_memory()
    rng = np.random.default_rng(0)

    def draw(count: int):
        return rng.normal(size=(count, 3, 32, 32)).astype(np.float32), rng.integers(0, CLASSES, count)

    prepared = SimpleNamespace(
        num_classes=CLASSES, task="classification", mean=np.zeros(3, np.float32), std=np.ones(3, np.float32),
        node_cluster=[0] * 30 + [1] * 2,
        node_train=[draw(samples) for _ in range(NODES)], node_validation=None,
        cluster_validation=None, cluster_test=[draw(test_samples), draw(test_samples)],
    )
    build = lambda: MODELS["gn_lenet"]().build((3, 32, 32), CLASSES)  # noqa: E731
    return Learner({"gn_lenet": build}, prepared, SETTINGS, torch.device("cpu"), THREADS, 250)


def plain_layers() -> nn.Module:
    """The same network from torch's own layers only."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 32), (32, 64)):
        layers += [nn.Conv2d(inputs, outputs, 5, padding=2), nn.GroupNorm(2, outputs), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, CLASSES))


def plain_load(module: nn.Module, model: Sequence) -> nn.Module:
    """Puts a model's values into the plain module."""
    flat = torch.cat([params.values() for params in model]).clone()
    nn.utils.vector_to_parameters(flat, module.parameters())
    return module


@contextmanager
def plain_threads() -> Iterator[None]:
    """As many operator threads as the wave has workers."""
    torch.set_num_threads(THREADS)
    yield
    torch.set_num_threads(1)
