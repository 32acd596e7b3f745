"""The contract of an algorithm: every hook, its default, and when the engine calls it.

An algorithm is a frozen dataclass whose fields are the YAML keys. It has no state: `start` returns one object per node,
the node's memory. `round` is a generator: it yields the node's verbs, its methods that take simulated time (`losses =
yield node.losses(...)`), and calls the other methods directly.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from ddlsim.algorithms.similarity import Similarity
from ddlsim.foundation.registry import Part
from ddlsim.node.candidates import EvaluationCandidates
from ddlsim.node.node import Message, Model, Node, Steps
from ddlsim.node.parameters import Deferred
from ddlsim.node.ports import Compute

if TYPE_CHECKING:
    from torch import nn

GraphKind = Literal["any", "static", "dynamic"]
Graphs = Literal["undirected", "symmetric", "balanced", "directed", "pushes"]


class Algorithm(Part, ABC):
    """Base class of every entry of ALGORITHMS."""

    # -- requirements and properties, as constants ----------------------------------------------------------------

    needs_core: ClassVar[bool] = False
    """Whether it separates core and head; models without a core are then invalid."""

    own_loss: ClassVar[bool] = False
    """Whether it trains with a custom loss (`objective` of node.train), which has no gradient per sample."""

    has_server: ClassVar[bool] = False
    """Whether all nodes are linked with one more node, the last (`node.is_server`). A node that
    joins or returns then starts with the round after the current round of the other nodes; a node whose round the
    server has closed without it ends that round, then joins the server's current one (see `rejoins_after_absence`). A
    pull is answered with the publication of its round, in either mode.
    """

    waits: ClassVar[bool] = True
    """Whether a round of a synchronous run waits for messages of other nodes. If not, a node that returns
    continues where it stopped, in either mode, and a server has no rounds: it only answers (`answer`, or a publication
    in `start`).
    """

    collective: ClassVar[bool] = False
    """Whether the rounds of all nodes are joined by collectives (docs/collectives.md): nodes then do their rounds
    together in either mode, and attacks and compressions that need a receiver's copy are unavailable.
    """

    exchanges: ClassVar[Literal["models", "vectors", "nothing"]] = "models"
    """Content of messages: models or large parts of them, a few vectors, or nothing."""

    averages: ClassVar[bool] = True
    """Whether models or vectors of several nodes are averaged, by `node.aggregate`, `average`, `mix` or
    `add_deltas`.
    """

    splits_local_steps: ClassVar[bool] = False
    """Whether each local step is a separate training (`after_step` of `node.train`): then keys that span several steps,
    `training.proximal` and `training.accumulate`, are unavailable.
    """

    rejoins_after_absence: ClassVar[bool] = False
    """Whether a node calls `join` after every absence and every round that the server closed without it, and not only
    when it starts with a new state.
    """

    one_start: ClassVar[bool] = False
    """Whether all nodes start from one model by definition (a server's), whatever the scenario's `init` is."""

    expects_graph: ClassVar[GraphKind] = "any"
    """Graph that the method is defined for: one in all rounds, or a new one in each; `check` warns about other graphs.
    """

    graphs: ClassVar[Graphs] = "undirected"
    """Graphs that the method can use, and its use of their weights. Methods that mix models (`node.mix`) need a doubly
    stochastic matrix: on undirected graphs (`symmetric`) or on directed ones too (`balanced`). Others ignore weights:
    `undirected`, in which peers exchange, and `directed`, with `node.senders`. `pushes`: any directed graph, along
    which a node divides its mass by the weights (`node.divide`).
    """

    may_change: ClassVar[frozenset[str]] = frozenset()
    """Keys that `ddlsim resume --set` may change in a running simulation: `round` reads them each time, and neither a
    node's memory nor the result of `start` depends on them in shape or meaning.
    """

    @property
    def uses_topology(self) -> bool:
        """Whether nodes exchange with their peers in the topology (`node.peers`), and not with a server, with freely
        chosen nodes, or with no node. Default: true if there is no server.
        """
        return not self.has_server

    @property
    def needs_only_sums(self) -> bool:
        """Whether the messages of a round are only used in sums over the awaited nodes, weighted by sender and content,
        so that secure aggregation can hide the terms. Default: false.
        """
        return False

    @property
    def needs_plain_sgd(self) -> bool:
        """Whether it computes gradients from the changes of single local steps, so that training.optimizer must be sgd
        without momentum. Default: false.
        """
        return False

    # -- a node's life ---------------------------------------------------------------------------------------------

    @abstractmethod
    def start(self, node: Node) -> Any:
        """Return a node's state before its first round, or after it has lost its state; takes no simulated time."""

    def join(self, node: Node, state: Any, round_num: int) -> Steps:
        """Prepare the next round of a node that joins a running simulation, or returns without its state (or with it,
        see `rejoins_after_absence`). Default: nothing.
        """
        return
        yield

    @abstractmethod
    def round(self, node: Node, state: Any, round_num: int) -> Steps:
        """Run one round. A node that leaves abandons the round at once; its state remains as at that time."""

    def answer(self, node: Node, state: Any, offer: Message) -> Mapping[str, Any]:
        """Return the payload for a peer whose offer (`node.exchange`) arrives at this node; takes no simulated time,
        and may be called while the node trains. Default: nothing.
        """
        return {}

    def finish(self, node: Node, state: Any, round_num: int) -> Steps:
        """Run a last exchange after the last round. Default: none."""
        return
        yield

    def stopped(self, node: Node, state: Any, best: Model | None, round_num: int) -> None:
        """Handle the end of the node's rounds by early stopping after this one. Default: nothing.

        Args:
            node, state: as in `round`.
            best: the model of lowest validation loss; None if no loss was a number.
            round_num: the node's last round.
        """

    @property
    def has_final_exchange(self) -> bool:
        """Whether there is a last exchange, evaluated in place of the last round. Default: if `finish` is defined."""
        return type(self).finish is not Algorithm.finish

    # -- evaluation ------------------------------------------------------------------------------------------------

    @abstractmethod
    def serving(self, node: Node, state: Any) -> EvaluationCandidates | None:
        """Return the models that the node would answer queries with; None if it is a server."""

    @property
    def tests_server_model(self) -> bool:
        """Whether nodes are tested with the server's current model, without fetching it: `serving` of a node then gets
        the server's state. Default: false.
        """
        return False

    @property
    def labels(self) -> tuple[str, ...]:
        """Remarks on the chosen options for every report. Default: none."""
        return ()

    @property
    def as_published(self) -> tuple[str, ...]:
        """Options that follow a paper's code instead of the algorithm's definition. Default: none."""
        return ()

    # -- checking a scenario, before anything runs -----------------------------------------------------------------

    def check(self, clusters: Sequence[int]) -> None:
        """Raise ScenarioError, with the key, if the options do not fit clusters of these sizes."""

    @property
    def needs_validation(self) -> tuple[str, ...]:
        """Keys whose values need validation samples. Default: none."""
        return ()

    # -- parts of the model ----------------------------------------------------------------------------------------

    def extra_parts(self, latent: int, num_classes: int) -> "Mapping[str, nn.Module]":
        """Modules trained in addition to core and head, by name. Default: none.

        Args:
            latent: number of features that the core computes.
            num_classes: C.
        """
        return {}

    @property
    def has_extra_parts(self) -> bool:
        """Whether the algorithm defines `extra_parts`."""
        return type(self).extra_parts is not Algorithm.extra_parts

    # -- algorithms that compare models ----------------------------------------------------------------------------

    def similarity_measure(self, node: Node | None) -> Similarity | None:
        """Similarity measure for model comparisons (on this node, or in general). Default: None, no comparison."""
        return None

    @property
    def compares_models(self) -> bool:
        """Whether it has a similarity that `records.true_similarities` can show."""
        return self.similarity_measure(None) is not None

    def seen(self, state: Any) -> Any:
        """Return the part of the state that `similarities_of` compares. Default: None."""
        return None

    def similarities_of(
        self, node: Node, own: Any, others: Mapping[int, Any], compute: Compute, rng: np.random.Generator
    ) -> Deferred:
        """Return a deferred mapping from node id to similarity, for monitoring (records.true_similarities).

        Only called if `similarity_measure` returns a measure.
        """
        raise NotImplementedError(f"{type(self).__name__} compares no models")
