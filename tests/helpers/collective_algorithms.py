"""Algorithms of a few lines that use collective operations, named by path in scenarios of tests."""

from dataclasses import dataclass
from typing import Literal

from ddlsim.algorithms.base import Algorithm
from ddlsim.node.candidates import EvaluationCandidates


@dataclass
class State:
    """A node's model."""

    model: tuple


@dataclass(frozen=True, kw_only=True)
class LocalSGD(Algorithm):
    """Local steps, then an all-reduce of the models."""

    algorithm: Literal["ring", "tree", "halving_doubling", "server"] = "ring"

    @property
    def uses_topology(self):
        return False

    def start(self, node):
        (model,) = node.init_models(whole=True)
        return State(model)

    def round(self, node, state, round_num):
        trained = yield node.train(state.model)
        state.model = yield node.all_reduce(trained, range(node.num_nodes), round_num, self.algorithm)

    def serving(self, node, state):
        return EvaluationCandidates([state.model])


@dataclass(frozen=True, kw_only=True)
class InPieces(LocalSGD):
    """Local SGD whose local training is cut into pieces of these numbers of steps."""

    pieces: tuple[int, ...]

    def round(self, node, state, round_num):
        for steps in self.pieces:
            state.model = yield node.train(state.model, steps, of=sum(self.pieces))
        state.model = yield node.all_reduce(state.model, range(node.num_nodes), round_num)
