"""The synthetic problem of the similarity study (cosine of gradients, FedAvg) in plain NumPy, to check DAC.

Nothing here comes from ddlsim: linear regression on 3 x 33 nodes, 50 samples each, SGD with batches of 8, one exchange
with 5 peers and one epoch a round, the least alike peer's estimate of a third node (as the published code has it).
"""

import numpy as np

CLUSTERS, NODES, DIMENSIONS, SAMPLES, BATCH, PEERS, ROUNDS = 3, 99, 10, 50, 8, 5, 40
RATE, TAU, UNKNOWN = 0.003, 140.0, 1e-6


def mean_error(seed: int) -> float:
    """Return the mean squared test error over all nodes, of each node's model of lowest validation loss."""
    random = np.random.default_rng(seed)
    theta = random.uniform(-10, 10, (CLUSTERS, DIMENSIONS))
    cluster = np.repeat(np.arange(CLUSTERS), NODES // CLUSTERS)
    shards = [_samples(random, theta[c], SAMPLES) for c in cluster]
    validation = [_samples(random, theta[c], 100) for c in range(CLUSTERS)]
    test = [_samples(random, theta[c], 1000) for c in range(CLUSTERS)]
    start = random.uniform(-1, 1, DIMENSIONS + 1) / np.sqrt(DIMENSIONS)
    models = np.tile(start, (NODES, 1))
    best, lowest = models.copy(), np.full(NODES, np.inf)
    scores, asked = np.zeros((NODES, NODES)), np.zeros((NODES, NODES), bool)
    chances = (1 - np.eye(NODES)) / (NODES - 1)
    for round_number in range(ROUNDS + 1):
        if round_number:
            for node in random.permutation(NODES):
                _exchange(random, node, models, start, scores, asked, chances)
        for node in range(NODES):
            models[node] = _epoch(random, models[node], *shards[node])
            loss = _error(models[node], *validation[cluster[node]])
            if loss < lowest[node]:
                lowest[node], best[node] = loss, models[node]
    return float(np.mean([_error(best[node], *test[cluster[node]]) for node in range(NODES)]))


def _samples(random, theta, count):
    inputs = random.uniform(-10, 10, (count, DIMENSIONS))
    return np.hstack([inputs, np.ones((count, 1))]), inputs @ theta + random.normal(0, 3, count)


def _error(model, inputs, targets):
    return np.mean((inputs @ model - targets) ** 2)


def _epoch(random, model, inputs, targets):
    order = random.permutation(SAMPLES)
    for rows in (order[first : first + BATCH] for first in range(0, SAMPLES, BATCH)):
        model = model - RATE * 2 * inputs[rows].T @ (inputs[rows] @ model - targets[rows]) / len(rows)
    return model


def _exchange(random, node, models, start, scores, asked, chances):
    """Let one node ask five peers, score them, take over their tables, and merge at once."""
    peers = random.choice(NODES, PEERS, replace=False, p=chances[node])
    own = models[node] - start
    for peer in peers:
        other = models[peer] - start
        scores[node, peer] = own @ other / (np.linalg.norm(own) * np.linalg.norm(other))
        asked[node, peer] = True
    estimates = {}
    for peer in peers:
        for third in np.flatnonzero(asked[peer] & ~asked[node]):
            if third != node and scores[node, peer] < estimates.get(third, (np.inf, 0))[0]:
                estimates[third] = scores[node, peer], scores[peer, third]
    for third, (_, score) in estimates.items():
        scores[node, third] = score
    weights = np.where(scores[node] > 0, np.exp(TAU * (scores[node] - scores[node].max())), 0)
    weights = weights / max(weights.sum(), 1e-300) + UNKNOWN
    weights[node] = 0
    chances[node] = weights / weights.sum()
    models[node] = (models[node] + models[peers].sum(axis=0)) / (PEERS + 1)
