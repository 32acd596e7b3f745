"""Base class of algorithms in rounds of a server: nodes train, the server merges their results and returns its own.

A subclass defines the pseudo-code of a paper: the update of a node (`local_update`) and of the server
(`server_update`), and what the server sends (`server_result`). A node that joins later, returns, or gets no result in
time first fetches the current one.

Rounds are synchronous by definition: in `mode: async` too the server waits for the messages of a round and a node for
the server's result, up to protocol.deadline_s.
"""

from abc import abstractmethod
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ddlsim.algorithms.base import Algorithm
from ddlsim.node.candidates import EvaluationCandidates

if TYPE_CHECKING:
    from ddlsim.learning.job_types import Model
    from ddlsim.network.messages.message import Message
    from ddlsim.node.node import Node, Steps, Verb


class ServerRounds(Algorithm):
    """Algorithm in rounds of a server."""

    has_server: ClassVar[bool] = True
    rejoins_after_absence: ClassVar[bool] = True

    @abstractmethod
    def local_update(self, node: "Node", state: Any) -> "Generator[Verb, Any, dict[str, Any]]":
        """Train; return the payload for the server."""

    @abstractmethod
    def server_update(self, node: "Node", state: Any, inbox: "Sequence[Message]") -> None:
        """Merge the messages of the nodes, at least one, into the server's state."""

    @abstractmethod
    def server_result(self, state: Any) -> dict[str, Any]:
        """Return the payload of the server for nodes; empty if it has no result yet."""

    @abstractmethod
    def apply_result(self, state: Any, result: Mapping[str, Any]) -> None:
        """Put the server's result into the state of a node."""

    def tested_model(self, state: Any) -> "Model":
        """Return the model that a node serves. Default: `state.model`."""
        return state.model

    def join(self, node: "Node", state: Any, round_num: int) -> "Steps":
        """Fetch the server's result, if there is one and the server answers in time."""
        for answer in (yield node.pull(node.peers(round_num), round_num)):
            if answer.payload:
                self.apply_result(state, answer.payload)

    def round(self, node: "Node", state: Any, round_num: int) -> "Steps":
        if node.is_server:
            node.publish(round_num, **self.server_result(state))
            inbox = yield node.receive(round_num, wait=True)
            if inbox:
                self.server_update(node, state, inbox)
                node.send([m.src for m in inbox], round_num, **self.server_result(state))
            return
        payload = yield from self.local_update(node, state)
        node.send(node.peers(round_num), round_num, **payload)
        for message in (yield node.receive(round_num, wait=True)):
            self.apply_result(state, message.payload)

    def serving(self, node: "Node", state: Any) -> EvaluationCandidates | None:
        return None if node.is_server else EvaluationCandidates([self.tested_model(state)])
