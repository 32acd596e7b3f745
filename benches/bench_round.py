"""One round of FACADE's CIFAR-10 30:2 cell against the plain training loop; see helpers/facade_cell.py."""

import facade_cell as cell
import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ddlsim.learning.batches import draw_batches


@pytest.fixture(scope="module")
def learner():
    learner = cell.make_learner()
    yield learner
    learner.close()


@pytest.fixture(scope="module")
def starts(learner):
    return [learner.init_models(node)[0] for node in range(cell.NODES)]


def plain_loop(learner, starts, steps: int = cell.STEPS) -> list[torch.Tensor]:
    """Node after node; returns the flat trained models."""
    module, found = cell.plain_layers(), []
    optimizer = torch.optim.SGD(module.parameters(), 0.01)
    with cell.plain_threads():
        for node, start in enumerate(starts):
            cell.plain_load(module, start)
            images, labels = learner.shards.train[node]
            for batch in draw_batches(np.random.default_rng(node), len(labels), cell.BATCH, steps):
                optimizer.zero_grad()
                F.cross_entropy(module(images[batch]), labels[batch]).backward()
                optimizer.step()
            found.append(torch.nn.utils.parameters_to_vector(module.parameters()).detach().clone())
    return found


def training_wave(learner, starts, steps: int = cell.STEPS):
    trained = [learner.train(node, start, steps, np.random.default_rng(node)) for node, start in enumerate(starts)]
    learner.jobs.force_params([params for model in trained for params in model])
    return trained


def whole_round(learner, starts, common: bool):
    """Head selection on common batches or on other ones per head, training, merging with four peers."""
    losses = [
        learner.losses(node, [start, (start[0], starts[(node + 1) % cell.NODES][1])], cell.STEPS,
                       np.random.default_rng(node), common)
        for node, start in enumerate(starts)
    ]  # fmt: skip
    learner.jobs.force(losses)
    rngs = [np.random.default_rng(node) for node in range(cell.NODES)]
    trained = [learner.train(node, start, cell.STEPS, rngs[node]) for node, start in enumerate(starts)]
    merged = []
    for node in range(cell.NODES):
        members = [trained[(node + offset) % cell.NODES] for offset in range(cell.DEGREE + 1)]
        for part in (0, 1):
            weights = [1 / len(members)] * len(members)
            merged.append(learner.merge([member[part] for member in members], weights))
    learner.jobs.force_params(merged)
    return merged


def test_training_wave(ratio, learner, starts):
    expected = plain_loop(learner, starts, steps=1)  # later steps amplify the rounding of other operators
    for model, flat in zip(training_wave(learner, starts, steps=1), expected, strict=True):
        torch.testing.assert_close(torch.cat([p.values() for p in model]), flat, rtol=1e-3, atol=1e-5)
    ratio(lambda: training_wave(learner, starts), lambda: plain_loop(learner, starts), "plain PyTorch training loop", 5)


@pytest.mark.parametrize("batches", ["common", "per_head"])
def test_facade_round(ratio, learner, starts, batches):
    """As scenarios/facade_30_2.yaml runs it (common batches), and as the published code does."""
    common = batches == "common"
    merged = whole_round(learner, starts, common)
    assert len(merged) == 2 * cell.NODES and torch.isfinite(merged[0].values()).all()
    ratio(lambda: whole_round(learner, starts, common), lambda: plain_loop(learner, starts),
          "plain PyTorch training loop", 5)  # fmt: skip
