"""Base class of algorithms that pull peers' models: the round, its order, the merge. Not an algorithm itself.

The published codes (Listo Zec et al. 2022; Hagander 2024) are loops: the clients of a round run one after the other in
a random order, and each sees the results of earlier ones. Here nodes work at the same time: `order: turns` gives every
round a random order that all nodes know, and a node asks each peer for the model that a loop in that order would have
shown it, from before or after the peer's turn. It waits only for drawn peers that have an earlier turn, so the run ends
with the same models and independent turns still overlap.

A node's first training comes before its first exchange: before round 0, or before the round in which it joins a running
simulation or restarts after it has lost its state. So no peer merges an untrained model.

A peer that is drawn while it is offline, or whose answer is lost or too late, is neither compared nor merged, and no
other is drawn in its place.

A node that early stopping has ended continues to answer pulls, in the rounds after the one in which it stopped. By the
text of Hagander's thesis (chapter 3) it serves its best model by validation loss; in the code that produced the
thesis's numbers only DAC's peers get the best model, and peers of all other algorithms get the last. `stopped_serves`
chooses. The node's memory keeps the last model, which is monitored (true similarities, accuracies of merges) and, under
evaluation.evaluated_model last, tested.

cosine_gradients with alpha above 0 compares the changes by training. A peer whose turn was earlier in the round answers
with the model that it has merged since, so its last update contains the merge; no published run has such an alpha.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le

from ddlsim.aggregation.base import MergeName, merge_weights
from ddlsim.algorithms.rounds import ModelState, SharedModel
from ddlsim.algorithms.similarity import ComparedModel, Similarity, SimilarityName
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.units import Count, CountOrZero
from ddlsim.node.node import Model, Node, Params, Steps, Verb
from ddlsim.node.parameters import Deferred

Schedule = Literal["immediate", "merge-then-train", "train-then-merge"]
Order = Literal["turns", "at_once", "newest"]
LossBatches = Literal["all", "local_steps"]
StoppedServes = Literal["best", "last"]

Received = Mapping[int, dict]
"""Node id -> payload of its answer."""

Measuring = Generator["Verb", Any, "Deferred"]
"""Verbs that measure similarities; the outcome maps peers to them."""

Weights = Mapping[int, float]
"""Node id -> weight of its model in a merge, including the merging node."""

Weighing = Generator["Verb", Any, Weights]
"""Verbs that find the weights of a merge."""


@dataclass
class State(ModelState):
    """A node's memory.

    Args:
        model: current model.
        start: first parameters of that model; None if the algorithm does not use them.
        last: model at the start of the last training; None likewise.
        memory: knowledge of the other nodes.
        trained: whether it has ever trained.
    """

    start: Params | None = None
    last: Params | None = None
    memory: Any = None
    trained: bool = False


@dataclass(frozen=True, kw_only=True)
class GossipPull(SharedModel):
    """Round in which a node pulls and merges peers' models.

    Args:
        sampled_peers: peers pulled from per round, m.
        merge: weight of a model: `fedavg` (its node's training samples), `fedsim` (its score, if the algorithm gives
            scores) or `uniform`.
        schedule: `immediate` (a turn is exchange and training, after a first training before a node's first round),
            `merge-then-train` (all exchange, then all train, likewise after a first training) or `train-then-merge`.
        order: model that a peer answers with: `turns` (from before or after its turn, as a loop over the nodes in the
            round's random order would see), `at_once` (from the start of the exchange) or `newest`.
        stopped_serves: model that a node serves after early stopping: its `best` model by validation loss or its `last`
            one. If last updates are compared (alpha above 0), peers get the last model as well.
        record_merges: whether each merge's validation accuracy before and after is recorded; for a stopped node one
            more record gives the accuracy of the model that it holds from then on.
        record_similarities: nodes whose measured similarities are recorded.
    """

    state_type: ClassVar[type[ModelState]] = State
    may_change: ClassVar[frozenset[str]] = frozenset({"sampled_peers", "merge", "record_merges"})
    uses_topology: ClassVar[bool] = False
    sampled_peers: Count = 5
    merge: MergeName = "fedavg"
    schedule: Schedule = "merge-then-train"
    order: Order = "turns"
    stopped_serves: StoppedServes = "last"
    record_merges: bool = False
    record_similarities: tuple[CountOrZero, ...] = ()

    # -- for subclasses -------------------------------------------------------------------------------------------

    def check(self, clusters: Sequence[int]) -> None:
        wrong = [node for node in self.record_similarities if node >= sum(clusters)]
        if wrong:
            raise ScenarioError(
                f"algorithm.record_similarities: expected node ids from 0 to {sum(clusters) - 1}, got {wrong[0]}"
            )

    @property
    def needs_validation(self) -> tuple[str, ...]:
        return ("record_merges",) if self.record_merges else ()

    def remember(self, node: Node, state: State) -> Any:
        """Return the node's memory before its first round."""
        return None

    def choose(self, node: Node, state: State, round_num: int) -> Sequence[int]:
        """Return the peers to pull from."""
        raise NotImplementedError

    def compared_when_stopped(self, state: State) -> Params | None:
        """Return the model of a stopped node that peers compare with theirs; None: the one that it serves. Default: the
        result of its last update, if last updates are compared.
        """
        return None if state.last is None else state.model

    def extras(self, node: Node, state: State) -> dict[str, Any]:
        """Return the payload sent in addition to the model."""
        return {} if state.last is None else {"last": state.last}

    def weigh(self, node: Node, state: State, received: Received, round_num: int) -> Weighing:
        """Return the weight of each received model and of the node's own; models without a weight are not merged."""
        return self.merge_weights(node, received)
        yield

    # -- the round -------------------------------------------------------------------------------------------------

    def start(self, node: Node) -> State:
        state: State = super().start(node)
        similarity = self.similarity_measure(node)
        if similarity is not None and similarity.needs_common_start:
            state.start = state.model
        if similarity is not None and similarity.needs_last:
            state.last = state.model
        state.memory = self.remember(node, state)
        return state

    def round(self, node: Node, state: State, round_num: int) -> Steps:
        if self.schedule == "train-then-merge" or not state.trained:
            yield from self._train(node, state)
        self._offer(node, state, round_num, 0)
        yield from self._exchange(node, state, round_num)
        if self.schedule == "immediate":
            yield from self._train(node, state)
        if self.order == "turns":
            self._offer(node, state, round_num, 1)
        if self.schedule == "merge-then-train":
            yield from self._train(node, state)

    def seen(self, state: State) -> ComparedModel:
        return ComparedModel(state.model, state.last, state.start)

    def stopped(self, node: Node, state: State, best: Model | None, round_num: int) -> None:
        """From the next round on, answer with the model that the stopped node serves."""
        after = round_num + 1
        served, compared = state.model, self.compared_when_stopped(state)
        if self.stopped_serves == "best" and best is not None:
            (served,) = best
        extra = {} if compared is None or compared is served else {"compared": compared}
        self._offer(node, replace(state, model=served), after, 0, **extra)
        if self.record_merges and after < node.rounds:
            for name in ("before_merge", "after_merge"):
                node.measure(name, (state.model,), after)

    def _train(self, node: Node, state: State) -> Steps:
        start = state.model
        trainings = node.rounds + (self.schedule != "train-then-merge")
        (state.model,) = yield node.train((state.model,), steps_of_run=trainings * node.local_steps)
        state.trained = True
        if state.last is not None:
            state.last = start

    def _offer(self, node: Node, state: State, round_num: int, stage: int, **more: Params) -> None:
        payload = {"model": state.model, **self.extras(node, state), **more}
        if self.merge == "fedavg":
            payload["samples"] = node.num_samples
        node.publish(round_num, stage=None if self.order == "newest" else stage, **payload)

    def pull(self, node: Node, peers: Sequence[int], round_num: int) -> Generator[Verb, Any, dict[int, dict]]:
        """Return the payloads of these peers, by node id."""
        if not peers:
            return {}
        stages = node.turn_stages(peers, round_num) if self.order == "turns" else None
        inbox = yield node.pull(sorted(peers), round_num, stages=stages)
        return {message.src: message.payload for message in inbox}

    def measure(self, node: Node, state: State, received: Received, round_num: int) -> Measuring:
        """Return a deferred mapping from peer to the similarity of its model."""
        peers = {
            peer: ComparedModel(payload.get("compared", payload["model"]), payload.get("last"))
            for peer, payload in received.items()
        }
        similarity = self.similarity_measure(node)
        assert similarity is not None
        found = yield from similarity.measure(node, self.seen(state), peers)
        return self._record_similarities(node, found, round_num)

    def _record_similarities(self, node: Node, measured: Deferred, round_num: int) -> Deferred:
        """Return the same mapping; record it if the scenario asks for this node's similarities."""
        if node.id in self.record_similarities:
            for peer, similarity in sorted(measured().items()):
                node.record(f"similarity_{peer}", similarity, round_num)
        return measured

    def _exchange(self, node: Node, state: State, round_num: int) -> Steps:
        received = yield from self.pull(node, self.choose(node, state, round_num), round_num)
        weights = yield from self.weigh(node, state, received, round_num)
        self.merge_with(node, state, received, weights, round_num)
        for peer in received:
            node.record("pulled_from", peer, round_num)

    def merge_with(self, node: Node, state: State, received: Received, weights: Weights, round_num: int) -> None:
        """Replace the node's model by the weighted sum of models, in the order of node ids."""
        before = state.model
        models = {peer: payload["model"] for peer, payload in received.items()} | {node.id: state.model}
        if list(weights) != [node.id]:
            state.model = node.aggregate({peer: models[peer] for peer in weights}, weights)
        if self.record_merges:
            node.measure("before_merge", (before,), round_num)
            node.measure("after_merge", (state.model,), round_num)

    def merge_weights(self, node: Node, received: Received, scores: Mapping[int, float] | None = None) -> Weights:
        """Return the weights, by `merge`, of received models and the node's own."""
        samples = {peer: payload.get("samples", 1) for peer, payload in received.items()} | {node.id: node.num_samples}
        return merge_weights(self.merge, node.id, samples, scores)


@dataclass(frozen=True, kw_only=True)
class SimilarityPull(GossipPull):
    """Round in which a node pulls peers' models and compares them with its own.

    Args:
        similarity: measure that ranks peers: `inverse_loss`, `cosine_weights`, `cosine_gradients` or `inverse_l2`.
        alpha: with cosine_gradients, weight of the last local update; the rest is the update since the start.
        loss_batches: mini-batches that a model is scored on: `all` or `local_steps`.
    """

    may_change: ClassVar[frozenset[str]] = GossipPull.may_change | {"loss_batches"}
    similarity: SimilarityName = "inverse_loss"
    alpha: Annotated[float, Ge(0), Le(1)] = 0.0
    loss_batches: LossBatches = "all"

    @property
    def loss_offset(self) -> float:
        """Number added to a loss before it is inverted."""
        return 0.0

    def __post_init__(self) -> None:
        self.similarity_measure(None).check()

    def unused_keys(self, rounds: int) -> Iterator[tuple[str, str]]:
        if self.similarity != "inverse_loss":
            yield "loss_batches", f"similarity is {self.similarity}, which uses no samples"

    def similarity_measure(self, node: Node | None) -> Similarity:
        batches = node.local_steps if node is not None and self.loss_batches == "local_steps" else None
        return Similarity(self.similarity, self.alpha, batches, self.loss_offset)
