"""FACADE's CIFAR-10 cell 30:2 for benches: 32 nodes, 10 SGD steps of 8 images each, GN-LeNet on 3x32x32.

The alternative is plain PyTorch: node by node, torch's layers, default memory layout, on
the same device. On the CPU it has as many operator threads as the wave has worker threads, and the same allocator
setting.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from ddlsim.algorithms.server.fedproto import FedProto
from ddlsim.learning.bank import keep_freed_memory
from ddlsim.learning.learner import Learner
from ddlsim.learning.training_inputs import Objective, draw_batches
from ddlsim.models import MODELS
from ddlsim.scenario.sections import Training

NODES, STEPS, BATCH, HEADS, DEGREE, CLASSES = 32, 10, 8, 2, 4, 10
THREADS = 1 if "PYTEST_XDIST_WORKER" in os.environ else len(os.sched_getaffinity(0))  # if processes share the cores
SETTINGS = Training.model_validate({"optimizer": {"name": "sgd"}, "learning_rate": 0.01, "batch_size": BATCH})
FEDPROTO = FedProto()

LAYERS = ((1024, 3, 32), (256, 32, 32), (64, 32, 64))
"""Of each convolution: pixels of its images, channels that come in, channels that go out."""


def multiply_adds() -> int:
    """Return the multiply-adds of a training wave, in its convolutions only.

    Winograd's algorithm with tiles of 4 x 4 pixels takes 64 for 16 pixels of a 5 x 5 kernel and a pair of channels, the
    direct algorithm 400. Backward each weight's gradient takes as many as forward, as does the images' gradient
    (except in the first layer).
    """
    (first, *others) = (pixels * inputs * outputs for pixels, inputs, outputs in LAYERS)
    return NODES * STEPS * BATCH * 64 * (2 * first + 3 * sum(others)) // 16


def make_learner(samples: int = 200, test_samples: int = 50, device: str = "cpu") -> Learner:
    """Return a learner on random images; nodes 30 and 31 are cluster 1."""
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
    """Return the same network from torch's layers only."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 32), (32, 64)):
        layers += [nn.Conv2d(inputs, outputs, 5, padding=2), nn.GroupNorm(2, outputs), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, CLASSES))


def plain_load(module: nn.Module, model: Sequence) -> nn.Module:
    """Copy a model's values into the plain module."""
    flat = torch.cat([params.values() for params in model]).clone()
    nn.utils.vector_to_parameters(flat, module.parameters())
    return module


@contextmanager
def plain_threads() -> Iterator[None]:
    """Use as many operator threads as the wave has workers."""
    torch.set_num_threads(THREADS)
    yield
    torch.set_num_threads(1)


def rng(node: int) -> np.random.Generator:
    """Return the generator of a node's batches."""
    return np.random.default_rng(node)


# -- the plain loops ---------------------------------------------------------------------------------------------------


def cross_entropy(module: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(module(images), labels)


def plain_fedproto(prototypes: Mapping) -> Callable:
    """Return FedProto's loss for these prototypes of all classes, without the class means of features."""
    table = torch.stack([prototypes[label].values() for label in range(CLASSES)])

    def loss(module: nn.Sequential, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        features = module[:-1](images)
        distance = F.mse_loss(features, table[labels])
        return F.cross_entropy(module[-1](features), labels) + FEDPROTO.proto_weight * distance

    return loss


def plain_training(
    learner: Learner, starts: Sequence, steps: int = STEPS, loss_of: Callable = cross_entropy
) -> list[torch.Tensor]:
    """Train node by node; return the flat trained models."""
    module, found = plain_layers().to(learner.data.train[0][0].device), []
    optimizer = torch.optim.SGD(module.parameters(), 0.01)
    with plain_threads():
        for node, start in enumerate(starts):
            plain_load(module, start)
            images, labels = learner.data.train[node]
            for batch in draw_batches(rng(node), len(labels), BATCH, steps):
                optimizer.zero_grad()
                loss_of(module, images[batch], labels[batch]).backward()
                optimizer.step()
            found.append(torch.nn.utils.parameters_to_vector(module.parameters()).detach().clone())
    return found


@torch.no_grad()
def plain_evaluation(learner: Learner, models: Sequence[Sequence]) -> list[list[tuple[np.ndarray, float]]]:
    """Evaluate every node's models on its cluster's test set, one by one: confusion matrix and mean loss."""
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
    """Evaluate every node's models on ten batches of its images, the same for all its models if `common`."""
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
    """Return two models per node that share their core."""
    drawn = [learner.init_models(first_seed + node, count=HEADS) for node in range(nodes)]
    return [[(models[0][0], model[1]) for model in models] for models in drawn]


def check_tested(ours: Sequence[Sequence], theirs: Sequence[Sequence]) -> None:
    """Raise AssertionError unless two evaluations agree, except for predictions on the decision boundary."""
    for (_, our_loss, our_confusion), (confusion, loss) in zip(chain(*ours), chain(*theirs), strict=True):
        assert np.array_equal(our_confusion.sum(1), confusion.sum(1))
        assert abs(our_confusion - confusion).sum() <= 4
        assert abs(our_loss - loss) <= 1e-4


# -- ddlsim ------------------------------------------------------------------------------------------------------------


def training_wave(learner: Learner, starts: Sequence, steps: int = STEPS) -> list:
    """Run all nodes' local training."""
    trained = [learner.train(node, start, steps, rng(node)) for node, start in enumerate(starts)]
    learner.jobs.force_params([params for model in trained for params in model])
    return trained


def fedproto_wave(learner: Learner, starts: Sequence, prototypes: Mapping, steps: int = STEPS) -> list[tuple]:
    """Run all nodes' local training with FedProto's loss; return models and the means of features by class."""
    objective = Objective(FEDPROTO.local_loss, targets=prototypes, class_means=True)
    done = [
        learner.train_towards(node, start, steps, rng(node), None, None, objective) for node, start in enumerate(starts)
    ]
    learner.jobs.force_params([params for model, _, means in done for params in (*model, *means.values())])
    return [(model, means) for model, _, means in done]


def evaluation(learner: Learner, models: Sequence[Sequence]) -> list[list[tuple[np.ndarray, float]]]:
    """Evaluate like plain_evaluation."""
    jobs = [learner.test(its, int(learner.data.node_cluster[node])) for node, its in enumerate(models)]
    return learner.resolve(jobs)


def head_losses(learner: Learner, models: Sequence[Sequence], common: bool) -> list[list[float]]:
    """Return losses like plain_head_losses."""
    jobs = [learner.losses(node, its, STEPS, rng(node), common) for node, its in enumerate(models)]
    return learner.resolve(jobs)


def whole_round(learner: Learner, starts: Sequence, common: bool) -> list:
    """Run head selection on common batches or separate ones per head, training, and merging with four peers."""
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
