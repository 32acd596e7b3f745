"""Partitions defined by the data or the user: by a column (speaker, author, site), or in a file.

Source of `by_column`: the natural partitions of Caldas et al., "LEAF: a benchmark for federated settings", 2018, where
a node has the samples of one person. Difference here: a node may have several.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from ddlsim.data.dataset import Dataset
from ddlsim.data.partitions import Dealt, Partition, check_indices
from ddlsim.foundation.errors import ScenarioError, listing
from ddlsim.foundation.input_files import state_of
from ddlsim.foundation.registry import Problem
from ddlsim.foundation.units import Count


@dataclass(frozen=True, kw_only=True)
class ByColumn(Partition):
    """All samples of a node's values of a column of the data: its speakers, authors, sites.

    Values are dealt at random. Data sets with columns: `hf`, `npz` (arrays such as `speaker_train`), `Arrays` of
    Python, and data sets of texts.

    Args:
        column: name of the column.
        values_per_node: number of values per node, the rest is left out; null deals all values as evenly as possible.
        min_samples: values with fewer training samples than this are left out.
        own_test: whether a node is tested on the test samples of its own values, and not on the whole test set.
    """

    column: str
    values_per_node: Count | None = None
    min_samples: Count = 1
    own_test: bool = False

    def assign(self, labels: np.ndarray, clusters: Sequence[int], rng: Generator) -> Dealt:
        """Deal the samples; `labels` are values of the column."""
        values, of, counts = np.unique(labels, return_inverse=True, return_counts=True)
        if values.dtype.kind in "US" and len(values) and not values[0]:
            text = f"{counts[0]} training samples have no value in column {self.column}"
            raise ScenarioError(f"partition.column: {text}. Fill it in, or take them out of the data.")
        frequent = np.flatnonzero(counts >= self.min_samples)
        num_nodes, each = sum(clusters), self.values_per_node or 1
        if len(frequent) < num_nodes * each:
            few = f"values of {self.column} with at least {self.min_samples} samples, {each} per node"
            text = f"expected {num_nodes * each} {few}, got {len(frequent)}"
            raise ScenarioError(f"partition.column: {text}. Lower nodes, partition.values_per_node or min_samples.")
        order = rng.permutation(frequent)
        own = np.array_split(order[: num_nodes * each] if self.values_per_node else order, num_nodes)
        return [np.flatnonzero(np.isin(of, chosen)) for chosen in own]

    def dealt_by(self, dataset: Dataset) -> np.ndarray:
        return self._values(dataset, "train")

    def deal_test(
        self, dataset: Dataset, pool: np.ndarray, owned: Dealt, node_cluster: np.ndarray, rng: Generator
    ) -> Dealt | None:
        if not self.own_test:
            return None
        train, test = self._values(dataset, "train"), self._values(dataset, "test")[pool]
        found = [pool[np.isin(test, np.unique(train[own]))] for own in owned]
        for node, own in enumerate(found):
            if len(own) == 0:
                text = f"{listing(np.unique(train[owned[node]]).tolist(), 4)} of {self.column}, got none"
                raise ScenarioError(
                    f"partition.own_test: expected test samples of node {node}'s {text}. Set it to false."
                )
        return found

    def _values(self, dataset: Dataset, split: str) -> np.ndarray:
        columns = dataset.columns or {}
        if split not in columns.get(self.column, {}):
            known = listing([name for name, by_split in columns.items() if split in by_split]) or "none"
            text = f"{dataset.origin} has no column {self.column} of {split} samples, it has {known}"
            raise ScenarioError(f"partition.column: {text}. Add it (data.columns, {self.column}_{split} of an npz).")
        return columns[self.column][split]


@dataclass(frozen=True, kw_only=True)
class FromFile(Partition):
    """A partition from a file: per node the indices of its training samples, and optionally of its own test samples.

    JSON: a list with one list of indices per node, or {"0": [...], "1": [...], ...}; with test samples {"train": ...,
    "test": ...}. npz: arrays named 0, 1, ..., or train_0, test_0, ... Indices count from 0 in the order of the data;
    samples held out for validation are left out. Nodes may share samples.

    Args:
        path: the file, .json or .npz, relative to the working directory.
    """

    path: str

    def problems(self, num_nodes: int, seed: int) -> Iterator[Problem]:
        """Check that the file exists and has these nodes."""
        self._lists(num_nodes)
        return iter(())

    def known_samples(self, pool: int, held_out: int, clusters: Sequence[int], num_classes: int) -> int:
        listed = sum(map(len, self._lists(sum(clusters))["train"]))
        return round(listed / sum(clusters) * pool / (pool + held_out))

    def assign(self, labels: np.ndarray, clusters: Sequence[int], rng: Generator) -> Dealt:
        """Return the training samples of each node, by id, as the file lists them."""
        return self._within("train", sum(clusters), len(labels)) or []

    def deal(self, dataset: Dataset, pool: np.ndarray, node_cluster: np.ndarray, rng: Generator) -> Dealt:
        listed = self.assign(dataset.train_labels, [len(node_cluster)], rng)
        return [own[np.isin(own, pool)] for own in listed]

    def deal_test(
        self, dataset: Dataset, pool: np.ndarray, owned: Dealt, node_cluster: np.ndarray, rng: Generator
    ) -> Dealt | None:
        listed = self._within("test", len(node_cluster), len(dataset.test_labels))
        if listed is None:
            return None
        found = [own[np.isin(own, pool)] for own in listed]
        empty = [node for node, own in enumerate(found) if not len(own)]
        if empty:
            raise ScenarioError(f"partition.path: {self.path} leaves node {empty[0]} without test samples.")
        return found

    def _within(self, split: str, num_nodes: int, count: int) -> list[np.ndarray] | None:
        """Return the nodes' indices, each of them below the number of samples and named once; None without the split.

        Raises:
            ScenarioError: if there are others.
        """
        listed = self._lists(num_nodes).get(split)
        if listed is None:
            return None
        found = [check_indices(node, own, count) for node, own in enumerate(listed)]
        for node, own in enumerate(found):
            values, counts = np.unique(own, return_counts=True)
            if (counts > 1).any():
                raise ScenarioError(f"partition.path: {self.path}: node {node} has {values[counts > 1][0]} twice.")
        return found

    def _lists(self, num_nodes: int) -> dict[str, list[Any]]:
        """Per split and node its indices.

        Raises:
            ScenarioError: if the file is missing, or of another form.
        """
        state = state_of(self.path)
        if state is None:
            raise ScenarioError(f"partition.path: no file {self.path} (looked in {Path.cwd()}).")
        found = _read(Path(self.path).expanduser(), state)
        unknown = sorted(set(found) - {"train", "test"})
        if unknown:
            raise ScenarioError(f"partition.path: {self.path}: expected train and test only, got {listing(unknown)}.")
        return {split: _of_nodes(self.path, own, num_nodes) for split, own in found.items()}


@lru_cache(maxsize=4)
def _read(path: Path, state: tuple[int, int, int]) -> dict[str, Any]:
    """Read train, and optionally test -> the file's content per node; `state` changes with the file."""
    found: dict[str, Any] = {}
    try:
        if path.suffix != ".npz":
            content = json.loads(path.read_text(encoding="utf-8"))
            return content if isinstance(content, dict) and "train" in content else {"train": content}
        with np.load(path, allow_pickle=False) as file:
            for name in file.files:
                split, _, node = name.rpartition("_")
                found.setdefault(split or "train", {})[node] = file[name]
    except Exception as error:  # a damaged npz raises errors of any type
        raise ScenarioError(f"partition.path: {path} cannot be read as JSON or npz: {error}") from error
    return found


def _of_nodes(path: str, listed: Any, num_nodes: int) -> list[Any]:
    by_id = dict(enumerate(listed)) if isinstance(listed, list) else listed
    by_id = {str(node): own for node, own in by_id.items()} if isinstance(by_id, Mapping) else {}
    expected = [str(node) for node in range(num_nodes)]
    wrong = sorted(set(expected) ^ set(by_id))
    if wrong:
        text = f"expected a list of indices for each of the nodes 0..{num_nodes - 1}, differs at {listing(wrong, 6)}"
        raise ScenarioError(f"partition.path: {path}: {text}. Change the file or nodes.clusters.")
    return [by_id[node] for node in expected]
