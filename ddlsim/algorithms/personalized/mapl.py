"""MAPL: peers of any architecture share class prototypes, mixed by a collaboration graph that each peer learns.

Source: Mukherjee, "Model agnostic peer-to-peer learning", master's thesis, TU Delft, 2023, Algorithms 1 and 2, and the
published code. `variant` chooses where the two differ, both for the losses (see learning/losses.py) and for the graph:

- similarity: the thesis uses the mean cosine of classifier rows (equation 6), the code divides it by the largest of the
  other nodes' and afterwards sets the node's own to 1;
- degree: the thesis adds log(degree) to the minimized sum, but explains that it keeps nodes from being isolated, which
  needs minus log(degree), as here; in the code the degree is a constant, so the term has no effect;
- `graph_step`: a plain gradient step (Algorithm 2), or the first step of a fresh Adam (code), which moves every weight
  by the rate, whatever the size of its gradient.

A node asks its candidates for their classifiers, and candidates of positive weight for their prototypes. In the code
candidates are all nodes in all rounds; in the thesis the neighbors of positive weight (`candidates`). A node's first
answer contains its number of samples, for the confidence. Models are tested after local training, before mixing, as in
the code. MAPL+ (`share_backbone`) mixes the cores' trained values as well, BatchNorm statistics stay; all nodes then
need one architecture. MAPL+ too is tested with the core that the node has trained, which matches its BatchNorm
statistics and head; the thesis does not specify this.

The published code normalizes CIFAR-10 by ImageNet's mean and deviation, and Fashion-MNIST by MNIST's; images here are
in -1..1. It replaces GoogLeNet's last layer after that network's own initialization (uniform, +-1/32); here that layer
is initialized like the rest (normal, deviation 0.01).

A peer that is offline, or whose answer is lost or too late, counts as dissimilar when the graph is learned; its weight
is added to the node's own when prototypes are mixed.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt

from ddlsim.algorithms.base import Algorithm
from ddlsim.foundation.units import CountOrZero, UnitCount
from ddlsim.learning.training_inputs import LocalStep, Objective
from ddlsim.node.candidates import EvaluationCandidates
from ddlsim.node.node import Message, Model, Node, Params, Steps, Verb

if TYPE_CHECKING:
    import torch
    from torch import nn


SMALLEST_WEIGHT = 1e-6
"""Smallest weight of an edge; also the resolution of records."""


@dataclass
class State:
    """A node's memory.

    Args:
        model: (core, head, projection, prototypes) that the next round starts from, mixed with peers' parts.
        trained: the same parts after its last training; tested.
        weights: its row of the graph.
        samples: number of samples of other nodes.
    """

    model: Model
    trained: Model
    weights: np.ndarray
    samples: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MAPL(Algorithm):
    """Model agnostic peer-to-peer learning with a learned collaboration graph.

    Args:
        variant: `code` or `thesis`, where they differ (see the module's docstring).
        temperature: of the contrastive, prototype and uniformity losses; published: 100.
        contrastive: weight of the supervised contrastive loss.
        prototype: weight of the loss that pulls projections to prototypes.
        uniformity: weight of the loss that keeps prototypes apart.
        projection_units: hidden units of the projection.
        warmup_rounds: rounds before the graph is learned.
        graph_terms: terms that raise a peer's weight: similarity, confidence (share of samples), or both.
        graph_step: adam or gradient.
        graph_rate: step size of the graph step.
        mu1: weight of similarity and confidence.
        mu2: weight of the regularizer.
        beta: weight of the row's norm in it; a larger value gives more peers.
        candidates: nodes that a node compares itself with: all, or nodes of positive weight.
        share_backbone: MAPL+: mix the cores as well.
    """

    may_change: ClassVar[frozenset[str]] = frozenset(
        {"temperature", "contrastive", "prototype", "uniformity", "graph_terms", "graph_rate", "mu1", "mu2", "beta"}
    )
    exchanges: ClassVar[Literal["models", "vectors", "nothing"]] = "vectors"
    needs_core: ClassVar[bool] = True
    own_loss: ClassVar[bool] = True
    needs_classes: ClassVar[bool] = True
    uses_topology: ClassVar[bool] = False
    variant: Literal["code", "thesis"] = "code"
    temperature: Annotated[float, Gt(0)] = 100.0
    contrastive: Annotated[float, Ge(0)] = 1.0
    prototype: Annotated[float, Ge(0)] = 1.0
    uniformity: Annotated[float, Ge(0)] = 1.0
    projection_units: UnitCount = 4096
    warmup_rounds: CountOrZero = 100
    graph_terms: Literal["both", "similarity", "confidence"] = "both"
    graph_step: Literal["adam", "gradient"] = "adam"
    graph_rate: Annotated[float, Gt(0)] = 0.1
    mu1: Annotated[float, Ge(0)] = 0.5
    mu2: Annotated[float, Ge(0)] = 0.1
    beta: Annotated[float, Ge(0)] = 0.5
    candidates: Literal["all", "neighbors"] = "all"
    share_backbone: bool = False

    def unused_keys(self, rounds: int) -> Iterator[tuple[str, str]]:
        if not (self.contrastive or self.prototype or self.uniformity):
            yield "temperature", "contrastive, prototype and uniformity are 0"
        if not self.mu2:
            yield "beta", "mu2 is 0"

    @property
    def as_published(self) -> tuple[str, ...]:
        return ("variant code",) if self.variant == "code" else ()

    def extra_parts(self, latent: int, num_classes: int) -> "dict[str, nn.Module]":
        """Modules trained in addition to core and head: the projection, and the prototypes in its space."""
        from ddlsim.learning.model_sizes import Prototypes, projection_head

        return {
            "projection": projection_head(latent, self.projection_units),
            "prototypes": Prototypes(num_classes, latent),
        }

    def start(self, node: Node) -> State:
        (model,) = node.init_models()
        return State(model, model, np.full(node.num_nodes, 1 / node.num_nodes), {node.id: node.num_samples})

    def round(self, node: Node, state: State, round_num: int) -> Steps:
        state.trained = yield node.train(state.model, objective=Objective(self.local_loss, views=2))
        core, head, projection, prototypes = state.trained
        shared = {"prototypes": prototypes}
        if self.share_backbone:
            shared["core"] = node.trained_values(core)
        node.publish(round_num, stage=0, **shared, classifier=node.classifier(head), samples=node.num_samples)
        if round_num >= self.warmup_rounds:
            candidates = node.others() if self.candidates == "all" else _neighbors(node, state.weights)
            received = yield from self._pull(node, state, candidates, ("classifier",), round_num)
            others = {peer: payload["classifier"] for peer, payload in received.items()}
            state.weights = self._learn_graph(node, state, others)
            node.record("collaboration", [round(float(weight), 6) for weight in state.weights], round_num)
        received = yield from self._pull(node, state, _neighbors(node, state.weights), tuple(shared), round_num)
        prototypes = self._mix(node, state, prototypes, {peer: own["prototypes"] for peer, own in received.items()})
        if self.share_backbone:
            mixed = self._mix(node, state, shared["core"], {peer: own["core"] for peer, own in received.items()})
            core = node.with_trained_values(core, mixed)
        state.model = core, head, projection, prototypes

    def serving(self, node: Node, state: State) -> EvaluationCandidates:
        return EvaluationCandidates([state.trained])

    def local_loss(self, step: LocalStep) -> "torch.Tensor":
        """Loss of algorithm 1, lines 3 to 8: cross-entropy, contrast among samples and to prototypes, uniformity of
        prototypes.
        """
        from ddlsim.learning import losses

        features = step.module.core(step.images)
        projections, prototypes = step.module.projection(features), step.module.prototypes.vectors
        terms = step.task_loss(step.module.head(features), step.labels)
        if self.contrastive:
            found = losses.supervised_contrastive(projections, step.labels, self.temperature, self.variant)
            terms = terms + self.contrastive * found
        if self.prototype:
            found = losses.prototype_contrast(projections, step.labels, prototypes, self.temperature, self.variant)
            terms = terms + self.prototype * found
        if self.uniformity:
            terms = terms + self.uniformity * losses.prototype_uniformity(prototypes, self.temperature, self.variant)
        return terms

    # -- the collaboration graph -----------------------------------------------------------------------------------

    def _pull(
        self, node: Node, state: State, peers: Iterable[int], keys: tuple[str, ...], round_num: int
    ) -> Generator[Verb, Any, dict[int, dict[str, Any]]]:
        """Return the peers' values of these keys, by node id. Also ask peers for their number of samples if it is
        unknown.
        """
        groups: dict[tuple[str, ...], list[int]] = {}
        for peer in peers:
            groups.setdefault(keys if peer in state.samples else (*keys, "samples"), []).append(peer)
        inbox: list[Message] = []
        for requested, group in groups.items():
            inbox += yield node.pull(group, round_num, keys=requested)
        received = {m.src: m.payload for m in inbox if keys[0] in m.payload}
        state.samples |= {peer: payload["samples"] for peer, payload in received.items() if "samples" in payload}
        return received

    def _learn_graph(self, node: Node, state: State, classifiers: Mapping[int, Params]) -> np.ndarray:
        """Learn the graph by algorithm 2, lines 1 to 8. Peers that did not answer count as dissimilar; peers with an
        unknown number of samples count with the node's own number.
        """
        from ddlsim import kernels

        cosines = node.class_cosines(node.classifier(state.trained[1]), classifiers)
        similarity = np.zeros(node.num_nodes)
        # The cosine of a classifier that has diverged is NaN.
        cosines = {peer: 0.0 if np.isnan(cosine) else cosine for peer, cosine in cosines.items()}
        similarity[list(cosines)] = list(cosines.values())
        largest = max(cosines.values(), default=0.0)
        if self.variant == "code" and largest:  # 0: all others have diverged
            similarity /= largest
        similarity[node.id] = 1.0
        samples = np.array([state.samples.get(peer, node.num_samples) for peer in range(node.num_nodes)], float)
        worth = np.ones(node.num_nodes)
        if self.graph_terms != "confidence":
            worth = worth * similarity
        if self.graph_terms != "similarity":
            worth = worth * samples / samples.sum()
        weights = self._graph_step(state.weights, worth, node.id)
        if self.candidates == "neighbors":
            weights[state.weights == 0] = -np.inf  # a pruned edge does not return
        return _without_residues(np.asarray(kernels.project_simplex(weights)))  # line 8

    def _graph_step(self, weights: np.ndarray, worth: np.ndarray, own: int) -> np.ndarray:
        """Take one step down mu2 (beta |w| - log(degree)) - mu1 <worth, w> (equations 7 and 8)."""
        gradient = self.mu2 * self.beta * weights / np.linalg.norm(weights) - self.mu1 * worth
        if self.variant == "thesis":
            others = np.arange(len(weights)) != own
            gradient = gradient - self.mu2 * others / (weights[others].sum() + 1e-6)
        if self.graph_step == "adam":
            gradient = gradient / (np.abs(gradient) + 1e-8)
        return weights - self.graph_rate * gradient

    def _mix(self, node: Node, state: State, own: Params, received: Mapping[int, Params]) -> Params:
        """Mix by algorithm 1, line 15; weights of peers that did not answer are added to the node's own."""
        weights = {peer: float(state.weights[peer]) for peer in received}
        everything = {**received, node.id: own}
        weights[node.id] = 1 - sum(weights.values())
        return node.aggregate(everything, weights)


def _neighbors(node: Node, weights: np.ndarray) -> tuple[int, ...]:
    """The other nodes of positive weight, ascending."""
    return tuple(int(peer) for peer in np.flatnonzero(weights) if peer != node.id)


def _without_residues(weights: np.ndarray) -> np.ndarray:
    """Set weights that are above 0 only by rounding or Adam's epsilon to 0; scale the others to sum 1.

    If a step would end at exactly 0, rounding leaves 1e-17 to 1e-7, more in each round, and each such weight would cost
    a message.
    """
    remaining = np.where(weights < SMALLEST_WEIGHT, 0.0, weights)
    return remaining / remaining.sum()
