"""DAC: a node draws its peers by softmax over how similar their models are to its own.

Sources: Listo Zec, Ekblom, Willbo, Mogren, Girdzijauskas, "Decentralized adaptive clustering of deep nets is beneficial
for client collaboration", FL-IJCAI 2022, and their code; Hagander, Listo Zec et al., "On the effects of similarity
metrics in decentralized deep learning under distributional shift", and the code that it shares with Hagander's thesis
(FedSim, min-max scaling, three more similarities). Each round a node pulls the models of `sampled_peers` peers, drawn
by softmax(tau * similarity), measures their similarity to its own model, and merges; the peers' knowledge of other
nodes serves as an estimate (algorithms/similarity.py). The texts and the codes differ, and `variant` names
four combinations, each of which sets every key that is null:

                    listo_zec_2022   hagander_2024      text               facade
    schedule        immediate        merge-then-train   merge-then-train   train-then-merge
    order           turns            turns              at_once            at_once
    two_hop         max, chained     min                max                none
    unknown_peers   zero_similarity  floor              zero_similarity    zero_similarity
    merge           fedavg           fedavg             fedavg             uniform
    fedsim_weights  -                priors             similarities       -
    tau_schedule    constant         constant           constant           sigmoid
    remote_scoring  false            false              true               false
    loss_batches    all              all                all                local_steps
    sampled_peers   5                5                  5                  4
    stopped_serves  best             best               best               best
    stopped_compared served          last               served             served

The authors' code has the rule `max` of listo_zec_2022 since August 2023. In its versions of 2022, with which the
paper's numbers were most likely made, the estimate of the peer drawn last counts: `two_hop: last` does the same.

`facade` has the settings of DAC in the FACADE paper (Biswas et al., SaTML 2025). Its published runs re-seed the sampler
identically in every round, so a node meets only a handful of peers; `frozen_sampling: true` does the same.

Only hagander_2024 was published with early stopping. There a stopped peer's best model is merged, and scored by the
inverse loss, while the cosines and the L2 distance are taken to its last one; with `stopped_compared: last` the peer
sends both, so that its answers are one model larger.

Under `text` k* of the two-hop estimate is the most similar of the peers sampled in this round, as in the codes; the
text allows the most similar of all ever sampled. Probabilities are float64 here; FACADE's code has float32, in which a
large tau underflows to 0 and the missing peers are drawn uniformly.

Under `text` a node sends its model to the peers, which score it on their data (inverse_loss only), so models travel
both ways; both codes score the pulled model on the node's own data instead. FedSim's weights are, in the code
(`priors`), the probabilities with which the peers were drawn, and in the paper (`similarities`) the similarities just
measured.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt

from ddlsim.aggregation.base import MergeName
from ddlsim.algorithms import gossip_pull
from ddlsim.algorithms import similarity as compared
from ddlsim.algorithms.gossip_pull import Measuring, Received, SimilarityPull, State, Weighing
from ddlsim.algorithms.similarity import Knowledge, Scaling, TwoHop, UnknownPeers
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.rng import stream
from ddlsim.foundation.units import Count
from ddlsim.node.node import Node, Params
from ddlsim.node.parameters import Deferred

Variant = Literal["listo_zec_2022", "hagander_2024", "text", "facade"]

LISTO_ZEC_2022: dict[str, Any] = {
    "schedule": "immediate",
    "order": "turns",
    "two_hop": "max",
    "chained_estimates": True,
    "unknown_peers": "zero_similarity",
    "merge": "fedavg",
    "fedsim_weights": "priors",
    "tau_schedule": "constant",
    "remote_scoring": False,
    "stopped_serves": "best",
    "stopped_compared": "served",
    "loss_batches": "all",
    "sampled_peers": 5,
}
HAGANDER_2024 = LISTO_ZEC_2022 | {
    "schedule": "merge-then-train",
    "two_hop": "min",
    "chained_estimates": False,
    "unknown_peers": "floor",
    "stopped_compared": "last",
}
TEXT = LISTO_ZEC_2022 | {
    "schedule": "merge-then-train",
    "order": "at_once",
    "chained_estimates": False,
    "fedsim_weights": "similarities",
    "remote_scoring": True,
}
FACADE = LISTO_ZEC_2022 | {
    "schedule": "train-then-merge",
    "order": "at_once",
    "two_hop": "none",
    "chained_estimates": False,
    "merge": "uniform",
    "tau_schedule": "sigmoid",
    "loss_batches": "local_steps",
    "sampled_peers": 4,
}
PRESETS = {"listo_zec_2022": LISTO_ZEC_2022, "hagander_2024": HAGANDER_2024, "text": TEXT, "facade": FACADE}


@dataclass
class Memory:
    """A node's knowledge of the other nodes, the probabilities of its last draw, and the drawn peers in order."""

    knowledge: Deferred
    drawn_by: dict[int, float]
    drawn: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class DAC(SimilarityPull):
    """Decentralized adaptive clustering: draw peers by the similarity of their models.

    Args:
        variant: published form of DAC; sets every key that is null, see the module's docstring.
        tau: sharpness of the softmax; with `sigmoid` it rises from 1 to tau + 1.
        tau_schedule: `constant`, or `sigmoid` (DAC-var).
        tau_growth: growth per round, with `sigmoid`.
        scaling: `min_max` spreads similarities over 0..1 before the softmax.
        two_hop: source of the estimate of a third node: the most similar peer (`max`), the least similar (`min`), the
            peer drawn last (`last`), or none (`none`).
        chained_estimates: whether estimates are passed on, in addition to measured similarities.
        unknown_peers: `zero_similarity` (as likely as at similarity 0) or `floor` (as likely as `floor` sets).
        floor: probability added to every peer before normalizing, with `floor`.
        fedsim_weights: with merge fedsim, `priors` or `similarities`.
        remote_scoring: whether peers score the node's model on their data, instead of the node scoring their models on
            its data.
        stopped_compared: model of a stopped peer that the cosines and the L2 distance use: the one it serves (`served`)
            or its `last` one; with alpha above 0 always the last, the result of the last update.
        frozen_sampling: whether every round draws with the same random numbers, as in FACADE's published runs.
    """

    may_change: ClassVar[frozenset[str]] = SimilarityPull.may_change | {"tau", "tau_growth", "floor"}

    variant: Variant = "listo_zec_2022"
    tau: Annotated[float, Ge(0)] = 30.0
    tau_growth: Annotated[float, Gt(0)] = 0.2
    scaling: Scaling = "none"
    floor: Annotated[float, Gt(0)] = 1e-6
    frozen_sampling: bool = False
    # __post_init__ replaces null by the variant's value, so the base classes never read None.
    sampled_peers: Count | None = None  # type: ignore[assignment]
    merge: MergeName | None = None  # type: ignore[assignment]
    schedule: gossip_pull.Schedule | None = None  # type: ignore[assignment]
    order: gossip_pull.Order | None = None  # type: ignore[assignment]
    tau_schedule: Literal["constant", "sigmoid"] | None = None
    two_hop: TwoHop | None = None
    chained_estimates: bool | None = None
    unknown_peers: UnknownPeers | None = None
    fedsim_weights: Literal["priors", "similarities"] | None = None
    remote_scoring: bool | None = None
    loss_batches: gossip_pull.LossBatches | None = None  # type: ignore[assignment]
    stopped_serves: gossip_pull.StoppedServes | None = None  # type: ignore[assignment]
    stopped_compared: Literal["served", "last"] | None = None

    def __post_init__(self) -> None:
        preset = PRESETS[self.variant]
        if self.similarity != "inverse_loss":
            preset = preset | {"remote_scoring": False}  # nothing else is measured on data
        for key, value in preset.items():
            if getattr(self, key) is None:
                object.__setattr__(self, key, value)
        super().__post_init__()
        if self.remote_scoring and self.similarity != "inverse_loss":
            raise ScenarioError(
                f"remote_scoring: peers can score a model on their data by inverse_loss only, not by {self.similarity}."
            )

    def unused_keys(self, rounds: int) -> Iterator[tuple[str, str]]:
        if self.tau_schedule != "sigmoid":
            yield "tau_growth", f"tau_schedule is {self.tau_schedule}"
        if self.merge != "fedsim":
            yield "fedsim_weights", f"merge is {self.merge}"
        if self.two_hop == "none":
            yield "chained_estimates", "two_hop is none"
        yield from super().unused_keys(rounds)
        if self.remote_scoring:
            yield "loss_batches", "remote_scoring: peers score a model on all their samples"

    @property
    def as_published(self) -> tuple[str, ...]:
        found = [] if self.variant == "text" else [f"variant {self.variant}"]
        return (*found, *(["frozen_sampling"] if self.frozen_sampling else []))

    @property
    def labels(self) -> tuple[str, ...]:
        """Remarks on these options for every report."""
        if self.frozen_sampling:
            return ("frozen_sampling: peers are drawn with the same random numbers in every round, as published",)
        return ()

    @property
    def loss_offset(self) -> float:
        return 1e-6 if self.variant == "hagander_2024" else 0.0

    def remember(self, node: Node, state: State) -> Memory:
        nothing = Knowledge.nothing(node.num_nodes)
        return Memory(Deferred(lambda: nothing), {})

    def compared_when_stopped(self, state: State) -> Params | None:
        is_last = self.stopped_compared == "last" and self.similarity != "inverse_loss"
        return state.model if is_last else super().compared_when_stopped(state)

    def extras(self, node: Node, state: State) -> dict[str, Any]:
        found = super().extras(node, state)
        if self.two_hop != "none":
            found["table"] = Deferred(state.memory.knowledge, compared.table_bytes(node.num_nodes))
        return found

    def choose(self, node: Node, state: State, round_num: int) -> Sequence[int]:
        assert self.unknown_peers is not None and self.sampled_peers is not None
        others = node.others()
        knowledge: Knowledge = state.memory.knowledge()
        scores = knowledge.scores[list(others)]
        tau = self.tau
        if self.tau_schedule == "sigmoid":  # as it was when the similarities were measured
            tau = compared.sigmoid_tau(max(0, round_num - 1), self.tau, self.tau_growth)
        weights = compared.probabilities(scores, tau, self.unknown_peers, self.scaling, self.floor)
        state.memory.drawn_by = dict(zip(others, weights.tolist(), strict=True))
        rng = stream(node.seed, "sampled peers", node.id) if self.frozen_sampling else node.rng("sampled peers")
        state.memory.drawn = compared.draw_in_turn(rng, others, self.sampled_peers, weights)
        return sorted(state.memory.drawn)

    def weigh(self, node: Node, state: State, received: Received, round_num: int) -> Weighing:
        measured = Deferred(dict)
        if received:
            measured = yield from self._measure(node, state, received, round_num)
            self._learn(node, state, received, measured)
        if self.merge != "fedsim":
            return self.merge_weights(node, received)
        scores = measured() if self.fedsim_weights == "similarities" else state.memory.drawn_by
        scores = {peer: scores[peer] for peer in received if peer in scores}
        return self.merge_weights(node, {peer: received[peer] for peer in scores}, scores)

    def _measure(self, node: Node, state: State, received: Received, round_num: int) -> Measuring:
        """Return a deferred mapping from peer to similarity."""
        if not self.remote_scoring:
            return (yield from self.measure(node, state, received, round_num))
        answers = yield node.score_remotely(list(received), (state.model,), round_num)
        similarity = self.similarity_measure(node)
        scores = Deferred(lambda: {answer.src: similarity.of_loss(answer.payload["loss"]()) for answer in answers})
        return self._record_similarities(node, scores, round_num)

    def _learn(self, node: Node, state: State, received: Received, measured: Deferred) -> None:
        before, own, drawn = state.memory.knowledge, node.id, state.memory.drawn
        tables = {peer: payload["table"] for peer, payload in received.items() if "table" in payload}

        def after() -> Knowledge:
            scores = measured()
            late = [peer for peer in scores if peer not in drawn]  # drawn in earlier rounds
            scores = {peer: scores[peer] for peer in (*late, *drawn) if peer in scores}
            known = {peer: table() for peer, table in tables.items() if peer in scores}
            return before().learn(own, scores, known, self.two_hop, self.chained_estimates)

        state.memory.knowledge = Deferred(after)
