"""What can be wrong with labels, for messages."""

import numpy as np


def not_classes(labels: np.ndarray, num_classes: int, shape: tuple[int, ...] | None = None) -> str:
    """Why labels are no classes 0..num_classes-1, one or T per sample; empty if they are.

    Args:
        labels: of any shape.
        num_classes: how many there are.
        shape: of all labels, if these are only some.
    """
    shape = labels.shape if shape is None else shape
    if len(shape) not in (1, 2) or not np.issubdtype(labels.dtype, np.integer):
        return f"must be whole numbers [n] or [n, T], got {labels.dtype} {list(shape)}"
    if labels.min() < 0 or labels.max() >= num_classes:
        return f"must be 0..{num_classes - 1}, got {labels.min()}..{labels.max()}"
    return ""
