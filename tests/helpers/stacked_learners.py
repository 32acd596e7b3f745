"""Trainings of a few nodes, one by one or stacked, and their results."""

import numpy as np
import torch

from ddlsim.learning.backends.step_graphs import Graph


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


class HostRecorder:
    """Like CudaRecorder: recorded calls read and write the same memory every time."""

    def __init__(self):
        self.replays = 0

    def __call__(self, function, inputs) -> Graph:
        results = tuple(tensor.clone() for tensor in function(*inputs))

        def replay() -> None:
            self.replays += 1
            for result, tensor in zip(results, function(*inputs), strict=True):
                result.copy_(tensor)

        return Graph(replay, inputs, results)
