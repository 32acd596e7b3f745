"""Trainings of a few nodes, one by one or stacked, and their results."""

import numpy as np
import torch


def rng(node: int) -> np.random.Generator:
    return np.random.default_rng(100 + node)


def train_all(learner, nodes=(0, 1, 2), only=None, whole=False, steps=5):
    starts = {node: learner.init_models(node, whole=whole)[0] for node in nodes}
    trained = [learner.train(node, starts[node], steps, rng(node), only) for node in nodes]
    learner.jobs.force_params([params for model in trained for params in model])
    return [torch.cat([params.values() for params in model]).clone() for model in trained]


def assert_equal_models(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def fallback_reasons(learner) -> dict[str, int]:
    """Return the reasons why jobs were not stacked."""
    return learner.fallback_counts.get("stacked", {})
