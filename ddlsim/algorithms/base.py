"""The contract of an algorithm: every hook there is, its default, and when the engine calls it.

An algorithm is a frozen dataclass whose fields are the YAML keys. It has no state of its own: what a node remembers is
the object that `start` returns, one per node. `round` is a generator: it yields the node's verbs, its methods that
take simulated time (`losses = yield node.losses(...)`), and calls the others.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ddlsim.foundation.part import Part

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from ddlsim.algorithms.similarity.measures import Similarity
    from ddlsim.learning.job_types import Model
    from ddlsim.network.messages.message import Message
    from ddlsim.node.candidates import EvaluationCandidates
    from ddlsim.node.checks import Deferred
    from ddlsim.node.node import Node, Steps
    from ddlsim.node.ports import Compute

GraphKind = Literal["any", "static", "dynamic"]


class Algorithm(Part, ABC):
    """What every entry of ALGORITHMS is."""

    # -- what it needs and does, as constants ----------------------------------------------------------------------

    needs_core: ClassVar[bool] = False
    """Whether it keeps core and head apart; models that are nothing but a head are refused then."""

    own_loss: ClassVar[bool] = False
    """Whether it trains with a loss of its own (`objective` of node.train), which has no gradient per sample."""

    has_server: ClassVar[bool] = False
    """Whether there is one more node, the last, that all others are linked with (`node.is_server`). Who joins or
    returns then does the round after that of the others; a node whose round the server has closed without it ends that
    round, then joins the server's current one (see `joins_anew`). A pull is answered with what is of its round, in
    either mode."""

    waits: ClassVar[bool] = True
    """Whether a round of a synchronous run waits for messages of other nodes. Where none does, a node that returns goes
    on where it left, in either mode."""

    exchanges: ClassVar[Literal["models", "vectors", "nothing"]] = "models"
    """What travels: models or large parts of them, a few vectors, or nothing."""

    averages: ClassVar[bool] = True
    """Whether models or vectors of several nodes are averaged, by `node.combine`, `average`, `mix` or `moved`."""

    steps_apart: ClassVar[bool] = False
    """Whether each local step is a training of its own (`after_step` of `node.train`): then nothing that spans several
    steps can be had, `training.proximal` and `training.accumulate`."""

    joins_anew: ClassVar[bool] = False
    """Whether a node does `join` after every absence and every round that the server closed without it, and not only
    where it begins afresh."""

    one_start: ClassVar[bool] = False
    """Whether all nodes start from one model by definition (a server's), whatever the scenario's `init` is."""

    expects_graph: ClassVar[GraphKind] = "any"
    """The graph that the method is defined for: one in all rounds, or a new one in each; `check` warns about others."""

    may_change: ClassVar[frozenset[str]] = frozenset()
    """Keys that `ddlsim resume --set` may change in a run under way: `round` reads them anew, and neither what a node
    remembers nor what `start` made of it has their shape or their meaning."""

    @property
    def heeds_topology(self) -> bool:
        """Whether nodes exchange with their peers in the topology (`node.peers`), and not with a server, with whom they
        choose among all, or with nobody. Default: where there is no server.
        """
        return not self.has_server

    @property
    def sums_only(self) -> bool:
        """Whether all that is done with the messages of a round is a sum over the nodes that are waited for, weighted
        by who they are and what they send: then secure aggregation can hide its terms. Default: it is not.
        """
        return False

    # -- a node's life ---------------------------------------------------------------------------------------------

    @abstractmethod
    def start(self, node: "Node") -> Any:
        """A node's state before its first round, or after it has lost its state; takes no simulated time."""

    def join(self, node: "Node", state: Any, round_num: int) -> "Steps":
        """What a node does before its next round that joins a run under way, or comes back without its state (or with
        it, see `joins_anew`). Default: nothing.
        """
        return
        yield

    @abstractmethod
    def round(self, node: "Node", state: Any, round_num: int) -> "Steps":
        """One round. A node that leaves abandons the round where it is; the state stays as it is then."""

    def answer(self, node: "Node", state: Any, offer: "Message") -> Mapping[str, Any]:
        """Payload for a peer whose offer (`node.exchange`) arrives at this node; takes no simulated time, and may come
        while the node trains. Default: nothing.
        """
        return {}

    def finish(self, node: "Node", state: Any, round_num: int) -> "Steps":
        """A last exchange after the last round. Default: there is none."""
        return
        yield

    def stopped(self, node: "Node", state: Any, best: "Model | None", round_num: int) -> None:
        """Early stopping has ended the node's rounds with this one. Default: nothing.

        Args:
            node, state: as of `round`.
            best: the model of lowest validation loss; None if no loss was a number.
            round_num: the node's last round.
        """

    @property
    def has_final_exchange(self) -> bool:
        """Whether there is a last exchange, evaluated in the last round's place. Default: if `finish` is defined."""
        return type(self).finish is not Algorithm.finish

    # -- evaluation ------------------------------------------------------------------------------------------------

    @abstractmethod
    def serving(self, node: "Node", state: Any) -> "EvaluationCandidates | None":
        """The models that the node would answer queries with; None: it is a server."""

    @property
    def labels(self) -> tuple[str, ...]:
        """What every report must say about the options chosen. Default: nothing."""
        return ()

    @property
    def as_published(self) -> tuple[str, ...]:
        """Options that follow a paper's code where the algorithm's definition has something else. Default: none."""
        return ()

    # -- checking a scenario, before anything runs -----------------------------------------------------------------

    def check(self, clusters: Sequence[int]) -> None:
        """Raises ScenarioError, with the key, where the options do not fit clusters of these sizes."""

    @property
    def needs_validation(self) -> tuple[str, ...]:
        """Keys that are set so that they need validation samples. Default: none."""
        return ()

    # -- parts of the model ----------------------------------------------------------------------------------------

    def extra_parts(self, latent: int, num_classes: int) -> "Mapping[str, nn.Module]":
        """Modules trained beside core and head, by name. Default: none.

        Args:
            latent: features that the core makes.
            num_classes: C.
        """
        return {}

    @property
    def has_extra_parts(self) -> bool:
        """Whether the algorithm defines `extra_parts`."""
        return type(self).extra_parts is not Algorithm.extra_parts

    # -- algorithms that compare models ----------------------------------------------------------------------------

    def similarity_measure(self, node: "Node | None") -> "Similarity | None":
        """How models are compared (on this node, or in general). Default: they are not."""
        return None

    @property
    def compares_models(self) -> bool:
        """Whether it has a similarity that `records.true_similarities` can show."""
        return self.similarity_measure(None) is not None

    def seen(self, state: Any) -> Any:
        """What of a node's state is compared by `similarities_of`. Default: nothing."""
        return None

    def similarities_of(
        self, node: "Node", own: Any, others: Mapping[int, Any], compute: "Compute", rng: "np.random.Generator"
    ) -> "Deferred":
        """Deferred mapping from node id to similarity, for monitoring (records.true_similarities).

        Only called where `similarity_measure` gives a measure.
        """
        raise NotImplementedError(f"{type(self).__name__} compares no models")


@dataclass(frozen=True, kw_only=True)
class WithFinalAllReduce(Algorithm):
    """What algorithms have in common that the FACADE paper's code ends with an exchange of all nodes with all others.

    In `mode: async` it waits for no node, and merges the final models that have arrived.

    Args:
        final_all_reduce: whether all nodes exchange models with all others after the last round, as the FACADE paper's
            code does; its bytes are in no curve and no cost of a target.
    """

    why: ClassVar[Mapping[str, str]] = {
        "final_all_reduce": "no algorithm is defined with it; it hides what gossip has reached"
    }

    final_all_reduce: bool = False

    @property
    def has_final_exchange(self) -> bool:
        return self.final_all_reduce

    @property
    def as_published(self) -> tuple[str, ...]:
        return ("final_all_reduce",) if self.final_all_reduce else ()

    def final_contents(self, state: Any) -> dict[str, Any]:
        """What a node sends to all others. Default: its model."""
        return {"model": state.model}

    def merge_final(self, node: "Node", state: Any, inbox: "Sequence[Message]") -> None:
        """Take over what the others have sent. Default: the average of all models."""
        state.model = node.average(state.model, {m.src: m.payload["model"] for m in inbox if "model" in m.payload})

    def finish(self, node: "Node", state: Any, round_num: int) -> "Steps":
        node.send(node.others(), round_num, **self.final_contents(state))
        inbox = yield node.receive(round_num, node.others())
        self.merge_final(node, state, inbox)
