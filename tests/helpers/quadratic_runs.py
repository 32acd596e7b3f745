"""Whole runs, with engine and network, whose models are float64 vectors and whose losses are quadratics.

Node i has the loss a_i |x - b_i|^2 / 2. Only the Compute port is replaced; events, messages and algorithms are real.
"""

from itertools import count
from pathlib import Path

import numpy as np
import torch

from ddlsim import assembly, runs
from ddlsim.learning.size_learner import SizedPart, SizeLearner
from ddlsim.runs.recorder import Recorder
from ddlsim.scenario import load

SMOKE = Path(__file__).parent / "smoke.yaml"
SERIALS = count()


def columns(fragment):
    """The columns of a fragment."""
    return np.r_[tuple(slice(*each) for each in fragment.ranges)] if fragment.ranges else fragment.columns


class Vector:
    """Parameters with a value."""

    job = None

    def __init__(self, value):
        self.value, self.serial = np.asarray(value, float), next(SERIALS)
        self.size = len(self.value)
        self.part = SizedPart("model", self.size, (self.size,))


class QuadraticCompute(SizeLearner):
    """The Compute port.

    Args:
        rate: learning rate.
        starts: initial models, [N, P]; a server starts at 0.
        curvatures: a, [N].
        centers: b, [N, P].

    Attributes:
        trained: the nodes that have trained, in order.
    """

    def __init__(self, rate, starts, curvatures, centers):
        self._starts = [*starts, np.zeros(len(starts[0]))]
        self.trained = []
        self._rate, self._curvatures, self._centers = rate, curvatures, centers
        size = len(starts[0])
        parts = {"vector": {"core": SizedPart("core", size, (size,)), "head": SizedPart("head", 0, ())}}
        super().__init__(parts, 2, {"train": 8, "validation": 0}, 8)

    def init_models(self, seed, count=1, whole=False, node=0):
        return [(Vector(self._starts[node]),) for _ in range(count)]

    def train_towards(self, node, model, steps, rng, only, local_state, objective, terms=None):
        self.trained.append(node)
        x = first = model[0].value
        for _ in range(steps):
            gradient = self._curvatures[node] * (x - self._centers[node]) + terms.proximal * (x - first)
            x = x - self._rate * (gradient if terms.control is None else gradient + terms.control.value)
        return (Vector(x),), local_state, {}

    def apply(self, function, sources, node=None):
        return Vector(function(*(torch.tensor(source.value) for source in sources)).numpy())

    def merge(self, sources, weights, node=None):
        return Vector(sum(weight * source.value for source, weight in zip(sources, weights, strict=True)))

    def take(self, params, fragment):
        return Vector(params.value[columns(fragment)])

    def put(self, params, fragment, values):
        changed = params.value.copy()
        changed[columns(fragment)] = values.value
        return Vector(changed)

    @property
    def learning_rate(self):
        return self._rate

    def learning_rates(self, node, steps, local_state, terms):
        return [self._rate] * steps

    def trained_values(self, params):
        return params

    def with_trained_values(self, params, values):
        return values


def quadratic_run(*keys, rate, starts, curvatures=None, centers=None):
    """Return the nodes' models [N, P] after the scenario smoke with these keys, and the simulated seconds.

    For the arguments see QuadraticCompute.
    """
    simulation, _ = quadratic_simulation(*keys, rate=rate, starts=starts, curvatures=curvatures, centers=centers)
    states = [member.state for member in simulation.members[: len(starts)]]
    models = [state.model[0] if isinstance(state.model, tuple) else state.model for state in states]
    return np.stack([model.value for model in models]), simulation.env.now


def quadratic_simulation(*keys, rate, starts, curvatures=None, centers=None, adapt=lambda compute: None):
    """The simulation after the scenario smoke with these keys, and its Compute port, which `adapt` may change."""
    num_nodes = len(starts)
    fixed = ("learning=none", f"nodes.clusters=[{num_nodes}]", "evaluation.every=1000000", "training.local_steps=1")
    scenario = load(SMOKE, (*fixed, *keys))
    centers = np.zeros_like(starts) if centers is None else centers
    compute = QuadraticCompute(rate, starts, np.ones(num_nodes) if curvatures is None else curvatures, centers)
    adapt(compute)
    simulation = assembly.build_simulation(scenario, runs.prepare(runs.load_data(scenario)), compute, Recorder())
    simulation.run()
    return simulation, compute
