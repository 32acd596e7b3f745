"""A node made of numbers: parameters are floats, verbs are answered by the test."""

from types import SimpleNamespace

import numpy as np
import pytest

from ddlsim.aggregation.base import metropolis_hastings
from ddlsim.topologies.base import spanning_tree


class NumberNode:
    """Replaces node.node.Node; `sent` and `recorded` hold the calls of an algorithm."""

    def __init__(self, node_id=1, num_nodes=4, peers=(0, 2), models=((10.0, 1.0), (20.0, 2.0))):
        self.id, self.num_nodes, self.seed, self.local_steps, self.steps_per_epoch = node_id, num_nodes, 0, 10, 7
        self._peers, self._models = peers, models
        self.num_samples, self.true_cluster = 30, node_id % 2
        self.rounds = 6
        self._streams: dict[str, np.random.Generator] = {}
        self.measured: list[tuple[str, object, int]] = []
        self.round_num, self.synchronous = 0, True
        self.sent: list[tuple[tuple[int, ...], int, dict]] = []
        self.recorded: list[tuple[str, object, int]] = []
        self.published: list[tuple[int, dict]] = []

    def init_models(self, count=1, *, whole=False, own=True):
        return [(model[0],) if whole else model for model in self._models[:count]]

    def rng(self, purpose):
        return self._streams.setdefault(purpose, np.random.default_rng(0))

    def peers(self, round_num):
        return self._peers

    def senders(self, round_num):
        return self._peers

    def tree_peers(self, round_num):
        return spanning_tree(self.neighbors(round_num))[self.id]

    def divide(self, amount, round_num):
        peers = self.peers(round_num)
        return dict.fromkeys((*peers, self.id), amount / (1 + len(peers)))

    def random_peer(self, round_num):
        return self._peers[:1]

    def neighbors(self, round_num):
        return ((1,), (0, 2), (1, 3), (2,))

    def others(self):
        return tuple(peer for peer in range(self.num_nodes) if peer != self.id)

    def average(self, own, received):
        return sum([own, *received.values()]) / (1 + len(received))

    def mix(self, own, received, round_num):
        weights = metropolis_hastings(self.id, self.neighbors(round_num), received)
        return self.merge([{**received, self.id: own}[peer] for peer in weights], list(weights.values()))

    def aggregate(self, models, weights):
        return self.merge([models[peer] for peer in sorted(models)], [weights[peer] for peer in sorted(models)])

    def add_deltas(self, base, moves, each):
        known = [] if base is None else [base]
        return self.merge([*known, *(moves[node] for node in sorted(moves))], [1] * len(known) + [each] * len(moves))

    def merge(self, sources, weights):
        return sum(source * weight for source, weight in zip(sources, weights, strict=True))

    def trained_values(self, params):
        return params

    def with_trained_values(self, params, values):
        return values

    def train(self, model, steps=None, only=None, steps_of_run=None):
        return ("train", model, steps, only) if steps_of_run is None else ("train", model, steps, only, steps_of_run)

    def losses(self, models, batches, *, common=False, split="train", later=False, takes_time=True):
        return ("losses" if takes_time else "free losses"), models, batches, common

    def receive(self, round_num, senders=None, *, wait=None):
        return {None: "receive", True: "wait", False: "look"}[wait], round_num, senders

    def pull(self, peers, round_num, keys=None, *, stages=None):
        return "pull", list(peers), round_num, stages

    def exchange(self, peers, round_num, **payload):
        return "exchange", list(peers), round_num, payload

    def turn_stages(self, peers, round_num):
        return {peer: int(peer < self.id) for peer in peers}  # turns in the order of ids

    def cluster_members(self, cluster):
        return tuple(peer for peer in self.others() if peer % 2 == cluster)

    def send(self, peers, round_num, **payload):
        self.sent.append((tuple(peers), round_num, payload))

    def publish(self, round_num, *, stage=None, **payload):
        self.published.append((round_num, payload) if stage is None else (round_num, stage, payload))

    def measure(self, name, model, round_num):
        self.measured.append((name, model, round_num))

    def record(self, name, value, round_num):
        self.recorded.append((name, value, round_num))


def answer(steps, *outcomes):
    """Drive an algorithm's generator with these outcomes; return the yielded verbs."""
    verbs = [next(steps)]
    for outcome in outcomes[:-1]:
        verbs.append(steps.send(outcome))
    with pytest.raises(StopIteration):
        steps.send(outcomes[-1])
    return verbs


def message(src, **payload):
    return SimpleNamespace(src=src, payload=payload)
