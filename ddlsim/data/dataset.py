"""Loaded data sets, and the settings that every data set in a scenario has."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from ddlsim.data.pixels import as_stored
from ddlsim.data.search import DataSearch
from ddlsim.foundation import own_code
from ddlsim.foundation.errors import DataDamaged
from ddlsim.foundation.registry import Part
from ddlsim.foundation.rng import stream
from ddlsim.tasks import Task as LearnedTask
from ddlsim.tasks import as_task, label_of

Pair = tuple[np.ndarray, np.ndarray]
"""Samples and labels of one split."""
Task = Literal["classification", "regression", "next_token", "multi_label"]
"""Task learned on samples in a user's file; see ddlsim/tasks."""

_ROWS = 4096
"""Number of samples that are hashed together if the whole array may not fit into memory."""


@dataclass(frozen=True)
class Dataset:
    """Samples and labels as stored, before normalization.

    Args:
        name: as in YAML.
        train_images: images, uint8 [N, H, W, C]; float32 arrays (features) are used unchanged, not divided by 255.
            Arrays of any other shape [N, ...] or integer type (token ids) are not images: models get them unchanged.
        train_labels: labels that the task takes: classes int64 [N] or [N, T], from 0; of a regression float32 [N]; of
            several labels int64 [N, L], 0 or 1.
        test_images: like train_images.
        test_labels: like train_labels.
        num_classes: number of labels, of tokens in texts; of a regression 1, the outputs of a model.
        mean: per channel, float32 [C], on the scale 0..1 (of the values themselves for float images); [D, C] if it
            differs between domains.
        std: like mean, above 0.
        origin: the file or folder that it was read from.
        task: default task if the scenario sets none: the name of an entry of TASKS, or a task.
        validation_images: like train_images, if the data set has its own validation set.
        validation_labels: like train_labels.
        domains: split -> int64 [N], the domain (source, process) that each sample comes from, D of them; None for one
            domain.
        columns: name -> split -> [N], further attributes of samples (speaker, author, site) by which a partition can
            deal them, strings or whole numbers; every column has the split train.
        num_tokens: number of different tokens in samples; None if they are not tokens, or ids up to the largest in the
            samples, see `known_tokens`.
        class_names: names of the classes, in order, if they have names.
        features: of a table, the description of each feature: its column, with `mean` and `std` of a number, or `is`, a
            word.
        notes: notes on the data for every report on a run.
    Raises:
        DataDamaged: if the arrays do not fit each other.
    """

    name: str
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    num_classes: int
    mean: np.ndarray
    std: np.ndarray
    origin: str
    task: LearnedTask | str = "classification"
    validation_images: np.ndarray | None = None
    validation_labels: np.ndarray | None = None
    domains: Mapping[str, np.ndarray] | None = None
    columns: Mapping[str, Mapping[str, np.ndarray]] | None = None
    num_tokens: int | None = None
    class_names: tuple[str, ...] = ()
    features: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        train, train_labels = self.samples("train")
        for split in self.splits:
            images, labels = self.samples(split)
            if images.ndim == 0 or labels.ndim == 0 or len(images) != len(labels) or len(labels) == 0:
                shapes = f"samples {list(images.shape)} and labels {list(labels.shape)}"
                raise DataDamaged(f"{self.origin}: expected as many {split} samples as labels, got {shapes}.")
            if (images.shape[1:], images.dtype, labels.ndim) != (train.shape[1:], train.dtype, train_labels.ndim):
                like = f"{train.dtype} {list(train.shape[1:])} with labels of {train_labels.ndim} axes"
                got = f"{images.dtype} {list(images.shape[1:])}, {labels.ndim}"
                raise DataDamaged(f"{self.origin}: expected {split} samples like train, {like}, got {got}.")
            wrong = self.learned.wrong_labels(labels, self.num_classes)
            if wrong:
                raise DataDamaged(f"{self.origin}: {split} labels {wrong} (task: {label_of(self.learned)}).")
        for name, column in (self.columns or {}).items():
            for split, values in column.items():
                if values.shape != self.samples(split)[1].shape[:1]:
                    shapes = f"one value per {split} sample, got {list(values.shape)}"
                    raise DataDamaged(f"{self.origin}: column {name}: expected {shapes}.")

    @classmethod
    def of_splits(
        cls,
        name: str,
        origin: str,
        splits: Mapping[str, Pair],
        num_classes: int,
        mean: float | Sequence[float] | np.ndarray = 0.0,
        std: float | Sequence[float] | np.ndarray = 1.0,
        **more: Any,
    ) -> "Dataset":
        """Return a data set of splits; `mean` and `std` are numbers, one for all channels or one for each."""
        for split, (samples, labels) in splits.items():
            more |= {f"{split}_images": samples, f"{split}_labels": labels}
        more |= {"mean": np.array(mean, np.float32, ndmin=1), "std": np.array(std, np.float32, ndmin=1)}
        return cls(name=name, origin=origin, num_classes=num_classes, **more)

    @property
    def learned(self) -> LearnedTask:
        """The task."""
        return as_task(self.task)

    @property
    def num_outputs(self) -> int:
        """Number of values that a model returns, per label if a sample has several."""
        return self.learned.num_outputs(self.num_classes, self.train_labels.shape[1:])

    @property
    def holds_images(self) -> bool:
        """Whether samples are images, which are normalized and can be shifted; other samples are unchanged."""
        return self.train_images.ndim == 4 and (
            self.train_images.dtype == np.uint8 or np.issubdtype(self.train_images.dtype, np.floating)
        )

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample as models get it: (C, H, W) for images."""
        shape = self.train_images.shape[1:]
        return (shape[2], *shape[:2]) if self.holds_images else shape

    @property
    def sample_dtype(self) -> str:
        """Type of samples as models get them: float32 for images and features, otherwise the integers' own type."""
        floating = self.holds_images or np.issubdtype(self.train_images.dtype, np.floating)
        return "float32" if floating else self.train_images.dtype.name

    @property
    def inputs(self) -> dict[str, Any]:
        """Preparation of samples for models, as plain data: (x / divided_by - mean) / std of images and features."""
        axes = {1: "[N, T]", 2: "[N, C, T]", 3: "[N, C, H, W]"}.get(len(self.sample_shape), "[N, ...]")
        found: dict[str, Any] = {"layout": axes, "shape": list(self.sample_shape), "dtype": self.sample_dtype}
        if self.holds_images:
            found["divided_by"] = 255 if self.train_images.dtype == np.uint8 else 1
            found |= {"mean": np.asarray(self.mean).tolist(), "std": np.asarray(self.std).tolist()}
        if self.features:
            found["features"] = [dict(each) for each in self.features]
        return {**found, "classes": list(self.class_names) or int(self.num_classes)}

    @property
    def known_tokens(self) -> int | None:
        """Number of different tokens that a model must know, or None if samples are not token ids."""
        if self.num_tokens is not None or self.holds_images or not np.issubdtype(self.train_images.dtype, np.integer):
            return self.num_tokens
        held = [self.samples(split)[0] for split in self.splits]
        if min(int(ids.min(initial=0)) for ids in held) < 0:
            return None
        return max(int(ids.max(initial=0)) for ids in held) + 1

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits train, test and, if the data set has its own, validation."""
        return ("train", "test") if self.validation_images is None else ("train", "test", "validation")

    @property
    def num_domains(self) -> int:
        """Number of domains, D."""
        return 1 if self.domains is None else int(self.domains["train"].max()) + 1

    def domain_of(self, split: str) -> np.ndarray:
        """The domain of each sample of a split, int64 [N]."""
        return np.zeros(len(self.samples(split)[1]), np.int64) if self.domains is None else self.domains[split]

    def samples(self, split: str) -> Pair:
        """Images and labels of a split, as stored."""
        return getattr(self, f"{split}_images"), getattr(self, f"{split}_labels")

    def stored_bytes(self, split: str) -> tuple[np.ndarray, np.ndarray]:
        """The uint8 images of a split as one array, the same at each call, and their order; see `as_stored`."""
        if split not in self._stored:
            self._stored[split] = as_stored(self.samples(split)[0])
        return self._stored[split]

    @cached_property
    def _stored(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        return {}

    @cached_property
    def sha256(self) -> str:
        """Digest of shapes, types and bytes of images and labels, whatever file they came from."""
        digest = hashlib.sha256()
        for array in (array for split in self.splits for array in self.samples(split)):
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            for start in range(0, len(array), _ROWS):  # a memory-mapped array may be larger than memory
                digest.update(np.ascontiguousarray(array[start : start + _ROWS]).data)
        for name, column in (self.columns or {}).items():
            for split, values in column.items():
                digest.update(f"{name} {split} {values.tolist()}".encode())
        return digest.hexdigest()


@dataclass
class Outline:
    """Properties of a run's data that models and runs need.

    Args:
        node_cluster: int64 [nodes], the hidden truth.
        num_classes: the outputs of a model, per label: the number of classes, tokens or labels; of a regression 1.
        image_shape: (C, H, W); of samples that are not images their shape.
        about: for the manifest.
        task: the task, or the name of an entry of TASKS.
        dtype: numpy's name of the samples' type.
        num_tokens: number of different tokens in samples; None if they are not tokens.
        label_shape: of one sample's labels; () for a single label.
    """

    node_cluster: np.ndarray
    num_classes: int
    image_shape: tuple[int, ...]
    about: dict = field(default_factory=dict)
    task: LearnedTask | str = "classification"
    dtype: str = "float32"
    num_tokens: int | None = None
    label_shape: tuple[int, ...] = ()


class DataSettings(Part):
    """Base of the entries of DATASETS: frozen dataclasses that define `load`, or `generate` where `generated`.

    `num_samples`, `image_shape` and `num_classes` let a network-only run do without reading the data; give all or none.
    """

    task: Any = "classification"
    """Default task if the scenario's `task` sets none: the name of an entry of TASKS, or a task; a key of the scenario
    if a subclass makes it a field."""

    generated: ClassVar[bool] = False
    """Whether it is made from the scenario's seed; false: it is read."""

    from_python: ClassVar[bool] = False
    """Whether Python code gives its samples; no file can name it then."""

    may_hold_images: ClassVar[bool] = True
    """Whether its samples are, or may turn out to be, images; false: they are token ids or rows of features."""

    own_validation: Any = False
    """Whether it comes with a validation set."""

    overlap: Any = None
    """Overlap of its training samples, as a clause for messages, by which held-out samples would be trained on all the
    same; None without overlap."""

    sample_dtype: ClassVar[str] = "float32"
    """numpy's name of the type of its samples, as nodes get them."""

    num_samples: Any = None
    """Training and test samples, (int, int); None: known only when it has been read."""

    image_shape: Any = None
    """Shape of one sample, (C, H, W) of images; None: known only when it has been read."""

    num_classes: Any = None
    """Number of labels; None: known only when it has been read."""

    label_shape: Any = ()
    """Shape of one sample's labels, if `num_samples` is known; () for a single label."""

    num_tokens: Any = None
    """Number of different tokens in samples; None if they are not tokens, or if it is known only after reading."""

    def domains_for(self, num_clusters: int) -> int | None:
        """Return the number of domains for this number of clusters, or None without domains."""
        return None

    def load(self, search: DataSearch) -> Dataset:
        """Return the data set, read from its files.

        Raises:
            DataMissing: if it is not found. DataDamaged: if it cannot be read.
        """
        raise NotImplementedError(f"{type(self).__name__} must define load(search)")

    def generate(self, nodes: Any, seed: int) -> Dataset:
        """The data set, made for the scenario section `nodes` from a seed."""
        raise NotImplementedError(f"{type(self).__name__} must define generate(nodes, seed)")


def load_dataset(data: DataSettings, nodes: Any, seed: int, search: DataSearch) -> Dataset:
    """Return the data set of a scenario, read from its files or made from the seed.

    Args:
        data: an entry of DATASETS.
        nodes: scenario section `nodes`.
        seed: the scenario's seed.
        search: where to look.
    Raises:
        DataMissing, DataDamaged: see `load` there.
    """
    found = data.generate(nodes, seed) if data.generated else data.load(search)
    if isinstance(found, Dataset) and own_code.is_from_outside(data):  # others are checked where they are read
        _check_values(found)
    return found


def _check_values(dataset: Dataset) -> None:
    """Raise DataDamaged if values that models would see are not finite, not token ids, or are divided by 0."""
    for split in dataset.splits:
        samples, labels = dataset.samples(split)
        for key, array in (("samples", samples), ("labels", labels)):
            if np.issubdtype(array.dtype, np.floating):
                finite(dataset.origin, f"{split} {key}", array)
        if dataset.num_tokens is not None:
            check_tokens(dataset.origin, f"{split} samples", samples, dataset.num_tokens)
    mean, std = np.asarray(dataset.mean, dtype=float), np.asarray(dataset.std, dtype=float)
    if not (np.isfinite(mean) & np.isfinite(std) & (std > 0)).all():
        raise DataDamaged(f"{dataset.origin}: expected finite mean and std, std above 0, got {mean} and {std}.")


def finite(where: str, key: str, array: np.ndarray) -> np.ndarray:
    """Return the array unchanged if all its values are finite; one other value would spread to every model that uses
    it.

    Raises:
        DataDamaged: if a value is not finite; names the place of the first.
    """
    if not array.size or (np.isfinite(array.min()) and np.isfinite(array.max())):  # both propagate NaN
        return array
    wrong = np.argwhere(~np.isfinite(array))
    first = f"the first is {array[tuple(wrong[0])]} in sample {wrong[0][0]}"
    raise DataDamaged(f"{where}: {key}: {len(wrong)} values are not finite in float32, {first}. Fill in numbers.")


def check_tokens(where: str, key: str, ids: np.ndarray, num_tokens: int | None = None) -> None:
    """Raise DataDamaged unless all token ids are from 0 to below the number of tokens, if it is known."""
    if ids.size and (ids.min() < 0 or (num_tokens is not None and ids.max() >= num_tokens)):
        text = f"expected token ids from 0 to below {num_tokens or 'their number'}, got {ids.min()}..{ids.max()}"
        raise DataDamaged(f"{where}: {key}: {text}. Renumber them, or convert features with .astype('float32').")


SPLIT_SEED = 0
"""Train and test are split alike whatever the scenario's seed, so that runs can be compared."""


def split_off(where: str, labels: np.ndarray, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Indices of train and test: a random part of every class; of labels that are not classes, of all samples.

    Args:
        where: origin, for messages.
        labels: [n, ...].
        fraction: of the test set, 0..1.
    Raises:
        DataDamaged: if one side would be empty.
    """
    one_label = labels.ndim == 1 and np.issubdtype(labels.dtype, np.integer)
    groups = [np.flatnonzero(labels == label) for label in np.unique(labels)] if one_label else [np.arange(len(labels))]
    chosen = []
    for number, own in enumerate(groups):
        order = stream(SPLIT_SEED, "test split", number).permutation(own)
        chosen.append(order[: round(fraction * len(own))])
    test = np.sort(np.concatenate(chosen))
    train = np.setdiff1d(np.arange(len(labels)), test)
    if not len(test) or not len(train):
        raise DataDamaged(f"{where}: data.test_fraction: {fraction} of {len(labels)} samples leaves one side empty.")
    return train, test
