"""Which samples a local step sees."""

import numpy as np


def batches_per_pass(num_samples: int, batch_size: int, drop_last: bool = False) -> int:
    """Mini-batches in one pass over the data; `drop_last` leaves a smaller last one out unless it is the only one."""
    return max(1, num_samples // batch_size) if drop_last else -(-num_samples // batch_size)


def draw_batches(
    rng: np.random.Generator, num_samples: int, batch_size: int, count: int, drop_last: bool = False
) -> list[np.ndarray]:
    """`count` mini-batches of sample indices, without replacement inside a pass over the data.

    As a PyTorch DataLoader with shuffle: the last batch of a pass may be smaller, then a new shuffle begins; every
    call begins a new pass (FACADE's code makes a new loader each round).

    Args:
        rng: the node's stream; two calls with equal streams give equal batches.
        num_samples: how many samples the node holds, >= 1.
        batch_size: samples per batch.
        count: number of batches.
        drop_last: whether a smaller last batch of a pass is left out, unless it is the only one.
    """
    per_pass = batches_per_pass(num_samples, batch_size, drop_last)
    batches: list[np.ndarray] = []
    while len(batches) < count:
        order = rng.permutation(num_samples)
        for start in range(0, per_pass * batch_size, batch_size):
            batches.append(order[start : start + batch_size])
            if len(batches) == count:
                break
    return batches
