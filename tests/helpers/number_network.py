"""Nodes made of numbers that play an algorithm's rounds in lockstep, on quadratic losses and without a simulator.

Node i has the loss (x - b_i)' A_i (x - b_i) / 2. Parameters are float64 vectors, so that results can be compared
with textbook equations to the last few bits.
"""

import numpy as np
import pytest
from number_node import NumberNode, message


class QuadraticNode(NumberNode):
    """One node; `graph` lists the neighbors of each node, in all rounds."""

    def __init__(self, node_id, graph, curvature, center, start, rate, local_steps=1):
        super().__init__(node_id, len(graph), graph[node_id], ((start,),))
        self.local_steps, self.rate, self._graph = local_steps, rate, graph
        self.learning_rate = rate  # without a schedule
        self.gradient = lambda x: curvature @ (x - center)

    def neighbors(self, round_num):
        return self._graph

    def learning_rates(self, steps=None):
        return [self.rate] * (self.local_steps if steps is None else steps)

    def train(self, model, steps=None, after_step=None, proximal=0.0, control=None):
        (start,) = model
        for _ in range(self.local_steps if steps is None else steps):
            gradient = self.gradient(model[0]) + proximal * (model[0] - start)
            gradient = gradient if control is None else gradient + control
            model = (model[0] - self.rate * gradient,)
            model = after_step(model) if after_step else model
        return "train", model


def play(algorithm, nodes, rounds, arrives=lambda round_num, src, dst: True, rate=None):
    """Play rounds in which all nodes train, send and receive; return the states after each round.

    With `rate`, a function of the round and the node, the nodes' learning rates change.
    """
    states = [algorithm.start(node) for node in nodes]
    seen = []
    for round_num in range(rounds):
        for node in nodes if rate else ():
            node.rate = rate(round_num, node.id)
        lives = [algorithm.round(node, state, round_num) for node, state in zip(nodes, states, strict=True)]
        for life in lives:
            verb, outcome = next(life)
            assert verb == "train"
            assert life.send(outcome)[0] == "receive"
        inboxes = [[] for _ in nodes]
        for node in nodes:
            for receivers, sent_in, payload in node.sent:
                assert sent_in == round_num
                for receiver in receivers:
                    if arrives(round_num, node.id, receiver):
                        inboxes[receiver].append(message(node.id, **payload))
            node.sent.clear()
        for life, inbox in zip(lives, inboxes, strict=True):
            with pytest.raises(StopIteration):
                life.send(inbox)
        seen.append([vars(state).copy() for state in states])
    return seen


def quadratics(num_nodes, size=3, seed=0):
    """Return per node a positive definite matrix [size, size] and a center [size]."""
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(num_nodes, size, size))
    return np.eye(size) + 0.2 * roots @ roots.transpose(0, 2, 1), rng.normal(size=(num_nodes, size))
