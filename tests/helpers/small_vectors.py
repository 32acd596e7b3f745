"""A Compute port whose parameters are float64 vectors, for simulations without scenario and data."""

import numpy as np
from quadratic_runs import Vector
from small_simulation import NoLearning

VALUES = 960


class Vectors(NoLearning):
    """Models are None; other parameters are vectors."""

    def merge(self, sources, weights, node=None):
        return Vector(sum(weight * source.value for source, weight in zip(sources, weights, strict=True)))

    def columns(self, params, columns):
        return Vector(np.concatenate([params.value[start:stop] for start, stop in columns]))


def filled(node):
    return Vector(np.full(VALUES, float(node)) + np.arange(VALUES))


def mean_of(*nodes):
    return np.mean(nodes) + np.arange(VALUES)
