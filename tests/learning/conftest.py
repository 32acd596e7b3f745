"""A tiny learner: three nodes, two clusters, a small convolutional network with a core and a head."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from local_training import local_training
from torch import nn

from ddlsim.learning.backends.stacked import make_backends
from ddlsim.learning.learner import Learner
from ddlsim.models.split import SplitModel


def make_tiny_net(batch_norm: bool = False) -> SplitModel:
    """Return a module: convolution and GroupNorm (or BatchNorm) as core, a linear head; 3 classes, 2x6x6 images."""
    norm = nn.BatchNorm2d(4) if batch_norm else nn.GroupNorm(2, 4)
    core = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), norm, nn.ReLU(), nn.Flatten())
    return SplitModel(core, nn.Linear(144, 3))


def prepared_data(num_nodes: int = 3, samples: int = 20) -> SimpleNamespace:
    rng = np.random.default_rng(7)

    def draw(count: int):
        return rng.normal(size=(count, 2, 6, 6)).astype(np.float32), rng.integers(0, 3, count)

    return SimpleNamespace(
        num_classes=3,
        task="classification",
        mean=np.zeros(2, np.float32),
        std=np.ones(2, np.float32),
        node_cluster=[0, 0, 1],
        node_train=[draw(samples) for _ in range(num_nodes)],
        node_validation=None,
        cluster_validation=[draw(10), draw(10)],
        cluster_test=[draw(25), draw(25)],
    )


@pytest.fixture
def make_learner():
    made = []

    def make(
        batch_norm: bool = False,
        threads: int = 2,
        builders=None,
        assigned=None,
        device: str = "cpu",
        buffers: str = "shared",
        **changes,
    ) -> Learner:
        learner = Learner(
            builders or {"tiny": lambda: make_tiny_net(batch_norm)},
            prepared_data(),
            local_training(**changes),
            torch.device(device),
            threads,
            10,
            assigned,
            buffers=buffers,
        )
        made.append(learner)
        return learner

    yield make
    for learner in made:
        learner.close()


@pytest.fixture
def tiny_net():
    return make_tiny_net


@pytest.fixture
def as_on_a_gpu():
    """Make a learner run its waves as on a GPU, on its device."""

    def change(learner: Learner) -> Learner:
        learner.backends.close()
        learner.backends = make_backends(
            learner.architectures, learner.data, learner.training, 10, learner.rows.device, 2, stacked=True
        )
        learner.jobs._run = learner.backends.run
        return learner

    return change


@pytest.fixture
def pair(make_learner, as_on_a_gpu):
    """Return two learners of the same nodes: one by one on the CPU, and stacked."""
    return lambda *args, **kwargs: (make_learner(*args, **kwargs), as_on_a_gpu(make_learner(*args, **kwargs)))
