"""What is set aside for validation: part of the training or test set for all nodes, or part of every node's samples."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from ddlsim.data.dataset import Dataset
from ddlsim.data.partition import Partition
from ddlsim.errors import ScenarioError
from ddlsim.rng import stream

Deal = Callable[[np.ndarray, str], list[np.ndarray]]
"""From a pool of training samples and the name of a random stream to each node's samples, by node id."""


class Validation(Protocol):
    """Scenario section `validation`."""

    @property
    def source(self) -> str: ...
    @property
    def fraction(self) -> float: ...
    @property
    def seed(self) -> int | None: ...


def split(dataset: Dataset, validation: Validation, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Indices of the training pool, the test set and the validation set (empty if there is none of its own).

    Args:
        dataset: as loaded.
        validation: as of prepare().
        seed: the scenario's; stream "validation", where the section has no seed of its own.

    Raises:
        ScenarioError: if one side would be empty, or there is no validation set.
    """
    pools = {"train": np.arange(len(dataset.train_labels)), "test": np.arange(len(dataset.test_labels))}
    held_out = np.empty(0, np.int64)
    if validation.source == "own":
        if dataset.validation_labels is None:
            raise ScenarioError(f"validation.source: {dataset.name} has no validation set. Use train, test or node.")
        held_out = np.arange(len(dataset.validation_labels))
    if validation.source in pools:
        pool = pools[validation.source]
        count = round(validation.fraction * len(pool))
        if not 0 < count < len(pool):
            raise ScenarioError(
                f"validation.fraction: {validation.fraction} of {len(pool)} {validation.source} samples leaves one "
                "side empty."
            )
        rng = stream(seed, "validation") if validation.seed is None else np.random.default_rng(validation.seed)
        order = rng.permutation(pool)
        held_out, pools[validation.source] = np.sort(order[:count]), np.sort(order[count:])
    return pools["train"], pools["test"], held_out


def deal_both(
    dataset: Dataset,
    train: np.ndarray,
    validation: Validation,
    partition: Partition,
    node_cluster: np.ndarray,
    deal: Deal,
    seed: int,
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Every node's training and validation samples, by node id; without a source `node` no validation samples.

    Without a seed of its own, each node keeps a random fraction of what it was dealt. With one, the training samples
    (of each domain as many as its nodes get) are shuffled by it, and the last of them are dealt to the nodes apart.

    Args:
        dataset, validation, partition, node_cluster: as of prepare().
        train: int64 [M], what can be dealt.
        deal: as the partition does.
        seed: the scenario's; streams "validation", "partition" and "validation partition".

    Raises:
        ScenarioError: if a node would have nothing to train on or to validate with, or the partition does not deal at
            random.
    """
    if validation.source != "node":
        return deal(train, "partition"), []
    if validation.seed is None:
        return _keep_a_part(deal(train, "partition"), validation.fraction, seed)
    learned, kept = _pools(dataset, train, validation, partition, node_cluster)
    return deal(learned, "partition"), deal(kept, "validation partition")


def _pools(
    dataset: Dataset, train: np.ndarray, validation: Validation, partition: Partition, node_cluster: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """What nodes train on and what they validate with, both whatever the scenario's seed."""
    learned, kept = [], []
    for own, nodes in _of_domains(dataset, train, partition, node_cluster):
        size = partition.dealt_at_random(len(own), nodes)
        if size is None:
            raise ScenarioError("validation.seed: with source node it fits only a partition that deals at random.")
        order = np.random.default_rng(validation.seed).permutation(own)[:size]
        cut = size - round(validation.fraction * size)
        if min(cut, size - cut) < nodes:
            raise ScenarioError(
                f"validation.fraction: {validation.fraction} of {size} samples leaves {cut} to train on and "
                f"{size - cut} to validate with, for {nodes} nodes; each needs one of both. Use fewer nodes or another "
                "fraction."
            )
        learned.append(order[:cut])
        kept.append(order[cut:])
    return np.sort(np.concatenate(learned)), np.sort(np.concatenate(kept))


def _of_domains(
    dataset: Dataset, train: np.ndarray, partition: Partition, node_cluster: np.ndarray
) -> list[tuple[np.ndarray, int]]:
    """What is dealt to whom whatever the seed: samples, and the number of nodes that share them."""
    if not partition.by_domain:
        return [(train, len(node_cluster))]
    assert dataset.domains is not None, "views_of has counted them"
    domains, sizes = dataset.domains["train"][train], np.bincount(node_cluster)
    return [(train[domains == domain], nodes) for domain, nodes in enumerate(sizes.tolist())]


def _keep_a_part(owned: list[np.ndarray], fraction: float, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Takes a random fraction, at least one sample, of each node's samples for its own validation."""
    train, kept = [], []
    for node, own in enumerate(owned):
        count = max(1, round(fraction * len(own)))
        if count >= len(own):
            raise ScenarioError(
                f"validation.fraction: {fraction} of node {node}'s {len(own)} samples leaves none to train on."
            )
        order = stream(seed, "validation", node).permutation(own)
        kept.append(order[:count])
        train.append(order[count:])
    return train, kept
