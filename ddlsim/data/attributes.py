"""Several labels per image: attributes of the digits of MNIST, or of the clothes of Fashion-MNIST.

An image's labels follow from its class: 7 is odd, prime, above four and has no loop; a sneaker is footwear.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from ddlsim.data.dataset import DataSearch, Dataset, DataSettings

DIGITS: Mapping[str, tuple[int, ...]] = {
    "even": (0, 2, 4, 6, 8),
    "prime": (2, 3, 5, 7),
    "above four": (5, 6, 7, 8, 9),
    "with a loop": (0, 6, 8, 9),
    "square": (0, 1, 4, 9),
}
CLOTHES: Mapping[str, tuple[int, ...]] = {
    "upper body": (0, 2, 3, 4, 6),
    "long sleeves": (2, 4, 6),
    "footwear": (5, 7, 9),
    "legs": (1, 3),
    "buttoned": (4, 6),
}
"""Attribute -> the classes that have it."""


@dataclass(frozen=True, kw_only=True)
class Attributes(DataSettings):
    """Five attributes of each image of MNIST or Fashion-MNIST, for multi-label prediction.

    Digits: even, prime, above four, with a loop, square. Clothes: upper body, long sleeves, footwear, legs, buttoned.

    Args:
        of: whose images; fashion-mnist-mini is inside the package.
    """

    of: Literal["mnist", "fashion-mnist", "fashion-mnist-mini"] = "mnist"

    task: ClassVar = "multi_label"
    image_shape: ClassVar = (1, 28, 28)
    num_classes: ClassVar = 5
    label_shape: ClassVar = (5,)

    @property
    def num_samples(self) -> tuple[int, int]:  # type: ignore[override]
        return (10_000, 2_000) if self.of == "fashion-mnist-mini" else (60_000, 10_000)

    def load(self, search: DataSearch) -> Dataset:
        """The data set.

        Raises:
            DataMissing, DataDamaged: see the data set of these images.
        """
        from ddlsim.data import DATASETS

        found: Dataset = DATASETS[self.of]().load(search)
        groups = (DIGITS if self.of == "mnist" else CLOTHES).values()
        table = np.array([[int(label in group) for group in groups] for label in range(10)], np.int64)
        return replace(
            found,
            name="attributes",
            train_labels=table[found.train_labels],
            test_labels=table[found.test_labels],
            num_classes=table.shape[1],
            task="multi_label",
        )
