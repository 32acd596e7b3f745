"""Which samples a local step sees."""

import numpy as np


def draw_batches(rng: np.random.Generator, num_samples: int, batch_size: int, count: int) -> list[np.ndarray]:
    """`count` mini-batches of sample indices, without replacement inside a pass over the data.

    As a PyTorch DataLoader with shuffle: the last batch of a pass may be smaller, then a new shuffle begins; every
    call begins a new pass (FACADE's code makes a new loader each round).

    Args:
        rng: the node's stream; two calls with equal streams give equal batches.
        num_samples: how many samples the node holds, >= 1.
        batch_size: samples per batch.
        count: number of batches.
    """
    batches: list[np.ndarray] = []
    while len(batches) < count:
        order = rng.permutation(num_samples)
        for start in range(0, num_samples, batch_size):
            batches.append(order[start : start + batch_size])
            if len(batches) == count:
                break
    return batches
