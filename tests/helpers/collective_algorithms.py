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
    """Local SGD with local training in pieces of these numbers of steps."""

    pieces: tuple[int, ...]

    def round(self, node, state, round_num):
        for steps in self.pieces:
            state.model = yield node.train(state.model, steps, of=sum(self.pieces))
        state.model = yield node.all_reduce(state.model, range(node.num_nodes), round_num)


@dataclass(frozen=True, kw_only=True)
class InFragments(LocalSGD):
    """Local SGD that averages models fragment by fragment, or one random fragment (`share`)."""

    count: int | None = None
    order: Literal["strided", "sequential"] = "strided"
    share: float | None = None

    def round(self, node, state, round_num):
        (model,) = yield node.train(state.model)
        if self.share is None:
            fragments = node.fragments(model, self.count, self.order)
        else:
            fragments = [node.random_fragment(model, self.share, round_num)]
        for fragment in fragments:
            mean = yield node.all_reduce(node.take(model, fragment), range(node.num_nodes), round_num)
            model = node.put(model, fragment, mean)
        state.model = (model,)


@dataclass(frozen=True, kw_only=True)
class Overlapped(LocalSGD):
    """Two fragments; the mean of each arrives during the other half of the local steps."""

    def start(self, node):
        state = super().start(node)
        state.pending = None
        return state

    def round(self, node, state, round_num):
        for fragment in node.fragments(state.model[0], 2):
            (model,) = yield node.train(state.model, 2, of=4)
            if state.pending is not None:
                last, handle = state.pending
                mean = yield node.wait(handle)
                model = model if mean is None else node.put(model, last, mean)
            verb = node.all_reduce(node.take(model, fragment), range(node.num_nodes), round_num)
            state.model, state.pending = (model,), (fragment, node.begin(verb))
