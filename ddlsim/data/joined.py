"""Several data sets as one, each of them a domain (domain shift).

Source: MNIST with Fashion-MNIST, labels apart, 20 outputs, as in Hagander and Ihre-Thomason, "With a
little help from my friends", master's thesis, Lund University, 2024. Each set keeps its own normalization, as there.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import MinLen

from ddlsim.data.dataset import DataSearch, Dataset, DataSettings
from ddlsim.foundation.errors import ScenarioError
from ddlsim.tasks import as_task


@dataclass(frozen=True, kw_only=True)
class Joined(DataSettings):
    """Several data sets of one image shape, joined; each is a domain, which `partition: {name: domains}` deals apart.

    Args:
        sets: names of at least two data sets that need no keys, e.g. [mnist, fashion-mnist].
        labels: apart: every set's labels follow those of the sets before it (10 and 10 make 20 classes);
            common: label 3 of one set is label 3 of the other.
    """

    sets: Annotated[tuple[str, ...], MinLen(2)]
    labels: Literal["apart", "common"] = "apart"

    def __post_init__(self):
        from ddlsim.data import DATASETS

        for name in self.sets:
            if name not in DATASETS:
                near = DATASETS.nearest(name)
                hint = f" Did you mean {near}?" if near else ""
                raise ScenarioError(f"data.sets: there is no data set {name!r}.{hint} Known: {', '.join(DATASETS)}.")
            self._check(name)
        shapes = {tuple(self._one(name).image_shape) for name in self.sets}
        if len(shapes) > 1:
            raise ScenarioError(f"data.sets: images must have one shape, these have {sorted(shapes)} (C, H, W).")

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        return self._one(self.sets[0]).image_shape

    @property
    def num_classes(self) -> int:
        """Number of labels."""
        each = [self._one(name).num_classes for name in self.sets]
        return sum(each) if self.labels == "apart" else max(each)

    @property
    def num_samples(self) -> tuple[int, int]:
        """Training and test images."""
        each = [self._one(name).num_samples for name in self.sets]
        return sum(train for train, _ in each), sum(test for _, test in each)

    def domains_for(self, num_clusters: int) -> int:
        """One domain per set, however many clusters there are."""
        return len(self.sets)

    def load(self, search: DataSearch) -> Dataset:
        """The data set.

        Raises:
            DataMissing: if one of the sets is in none of the places and did not come by download.
            DataDamaged: if one cannot be read.
        """
        parts = [self._one(name).load(search) for name in self.sets]
        before = np.cumsum([0, *(part.num_classes for part in parts[:-1])]) * (self.labels == "apart")
        arrays, domains = [], {}
        for split in ("train", "test"):
            arrays.append(np.concatenate([part.samples(split)[0] for part in parts]))
            labels = [part.samples(split)[1] + offset for part, offset in zip(parts, before.tolist(), strict=True)]
            arrays.append(np.concatenate(labels))
            domains[split] = np.repeat(np.arange(len(parts)), list(map(len, labels)))
        mean, std = (np.stack([getattr(part, name) for part in parts]) for name in ("mean", "std"))
        origin = ", ".join(part.origin for part in parts)
        return Dataset("+".join(self.sets), *arrays, self.num_classes, mean, std, origin, domains=domains)

    def _check(self, name: str) -> None:
        """Raise ScenarioError if a set needs keys, or has not one label for each of its images."""
        try:
            one = self._one(name)
        except (TypeError, ScenarioError):  # it has keys without a default, or whose default alone is refused
            one = None
        if one is None or isinstance(one, Joined):
            raise ScenarioError(f"data.sets: {name} needs keys of its own and cannot be joined by name.")
        shape = one.image_shape
        if shape is None or len(shape) != 3 or not one.may_hold_images:
            raise ScenarioError(f"data.sets: {name} holds no images of a known shape. Join sets of images.")
        if not as_task(one.task).has_classes or one.label_shape:
            raise ScenarioError(f"data.sets: {name} has not one class for each image. Join sets for classification.")

    @staticmethod
    def _one(name: str) -> Any:
        """Return the set with its default keys."""
        from ddlsim.data import DATASETS

        return DATASETS[name]()
