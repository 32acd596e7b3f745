"""Synthetic data: linear regression with other parameters in each cluster (concept shift).

Source: the linear regression task of Hagander and Ihre-Thomason, "With a little help from my friends", master's thesis,
Lund University, 2024, and of "On the effects of similarity metrics in decentralized deep learning under distributional
shift", by the same code; their numbers are the defaults. Difference: here the test samples come from a stream of the
scenario's seed; there they are drawn again, without a seed, when a run is tested.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt

from ddlsim.data.dataset import Dataset, DataSettings
from ddlsim.foundation.rng import stream
from ddlsim.foundation.units import Count


@dataclass(frozen=True, kw_only=True)
class SyntheticRegression(DataSettings):
    """Linear regression, y = x theta + noise, theta of each cluster drawn from the scenario's seed; needs no files.

    Every cluster has its own domain, so that `partition: {name: domains}` gives each node samples of its cluster's
    theta, and `validation: {source: own}` one set per cluster that all its nodes share.

    Args:
        features: length of x and of theta.
        theta_range: theta is uniform between minus and plus this.
        x_range: x is uniform between minus and plus this.
        noise_std: standard deviation of the normal noise; its square is the lowest mean squared error there is.
        samples_per_node: training samples of each node.
        validation_samples: of each cluster.
        test_samples: of each cluster.
    """

    task = "regression"
    own_validation = generated = True
    may_hold_images = False
    features: Count = 10
    theta_range: Annotated[float, Gt(0)] = 10.0
    x_range: Annotated[float, Gt(0)] = 10.0
    noise_std: Annotated[float, Ge(0)] = 3.0
    samples_per_node: Count = 50
    validation_samples: Count = 100
    test_samples: Count = 1000

    def domains_for(self, num_clusters: int) -> int:
        """Return the number of clusters."""
        return num_clusters

    def generate(self, nodes: Any, seed: int) -> Dataset:
        """Return the data of one seed.

        Args:
            nodes: scenario section `nodes`.
            seed: the scenario's seed; streams "synthetic theta", and "synthetic <split>" of each cluster.
        """
        clusters = np.arange(len(nodes.clusters))
        theta = stream(seed, "synthetic theta").uniform(
            -self.theta_range, self.theta_range, (len(clusters), self.features)
        )
        counts = {
            "train": self.samples_per_node * np.asarray(nodes.clusters),
            "validation": np.full(len(clusters), self.validation_samples),
            "test": np.full(len(clusters), self.test_samples),
        }
        domains = {split: np.repeat(clusters, count) for split, count in counts.items()}
        drawn = {split: self._draw(split, count, theta, seed) for split, count in counts.items()}
        origin = f"drawn from seed {seed}"
        return Dataset.of_splits("synthetic_regression", origin, drawn, 1, task="regression", domains=domains)

    def _draw(self, split: str, counts: np.ndarray, theta: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """All clusters' samples of one split: x float32 [n, 1, features, 1], y float32 [n]."""
        xs, ys = [], []
        for cluster, count in enumerate(counts.tolist()):
            rng = stream(seed, f"synthetic {split}", cluster)
            xs.append(rng.uniform(-self.x_range, self.x_range, (count, self.features)))
            ys.append(xs[-1] @ theta[cluster] + rng.normal(0.0, self.noise_std, count))
        x, y = np.concatenate(xs).astype(np.float32), np.concatenate(ys).astype(np.float32)
        return x[:, None, :, None], y
