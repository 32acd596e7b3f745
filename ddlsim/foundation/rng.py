"""Random numbers: one seed, one independent named stream per purpose and per node, no global state.

A stream is a Philox generator keyed by a hash of (seed, purpose, indices), so adding a node, an option or
another stream never shifts the numbers of any other stream.
"""

import hashlib

import numpy as np


def stream(seed: int, purpose: str, *indices: int) -> np.random.Generator:
    """Return the generator of one named stream.

    Args:
        seed: the scenario's seed, any integer.
        purpose: use of the numbers, e.g. "batches".
        indices: numbers that identify the stream within its purpose, e.g. a node id, a round.
    """
    label = "/".join((str(seed), purpose, *map(str, indices)))
    key = int.from_bytes(hashlib.sha256(label.encode()).digest()[:16], "little")
    return np.random.Generator(np.random.Philox(key=key))


def stream_seed(seed: int, purpose: str, *indices: int) -> int:
    """Return a 63-bit seed of a named stream, for libraries that only take integers (torch, networkx)."""
    return int(stream(seed, purpose, *indices).integers(0, 2**63 - 1))


def dealt(generator: np.random.Generator, count: int, wanted: int) -> list[int]:
    """Return `wanted` (at least 1) numbers from 0 .. count-1 in random order, each again only after all others."""
    orders = [generator.permutation(count) for _ in range(-(-wanted // count))]
    return np.concatenate(orders)[:wanted].tolist()
