"""FedAsync: the server merges every model when it arrives; older models have less weight.

Source: Xie, Koyejo, Gupta, "Asynchronous federated optimization", 2019, Algorithm 1. A node trains from the server's
model x_tau, with the term rho / 2 |x - x_tau|^2 in its loss. When its model x_new arrives as the t-th, the server sets

    x_t := (1 - alpha s(t - tau)) x_{t-1} + alpha s(t - tau) x_new,

with s(d) = 1 (constant), (d + 1)^-a (polynomial), or 1 up to d = b and 1 / (a (d - b) + 1) beyond (hinge).

Common to asynchronous servers: nodes never wait for each other. In each round a node requests a task from the server,
trains, and sends its result. `concurrency` limits the tasks at a time; a node without a task repeats its request a
little later, as in Papaya (Huba et al., "Papaya: practical, private, and scalable federated learning", MLSys 2022).
Evaluations test the server's current model on all nodes. A node that goes offline drops its task and requests another
after its return. A round whose messages are lost ends without a result.
"""

from abc import abstractmethod
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from ddlsim.algorithms.rounds import AnsweringServer, ModelState
from ddlsim.node.node import Message, Node, Params, Steps, Verb


@dataclass
class State(ModelState):
    """A node's memory, or the server's.

    Args:
        model: on a node the model of its task; the server's current model.
        version: number of the server's updates in it.
        tasks: on the server, the nodes with a task.
        buffer: on the server, the changes that it has not applied yet.
    """

    version: int = 0
    tasks: set[int] = field(default_factory=set)
    buffer: list[Params] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class AsynchronousServer(AnsweringServer):
    """Base of methods whose server handles each result when it arrives.

    Args:
        concurrency: maximum number of nodes that train at the same time; null: all.
        retry_s: a node requests a task after a random time up to this many simulated seconds.
    """

    state_type: ClassVar[type[ModelState]] = State
    concurrency: Annotated[int, Ge(1)] | None = None
    retry_s: Annotated[float, Gt(0)] = 1.0

    @abstractmethod
    def local_update(self, node: Node, state: State) -> Generator[Verb, Any, Params]:
        """Train from the task's model; return the parameters for the server."""

    @abstractmethod
    def server_update(self, node: Node, state: State, result: Params, version: int) -> None:
        """Merge a result that was computed from this version of the model."""

    def unused_keys(self, rounds: int) -> Iterator[tuple[str, str]]:
        if self.concurrency is None:
            yield "retry_s", "concurrency is null: every request gets a task"

    def round(self, node: Node, state: State, round_num: int) -> Steps:
        server, task = node.peers(round_num), None
        while not task:
            if self.concurrency is not None:
                yield node.sleep(self.retry_s * node.rng("requests").random())
            answers = yield node.exchange(server, round_num)
            if not answers:
                return
            task = answers[0].payload
        state.model, state.version = task["model"], task["version"]
        result = yield from self.local_update(node, state)
        yield node.exchange(server, round_num, result=result, version=state.version)

    def answer(self, node: Node, state: State, offer: Message) -> Mapping[str, Any]:
        """Merge a node's result, or answer its request with a task."""
        if "result" in offer.payload:
            state.tasks.discard(offer.src)
            self.server_update(node, state, offer.payload["result"], offer.payload["version"])
            return {}
        if self.concurrency is not None:
            state.tasks = {other for other in node.online if other in state.tasks and other != offer.src}
            if len(state.tasks) >= self.concurrency:
                return {}
        state.tasks.add(offer.src)
        return {"model": state.model, "version": state.version}


@dataclass(frozen=True, kw_only=True)
class FedAsync(AsynchronousServer):
    """Asynchronous federated optimization: the server merges every model at once.

    Args:
        mixing: alpha: weight of a model that is not stale.
        staleness: s: decrease of the weight with the number of updates since the node's task.
        a: parameter of polynomial and hinge; the paper's are 0.5 and 10.
        b: parameter of hinge.
        rho: weight of the proximal term.
    """

    mixing: Annotated[float, Gt(0), Le(1)] = 0.6
    staleness: Literal["constant", "polynomial", "hinge"] = "polynomial"
    a: Annotated[float, Gt(0), Le(1000)] = 0.5
    b: Annotated[int, Ge(0)] = 4
    rho: Annotated[float, Ge(0), Le(1e30)] = 0.005

    def unused_keys(self, rounds: int) -> Iterator[tuple[str, str]]:
        yield from super().unused_keys(rounds)
        if self.staleness == "constant":
            yield "a", "staleness is constant"
        if self.staleness != "hinge":
            yield "b", f"staleness is {self.staleness}"

    def local_update(self, node: Node, state: State) -> Generator[Verb, Any, Params]:
        (trained,) = yield node.train((state.model,), proximal=self.rho)
        return trained

    def server_update(self, node: Node, state: State, result: Params, version: int) -> None:
        state.version += 1
        weight = self.mixing * self.factor(state.version - version)
        state.model = node.merge([state.model, result], [1 - weight, weight])

    def factor(self, delay: int) -> float:
        """Return s(t - tau)."""
        if self.staleness == "polynomial":
            return (delay + 1) ** -self.a
        if self.staleness == "hinge" and delay > self.b:
            return 1 / (self.a * (delay - self.b) + 1)
        return 1.0
