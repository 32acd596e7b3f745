"""Mixing matrices for the benches of merges and listed pairs."""

import numpy as np
from scipy import sparse

PEERS = 5


def regular_mixing(n: int) -> sparse.csr_matrix:
    """Return a matrix that mixes every node with itself and five others, with equal weights and sorted entries."""
    rng = np.random.default_rng(0)
    sources = [np.sort(np.append(rng.permutation(np.delete(np.arange(n), i))[:PEERS], i)) for i in range(n)]
    weights = np.full(n * (PEERS + 1), 1 / (PEERS + 1), np.float32)
    return sparse.csr_matrix((weights, np.concatenate(sources), np.arange(n + 1) * (PEERS + 1)), shape=(n, n))
