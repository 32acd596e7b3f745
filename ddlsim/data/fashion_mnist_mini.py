"""The data set inside the package: a class-balanced part of Fashion-MNIST, so that every scenario runs offline.

Source: Xiao, Rasul and Vollgraf, "Fashion-MNIST", 2017 (MIT license, notice in embedded/LICENSE.fashion-mnist). Of
each class the first 1,000 training images and the first 200 test images, in the original order; the file is made by
tools/make_fashion_mnist_mini.py.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from ddlsim.data.base import DataSettings
from ddlsim.data.dataset import DataSearch, Dataset
from ddlsim.data.readers import read_keras_npz

EMBEDDED = Path(__file__).parent / "embedded" / "fashion-mnist-mini.npz"


@dataclass(frozen=True, kw_only=True)
class FashionMnistMini(DataSettings):
    """Part of Fashion-MNIST inside the package: 10,000 + 2,000 images, 1 x 28 x 28, 10 classes; needs no network."""

    image_shape: ClassVar = (1, 28, 28)
    num_classes: ClassVar = 10
    num_samples: ClassVar = (10_000, 2_000)

    def load(self, search: DataSearch) -> Dataset:
        """The data set; nothing is searched for."""
        half = np.float32([0.5])
        return Dataset("fashion-mnist-mini", *read_keras_npz(EMBEDDED), 10, half, half, "inside the package")
