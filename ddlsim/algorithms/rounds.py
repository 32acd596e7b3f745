"""Base classes of algorithms with common rounds: one model per node, rounds of a server, and a final all-reduce."""

from abc import abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Lt

from ddlsim.algorithms.base import Algorithm
from ddlsim.algorithms.similarity import ComparedModel
from ddlsim.foundation.errors import ScenarioError
from ddlsim.node.candidates import EvaluationCandidates
from ddlsim.node.node import Message, Model, Node, Params, Steps, Verb
from ddlsim.node.parameters import Deferred
from ddlsim.node.ports import Compute


@dataclass
class ModelState:
    """A node's memory: its model. Subclasses add fields with defaults."""

    model: Params


@dataclass
class MomentumState(ModelState):
    """A node's memory: its model, and its momentum (None: 0)."""

    momentum: Params | None = None


class SharedModel(Algorithm):
    """Algorithm whose nodes train, share and serve one model each. A subclass defines `round`."""

    state_type: ClassVar[type[ModelState]] = ModelState
    """Class of a node's state."""

    def start(self, node: Node) -> Any:
        ((model,),) = node.init_models(whole=True)
        return self.state_type(model)

    def serving(self, node: Node, state: Any) -> EvaluationCandidates | None:
        return EvaluationCandidates([(state.model,)])

    def seen(self, state: Any) -> ComparedModel:
        return ComparedModel(state.model)

    def similarities_of(
        self, node: Node, own: Any, others: Mapping[int, Any], compute: Compute, rng: np.random.Generator
    ) -> Deferred:
        similarity = self.similarity_measure(node)
        assert similarity is not None
        peers = {peer: others[peer] for peer in sorted(others)}
        return similarity.look(node.id, own, peers, compute, rng, node.local_state)


class AnsweringServer(SharedModel):
    """Algorithm whose server handles each message of a node when it arrives, and answers it at once."""

    has_server: ClassVar[bool] = True
    waits: ClassVar[bool] = False
    one_start: ClassVar[bool] = True
    tests_server_model: ClassVar[bool] = True
    averages: ClassVar[bool] = False

    def serving(self, node: Node, state: Any) -> EvaluationCandidates | None:
        return None if node.is_server else super().serving(node, state)


def with_sum(node: Node, trained: Params, sources: Sequence[Params], weights: Sequence[float]) -> Params:
    """Return a weighted sum of parameters, with the buffers (BatchNorm statistics) of trained ones."""
    return node.with_trained_values(trained, node.trained_values(node.merge(sources, weights)))


def merge_known(node: Node, sources: Sequence[Params | None], weights: Sequence[float]) -> Params:
    """Return the weighted sum of the sources that are not None; None represents parameters that start at 0."""
    terms = [(source, weight) for source, weight in zip(sources, weights, strict=True) if source is not None]
    return node.merge(*zip(*terms, strict=True))


Sampled = Annotated[int, Ge(1)] | Annotated[float, Gt(0), Lt(1)]
"""Nodes of a round: a number, or a share of the nodes that are online, rounded down."""


@dataclass
class ServerState:
    """A node's memory, or the server's: its model, empty if it has none. Subclasses add fields with defaults."""

    model: Model = ()


@dataclass(frozen=True, kw_only=True)
class ServerRounds(Algorithm):
    """Algorithm in rounds of a server: nodes train, the server merges their results and returns its own.

    A subclass defines the pseudo-code of a paper: the update of a node (`local_update`) and of the server
    (`server_update`), and what the server sends (`server_result`). A node that joins later, returns, or gets no result
    in time first fetches the current one.

    Rounds are synchronous by definition: in `mode: async` too the server waits for the messages of a round and a node
    for the server's result, up to protocol.deadline_s.

    Client sampling: the nodes that the server draws for a round fetch its result, train, and send theirs. All others
    wait for the end of the round and exchange nothing, including nodes that join or return. If all nodes share the
    server's model, they are tested with it.

    Args:
        clients_per_round: nodes that take part in a round, drawn among the nodes that are online: a number, or a share
            of them; null: all nodes.
        min_clients: minimum number of drawn nodes.
        sample_by: uniform: all nodes with the same probability; samples: in proportion to their training samples.
    """

    clients_per_round: Sampled | None = None
    min_clients: Annotated[int, Ge(1)] = 1
    sample_by: Literal["uniform", "samples"] = "uniform"

    has_server: ClassVar[bool] = True
    rejoins_after_absence: ClassVar[bool] = True

    state_type: ClassVar[type[ServerState]] = ServerState
    """Class of a node's state and of the server's."""

    server_steps_from_model: ClassVar[bool] = False
    """Whether the server's state starts with the nodes' model, because its updates start from it."""

    def start(self, node: Node) -> Any:
        if node.is_server and not (self.server_steps_from_model or self.tests_server_model):
            return self.state_type()
        (model,) = node.init_models(whole=not self.needs_core)
        return self.state_type(model)

    @abstractmethod
    def local_update(self, node: Node, state: Any) -> Generator[Verb, Any, dict[str, Any]]:
        """Train; return the payload for the server."""

    @abstractmethod
    def server_update(self, node: Node, state: Any, inbox: Sequence[Message]) -> None:
        """Merge the messages of the nodes, at least one, into the server's state."""

    @abstractmethod
    def server_result(self, state: Any) -> dict[str, Any]:
        """Return the payload of the server for nodes; empty if it has no result yet."""

    def result_keys(self, node: Node, peer: int) -> Sequence[str] | None:
        """Return the keys of the server's result that a node needs. Default: None, all."""
        return None

    @abstractmethod
    def apply_result(self, state: Any, result: Mapping[str, Any]) -> None:
        """Put the server's result into the state of a node."""

    def tested_model(self, state: Any) -> Model:
        """Return the model that a node serves. Default: `state.model`."""
        return state.model

    @property
    def tests_server_model(self) -> bool:
        return self.clients_per_round is not None and self.one_start

    def check(self, clusters: Sequence[int]) -> None:
        most, drawn = sum(clusters), self.clients_per_round
        for key, count in (("clients_per_round", drawn), ("min_clients", self.min_clients)):
            if isinstance(count, int) and count > most:
                raise ScenarioError(f"algorithm.{key}: there are {most} nodes, got {count}. Give at most that many.")

    def unused_keys(self, rounds: int) -> Iterator[tuple[str, str]]:
        if self.clients_per_round is None:
            yield from (("min_clients", "all nodes take part"), ("sample_by", "all nodes take part"))
        elif isinstance(self.clients_per_round, int):
            yield "min_clients", "clients_per_round is a number"

    def num_clients(self, online: int) -> int:
        """Return the number of nodes to draw among those that are online."""
        drawn = self.clients_per_round
        if drawn is None:
            return online
        wanted = max(self.min_clients, int(drawn * online + 1e-9)) if isinstance(drawn, float) else drawn
        return min(online, wanted)

    def clients(self, node: Node, round_num: int) -> Sequence[int]:
        """Return the nodes that take part in a round."""
        return node.clients(round_num, self.num_clients, by_samples=self.sample_by == "samples")

    def join(self, node: Node, state: Any, round_num: int) -> Steps:
        """Fetch the server's result, if there is one and the server answers in time."""
        if self.clients_per_round is not None:  # it is fetched in the first round for which the node is drawn
            yield node.round_end(round_num - 1)
            return
        yield from self._fetch(node, state, round_num)

    def _fetch(self, node: Node, state: Any, round_num: int) -> Steps:
        for answer in (yield node.pull(node.peers(round_num), round_num, self.result_keys(node, node.id))):
            if answer.payload:
                self.apply_result(state, answer.payload)

    def round(self, node: Node, state: Any, round_num: int) -> Steps:
        clients = None if self.clients_per_round is None else self.clients(node, round_num)
        if node.is_server:
            node.publish(round_num, **self.server_result(state))
            inbox = yield node.receive(round_num, clients, wait=True)
            if inbox:
                self.server_update(node, state, inbox)
                if clients is None:
                    self._send_result(node, state, [m.src for m in inbox], round_num)
        elif clients is None:
            yield from self._send_update(node, state, round_num)
            for message in (yield node.receive(round_num, wait=True)):
                self.apply_result(state, message.payload)
        else:
            if node.id in clients:
                yield from self._fetch(node, state, round_num)
                yield from self._send_update(node, state, round_num)
            yield node.round_end(round_num)

    def _send_update(self, node: Node, state: Any, round_num: int) -> Steps:
        payload = yield from self.local_update(node, state)
        node.send(node.peers(round_num), round_num, **payload)

    def _send_result(self, node: Node, state: Any, peers: Sequence[int], round_num: int) -> None:
        result = self.server_result(state)
        receivers: dict[tuple[str, ...], list[int]] = {}
        for peer in peers:
            keys = self.result_keys(node, peer)
            receivers.setdefault(tuple(result if keys is None else keys), []).append(peer)
        for keys, alike in receivers.items():
            node.send(alike, round_num, **{key: result[key] for key in keys})

    def serving(self, node: Node, state: Any) -> EvaluationCandidates | None:
        return None if node.is_server else EvaluationCandidates([self.tested_model(state)])


@dataclass(frozen=True, kw_only=True)
class WithFinalAllReduce(Algorithm):
    """Algorithm with an optional last exchange of all nodes with all others, as in the FACADE paper's code.

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
        """Return the payload for all other nodes. Default: the node's model."""
        return {"model": state.model}

    def merge_final(self, node: Node, state: Any, inbox: Sequence[Message]) -> None:
        """Merge the payloads of the other nodes. Default: average all models."""
        state.model = node.average(state.model, {m.src: m.payload["model"] for m in inbox if "model" in m.payload})

    def finish(self, node: Node, state: Any, round_num: int) -> Steps:
        node.send(node.others(), round_num, **self.final_contents(state))
        inbox = yield node.receive(round_num, node.others())
        self.merge_final(node, state, inbox)
