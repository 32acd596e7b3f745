"""A test set taken off data that has none."""

import numpy as np

from ddlsim.errors import DataDamaged
from ddlsim.rng import stream

SPLIT_SEED = 0
"""Train and test are split alike whatever the scenario's seed, so that runs can be compared."""


def split_off(where: str, labels: np.ndarray, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Indices of train and test: a random part of every class; of labels that are no classes, of all samples.

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
        raise DataDamaged(
            f"{where}: data.test_fraction: {fraction} of {len(labels)} samples in {len(groups)} classes leaves one "
            "side empty. Give another fraction, or more samples."
        )
    return train, test
