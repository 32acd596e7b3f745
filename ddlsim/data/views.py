"""Each cluster's view of the data: its samples, normalized and shifted."""

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

import numpy as np

from ddlsim.data.dataset import Dataset
from ddlsim.data.partitions import Partition
from ddlsim.data.pixels import Decoding, MappedSamples, Uint8Images, is_mapped, normalize
from ddlsim.data.shifts import Samples, Setting, Shift, as_learned, check_result
from ddlsim.foundation import own_code
from ddlsim.foundation.errors import ScenarioError
from ddlsim.tasks import Task

_ROWS = 4096
"""Labels that are shifted together, of samples that are not read."""


def normalized(dataset: Dataset, split: str, indices: np.ndarray) -> np.ndarray:
    """Return some samples of a split as models see them.

    Returns:
        Images as float32 [n, C, H, W], each domain by its own mean and deviation; other samples unchanged.
    """
    images = dataset.samples(split)[0]
    if not dataset.holds_images:
        return images[indices].astype(dataset.sample_dtype, copy=False)
    if dataset.mean.ndim == 1:
        return normalize(images[indices], dataset.mean, dataset.std)
    height, width, channels = images.shape[1:]
    result = np.empty((len(indices), channels, height, width), np.float32)
    domains = dataset.domain_of(split)[indices]
    for domain in np.unique(domains):
        own = domains == domain
        result[own] = normalize(images[indices[own]], dataset.mean[domain], dataset.std[domain])
    return result


def samples_of(dataset: Dataset, split: str, indices: np.ndarray) -> Samples:
    """Some samples of a split before any shift, in the form that takes least memory, and their labels."""
    images, labels = dataset.samples(split)
    if is_mapped(images):
        read = partial(normalized, dataset, split)
        of_values = np.dtype(dataset.sample_dtype)
        return MappedSamples(indices, read, dataset.sample_shape, of_values), labels[indices]
    if not dataset.holds_images or images.dtype != np.uint8:
        return normalized(dataset, split, indices), labels[indices]
    stored, order = dataset.stored_bytes(split)
    if dataset.mean.ndim == 1:
        return Uint8Images(stored, indices, [Decoding(order, dataset.mean, dataset.std)]), labels[indices]
    of_domains = [Decoding(order, mean, std) for mean, std in zip(dataset.mean, dataset.std, strict=True)]
    return Uint8Images(stored, indices, of_domains, dataset.domain_of(split)[indices]), labels[indices]


@dataclass(frozen=True)
class ClusterView:
    """View of the data for one cluster.

    Args:
        cluster: its number.
        shift: shift of its samples.
        setting: information for the shift.
        labels: only samples with one of these labels are included; None for all.
        domain: only samples of this domain are included; None for all.
        task: the task.
    """

    cluster: int
    shift: Shift
    setting: Setting
    labels: list[int] | None
    domain: int | None
    task: Task

    def of(self, samples: Samples) -> Samples:
        """Samples as this cluster sees them.

        Raises:
            ScenarioError: if the shift returns invalid samples.
        """
        images, labels = samples
        if isinstance(images, MappedSamples):
            return self._of_mapped(images, labels)
        if isinstance(images, Uint8Images):
            found = self.shift.apply_to_bytes(images, labels, self.cluster, self.setting)
            if found is not None:
                return found[0], as_learned(found[1])
        return self._shifted(np.asarray(images), labels)

    def _of_mapped(self, images: MappedSamples, labels: np.ndarray) -> Samples:
        """Return memory-mapped images whose batches are shifted when they are read, and labels shifted at once."""

        def read(indices: np.ndarray) -> np.ndarray:
            unused = np.zeros(len(indices), labels.dtype)
            seen = self._shifted(images.read(indices), unused, ["images"])[0]
            return np.ascontiguousarray(seen, images.sample_dtype)

        unseen = np.broadcast_to(np.zeros((), images.sample_dtype), images.shape)
        pieces = [
            self._shifted(unseen[part], labels[part], ["labels"])[1]
            for part in (slice(first, first + _ROWS) for first in range(0, len(labels), _ROWS))
        ]
        return dataclasses.replace(images, read=read), np.concatenate(pieces)

    def _shifted(
        self, images: np.ndarray, labels: np.ndarray, real: Collection[str] = ("images", "labels")
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return shifted samples; `real` names the inputs, images or labels, that are not placeholders."""
        if own_code.is_from_outside(self.shift):  # it may write into its input, which other clusters see too
            found = self.shift.apply(images.copy(), labels.copy(), self.cluster, self.setting)
            check_result(self.shift, found, (images, labels), self.setting, self.task, real)
        else:
            found = self.shift.apply(images, labels, self.cluster, self.setting)
        of_images = np.float32 if np.issubdtype(found[0].dtype, np.floating) else found[0].dtype
        return np.ascontiguousarray(found[0], of_images), as_learned(found[1])

    def own(self, dataset: Dataset, split: str, indices: np.ndarray) -> np.ndarray:
        """Return the samples of an evaluation set on which this cluster is measured."""
        if self.domain is not None:
            return indices[dataset.domain_of(split)[indices] == self.domain]
        if self.labels is not None:
            return indices[np.isin(dataset.samples(split)[1][indices], self.labels)]
        return indices

    def same_as(self, other: "ClusterView") -> bool:
        """Whether both see the same samples before the shift."""
        return self.labels == other.labels and self.domain == other.domain


def views_of(dataset: Dataset, partition: Partition, shift: Shift, num_clusters: int) -> list[ClusterView]:
    """Every cluster's view.

    Raises:
        ScenarioError: if the clusters do not fit the data.
    """
    by_domain = partition.by_domain
    if by_domain and dataset.num_domains != num_clusters:
        text = f"expected data of {num_clusters} domains, one per cluster, got {dataset.num_domains} in {dataset.name}"
        raise ScenarioError(f"partition: {text}.")
    labels = partition.cluster_labels(num_clusters, dataset.num_classes)
    views = []
    for cluster in range(num_clusters):
        domain = cluster if by_domain else None
        black = None if dataset.mean.ndim == 2 and domain is None else -dataset.mean / dataset.std
        if black is not None and black.ndim == 2:
            black = black[domain]
        setting = Setting(num_clusters, dataset.num_classes, black)
        own = None if labels is None else labels[cluster]
        views.append(ClusterView(cluster, shift, setting, own, domain, dataset.learned))
    return views
