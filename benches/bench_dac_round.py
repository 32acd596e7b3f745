"""A round of DAC on CIFAR-10 (Listo Zec et al., 2022) against the published loop over nodes, in plain PyTorch.

Per node: five peers' models are evaluated on the node's 400 images in batches of 8, merged with its model by FedAvg,
and trained for three epochs with a new Adam. The loop follows the published code: a DataLoader per node, state
dictionaries averaged key by key, node by node. 100 nodes take half a minute per round: `-m slow`.
"""

from types import SimpleNamespace

import facade_cell as cell
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from ddlsim.learning.bank import keep_freed_memory
from ddlsim.learning.learner import Learner
from ddlsim.models import MODELS
from ddlsim.scenario.sections import Training

SAMPLES, BATCH, EPOCHS, PEERS, CLASSES, RATE = 400, 8, 3, 5, 10, 1e-3
SETTINGS = Training.model_validate({"optimizer": {"name": "adam"}, "learning_rate": RATE, "batch_size": BATCH})


def make_learner(nodes: int) -> Learner:
    """Return a learner on random images with a different model per node."""
    keep_freed_memory()
    rng = np.random.default_rng(0)
    data = [
        (rng.normal(size=(SAMPLES, 3, 32, 32)).astype(np.float32), rng.integers(0, CLASSES, SAMPLES))
        for _ in range(nodes)
    ]
    prepared = SimpleNamespace(
        num_classes=CLASSES,
        task="classification",
        mean=np.zeros(3, np.float32),
        std=np.ones(3, np.float32),
        node_cluster=[0] * nodes,
        node_train=data,
        node_validation=None,
        cluster_validation=None,
        cluster_test=[data[0]],
    )
    build = lambda: MODELS["cifar_cnn"]().build((3, 32, 32), CLASSES)  # noqa: E731
    return Learner({"cifar_cnn": build}, prepared, SETTINGS, torch.device("cpu"), cell.THREADS, 250)


def sampled_peers(nodes: int) -> list[list[int]]:
    rng = np.random.default_rng(1)
    return [
        [int(peer) for peer in rng.choice([n for n in range(nodes) if n != node], PEERS, replace=False)]
        for node in range(nodes)
    ]


def our_round(learner: Learner, starts: list, peers: list[list[int]]) -> tuple[list[list[float]], list]:
    """Return losses of the peers' models, and the trained models."""
    jobs = [
        learner.losses(node, [starts[peer] for peer in its], SAMPLES // BATCH, np.random.default_rng(node))
        for node, its in enumerate(peers)
    ]
    learner.jobs.force(jobs)
    trained = []
    for node, its in enumerate(peers):
        merged = learner.merge([starts[member][0] for member in (node, *its)], [1 / (1 + PEERS)] * (1 + PEERS))
        steps = EPOCHS * learner.steps_per_epoch(node)
        trained.append(learner.train(node, (merged,), steps, np.random.default_rng(node)))
    learner.jobs.force_params([model[0] for model in trained])
    return [job.value for job in jobs], trained


def plain_module() -> nn.Module:
    layers = [
        nn.Conv2d(3, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, CLASSES),
        nn.LogSoftmax(1),
    ]
    return nn.Sequential(*layers)


def plain_round(modules: list[nn.Module], loaders: list[DataLoader], peers: list[list[int]]) -> list[list[float]]:
    """Run the loop node by node; return the losses of the peers' models."""
    found = []
    with cell.plain_threads():
        for node, its in enumerate(peers):
            found.append([plain_loss(modules[peer], loaders[node]) for peer in its])
            states = [modules[member].state_dict() for member in (node, *its)]
            modules[node].load_state_dict(
                {name: torch.stack([state[name] for state in states]).mean(dim=0) for name in states[0]}
            )
            plain_training(modules[node], loaders[node])
    return found


@torch.no_grad()
def plain_loss(module: nn.Module, loader: DataLoader) -> float:
    module.eval()
    return float(np.mean([F.nll_loss(module(images), labels).item() for images, labels in loader]))


def plain_training(module: nn.Module, loader: DataLoader) -> None:
    module.train()
    optimizer = torch.optim.Adam(module.parameters(), RATE)
    for _ in range(EPOCHS):
        for images, labels in loader:
            module.zero_grad()
            F.nll_loss(module(images), labels).backward()
            optimizer.step()


@pytest.mark.parametrize("nodes", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_dac_round(ratio, nodes):
    learner = make_learner(nodes)
    starts = [learner.init_models(node, whole=True)[0] for node in range(nodes)]
    learner.jobs.force_params([model[0] for model in starts])
    peers, modules = sampled_peers(nodes), [plain_module() for _ in range(nodes)]
    loaders = [DataLoader(TensorDataset(*learner.data.train[node]), BATCH, shuffle=True) for node in range(nodes)]

    def reset() -> None:
        for module, model in zip(modules, starts, strict=True):
            nn.utils.vector_to_parameters(model[0].values().clone(), module.parameters())

    reset()
    losses, trained = our_round(learner, starts, peers)
    with cell.plain_threads():
        expected = [plain_loss(modules[peer], loaders[0]) for peer in peers[0]]
    np.testing.assert_allclose(losses[0], expected, rtol=1e-4)
    assert all(torch.isfinite(model[0].values()).all() for model in trained)
    ratio(
        lambda: our_round(learner, starts, peers),
        lambda: (reset(), plain_round(modules, loaders, peers)),
        "published loop in plain PyTorch",
        2,
    )
    learner.close()
