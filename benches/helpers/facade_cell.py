"""FACADE's CIFAR-10 cell 30:2 for benches: 32 nodes, 10 SGD steps of 8 images each, GN-LeNet on 3x32x32.

The alternative is what one would write in plain PyTorch: node after node, torch's own layers, default memory layout, on
the same device. On the CPU it has as many operator threads as the wave has worker threads, and the same allocator
setting.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from ddlsim.learning.bank import keep_freed_memory
from ddlsim.learning.batches import draw_batches
from ddlsim.learning.learner import Learner
from ddlsim.models import MODELS
from ddlsim.scenario.sections import Training

NODES, STEPS, BATCH, HEADS, DEGREE, CLASSES = 32, 10, 8, 2, 4, 10
THREADS = 1 if "PYTEST_XDIST_WORKER" in os.environ else len(os.sched_getaffinity(0))  # where processes share the cores
SETTINGS = Training.model_validate({"optimizer": {"name": "sgd"}, "learning_rate": 0.01, "batch_size": BATCH})

LAYERS = ((1024, 3, 32), (256, 32, 32), (64, 32, 64))
"""Of each convolution: pixels of its images, channels that come in, channels that go out."""


def multiply_adds() -> int:
    """Of a training wave, in its convolutions alone.

    Winograd's way with tiles of 4 x 4 pixels takes 64 for 16 pixels of a 5 x 5 kernel and a pair of channels, the
    direct way 400. Backward each weight's gradient takes as many as forward, and the images' gradient, which the first
    layer does not need.
    """
    (first, *others) = (pixels * inputs * outputs for pixels, inputs, outputs in LAYERS)
    return NODES * STEPS * BATCH * 64 * (2 * first + 3 * sum(others)) // 16


def make_learner(samples: int = 200, test_samples: int = 50, device: str = "cpu") -> Learner:
    """A learner on random images; nodes 30 and 31 are cluster 1."""
    keep_freed_memory()
    rng = np.random.default_rng(0)

    def draw(count: int):
        return rng.normal(size=(count, 3, 32, 32)).astype(np.float32), rng.integers(0, CLASSES, count)

    prepared = SimpleNamespace(
        num_classes=CLASSES,
        task="classification",
        mean=np.zeros(3, np.float32),
        std=np.ones(3, np.float32),
        node_cluster=[0] * 30 + [1] * 2,
        node_train=[draw(samples) for _ in range(NODES)],
        node_validation=None,
        cluster_validation=None,
        cluster_test=[draw(test_samples), draw(test_samples)],
    )
    build = lambda: MODELS["gn_lenet"]().build((3, 32, 32), CLASSES)  # noqa: E731
    return Learner({"gn_lenet": build}, prepared, SETTINGS, torch.device(device), THREADS, 250)


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


def rng(node: int) -> np.random.Generator:
    """What a node draws its batches from."""
    return np.random.default_rng(node)


# -- the plain loops ---------------------------------------------------------------------------------------------------


def plain_training(learner: Learner, starts: Sequence, steps: int = STEPS) -> list[torch.Tensor]:
    """Node after node; returns the flat trained models."""
    module, found = plain_layers().to(learner.data.train[0][0].device), []
    optimizer = torch.optim.SGD(module.parameters(), 0.01)
    with plain_threads():
        for node, start in enumerate(starts):
            plain_load(module, start)
            images, labels = learner.data.train[node]
            for batch in draw_batches(rng(node), len(labels), BATCH, steps):
                optimizer.zero_grad()
                F.cross_entropy(module(images[batch]), labels[batch]).backward()
                optimizer.step()
            found.append(torch.nn.utils.parameters_to_vector(module.parameters()).detach().clone())
    return found


@torch.no_grad()
def plain_evaluation(learner: Learner, models: Sequence[Sequence]) -> list[list[tuple[np.ndarray, float]]]:
    """Every node's models on its cluster's test set: confusion matrix and mean loss, model after model."""
    module, found = plain_layers().to(learner.data.train[0][0].device), []
    with plain_threads():
        for node, its in enumerate(models):
            images, labels = learner.data.evaluation("test", int(learner.data.node_cluster[node]))
            found.append([])
            for model in its:
                plain_load(module, model)
                logits = module(images)
                pairs = torch.bincount(labels * CLASSES + logits.argmax(1), minlength=CLASSES**2)
                confusion = pairs.reshape(CLASSES, CLASSES).cpu().numpy()
                found[-1].append((confusion, F.cross_entropy(logits, labels).item()))
    return found


@torch.no_grad()
def plain_head_losses(learner: Learner, models: Sequence[Sequence], common: bool) -> list[list[float]]:
    """Every node's models on ten batches of its own images, the same ones for all its models if `common`."""
    module, found = plain_layers().to(learner.data.train[0][0].device), []
    with plain_threads():
        for node, its in enumerate(models):
            images, labels = learner.data.train[node]
            stream = rng(node)
            draws = [draw_batches(stream, len(labels), BATCH, STEPS) for _ in its[: 1 if common else None]]
            found.append([])
            for model, batches in zip(its, draws * len(its) if common else draws, strict=True):
                plain_load(module, model)
                losses = [F.cross_entropy(module(images[batch]), labels[batch]).item() for batch in batches]
                found[-1].append(float(np.mean(losses)))
    return found


def two_heads_per_node(learner: Learner, first_seed: int = 0, nodes: int = NODES) -> list[list]:
    """Per node two models that share their core."""
    drawn = [learner.init_models(first_seed + node, count=HEADS) for node in range(nodes)]
    return [[(models[0][0], model[1]) for model in models] for models in drawn]


def check_tested(ours: Sequence[Sequence], theirs: Sequence[Sequence]) -> None:
    """Raises AssertionError unless two evaluations agree, but for predictions that stand on the edge."""
    for (_, our_loss, our_confusion), (confusion, loss) in zip(chain(*ours), chain(*theirs), strict=True):
        assert np.array_equal(our_confusion.sum(1), confusion.sum(1))
        assert abs(our_confusion - confusion).sum() <= 4
        assert abs(our_loss - loss) <= 1e-4


# -- ours --------------------------------------------------------------------------------------------------------------


def training_wave(learner: Learner, starts: Sequence, steps: int = STEPS) -> list:
    """All nodes' local training."""
    trained = [learner.train(node, start, steps, rng(node)) for node, start in enumerate(starts)]
    learner.jobs.force_params([params for model in trained for params in model])
    return trained


def evaluation(learner: Learner, models: Sequence[Sequence]) -> list[list[tuple[np.ndarray, float]]]:
    """As plain_evaluation."""
    jobs = [learner.test(its, int(learner.data.node_cluster[node])) for node, its in enumerate(models)]
    return learner.resolve(jobs)


def head_losses(learner: Learner, models: Sequence[Sequence], common: bool) -> list[list[float]]:
    """As plain_head_losses."""
    jobs = [learner.losses(node, its, STEPS, rng(node), common) for node, its in enumerate(models)]
    return learner.resolve(jobs)


def whole_round(learner: Learner, starts: Sequence, common: bool) -> list:
    """Head selection on common batches or on other ones per head, training, merging with four peers."""
    count = len(starts)
    candidates = [[start, (start[0], starts[(node + 1) % count][1])] for node, start in enumerate(starts)]
    head_losses(learner, candidates, common)
    trained = [learner.train(node, start, STEPS, rng(node)) for node, start in enumerate(starts)]
    merged = []
    for node in range(count):
        members = [trained[(node + offset) % count] for offset in range(DEGREE + 1)]
        for part in (0, 1):
            merged.append(learner.merge([member[part] for member in members], [1 / len(members)] * len(members)))
    learner.jobs.force_params(merged)
    return merged
