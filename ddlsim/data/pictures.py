"""Which samples can be treated as pictures: cropped, flipped, turned, recolored."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ddlsim.data.dataset import Dataset
from ddlsim.errors import ScenarioError
from ddlsim.scenario.augmentation import BUILT_IN

_ROWS = 4096
"""Samples that are looked at together where the whole array may not fit into memory."""
_TOLERANCE = 1e-3
"""By how much values may lie outside 0..1, as resizing leaves them."""


def are_pictures(shape: Sequence[int], dtype: str) -> bool:
    """Whether samples are images; one row of one channel, (1, 1, F), is a row of features, as tables have them.

    Args:
        shape: of one sample as models see it.
        dtype: numpy's name of its type.
    """
    return len(shape) == 3 and tuple(shape[:2]) != (1, 1) and np.issubdtype(dtype, np.floating)


def check_augmentation(dataset: Dataset, kind: Any) -> None:
    """Whether training samples can be augmented.

    Args:
        dataset: as loaded.
        kind: scenario key training.augmentation.

    Raises:
        ScenarioError: if they are no images, come from domains with a normalization each, or are not on the scale that
            colors are changed on.
    """
    if kind == "none":
        return
    if kind not in BUILT_IN and np.issubdtype(dataset.sample_dtype, np.floating) and np.ndim(dataset.mean) == 1:
        return
    if not are_pictures(dataset.sample_shape, dataset.sample_dtype):
        shape = " x ".join(map(str, dataset.sample_shape))
        raise ScenarioError(
            f"training.augmentation: only none fits samples that are no images ({shape}); "
            "transforms take any samples of floating-point numbers."
        )
    if np.ndim(dataset.mean) != 1:
        raise ScenarioError("training.augmentation: only none fits data of several domains.")
    if kind == "color" and dataset.train_images.dtype != np.uint8:
        _check_scale(dataset.train_images)


def _check_scale(images: np.ndarray) -> None:
    pieces = [images[first : first + _ROWS] for first in range(0, len(images), _ROWS)]  # it may be memory-mapped
    low, high = min(float(each.min()) for each in pieces), max(float(each.max()) for each in pieces)
    if low < -_TOLERANCE or high > 1 + _TOLERANCE:
        raise ScenarioError(
            f"training.augmentation: color changes uint8 images or values of 0 to 1, the data has values of {low:.4g} "
            f"to {high:.4g}, which it would cut off. Give the images unnormalized, uint8 or 0 to 1, with the data's "
            "mean and std, or choose crop_flip or none."
        )
