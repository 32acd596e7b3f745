"""Answers of nodes to requests: to pulls with a publication, to offers, and to requests of scores."""

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import simpy

from ddlsim.engine.clock import RunParts
from ddlsim.engine.packing import MessagePacker
from ddlsim.network.messages.encoder import Payload, as_sent
from ddlsim.network.messages.message import EXCHANGE, REQUEST, RESPONSE, SCORE, SCORE_REQUEST, Message
from ddlsim.node.parameters import Deferred

ANSWER_TO = {REQUEST: RESPONSE, SCORE_REQUEST: SCORE, EXCHANGE: RESPONSE}
"""Kind of request -> kind of its answer."""


class PullStore:
    """Publications of one node, each for a round and a stage of it, and the requests that wait for one.

    Args:
        synchronous: whether a pull waits for a publication of its round, see Run.in_step.
    """

    def __init__(self, synchronous: bool):
        self._synchronous = synchronous
        self._published: dict[tuple[int, int], dict[str, Any]] = {}  # (round, stage), oldest first
        self._waiting: list[tuple[Message, int]] = []
        self._closed = False

    def publish(self, round_num: int, stage: int | None, payload: dict[str, Any], oldest_needed: int) -> None:
        """Make a payload available.

        Args:
            round_num: the round.
            stage: stage of the round; None: there are no stages.
            payload: content of the answers.
            oldest_needed: stages of earlier rounds than this are forgotten.
        """
        kept = {}
        if stage is not None and self._synchronous:
            kept = {key: old for key, old in self._published.items() if key[0] >= oldest_needed}
        self._published = {**kept, (round_num, stage or 0): payload}

    def close(self) -> None:
        """End publication: the last publication answers the pulls of its round and all later ones."""
        self._closed = True

    def answer_to(self, request: Message) -> dict[str, Any] | None:
        """Return the answer: the first publication as new as the requested round and stage; in an asynchronous run, and
        if nothing newer can follow, the newest. None: not available yet.
        """
        if not self._published:
            return None
        newest = self._published[next(reversed(self._published))]
        if not self._synchronous:
            return newest
        wanted = (request.round_num, request.payload.get("stage", 0))
        last = newest if self._closed else None
        return next((payload for key, payload in self._published.items() if key >= wanted), last)

    def wait(self, request: Message, stay: int) -> None:
        """Store a request until the next publication.

        Args:
            request: request of a node that is online now.
            stay: the node's current stay; in a later stay it no longer needs the answer.
        """
        self._waiting.append((request, stay))

    def take_waiting(self) -> list[tuple[Message, int]]:
        """Return and remove the waiting requests, each with the stay in which it was made."""
        taken, self._waiting = self._waiting, []
        return taken

    def clear(self) -> None:
        """Forget everything, because the node has lost its state."""
        self._published = {}


class AnswerService:
    """Answers of all nodes of one run.

    Args:
        parts: objects of the run.
        packer: makes messages.
        send: hands messages to the network.
        fail: ends the wait for an answer that will never be sent.

    Attributes:
        to_offer: offer of an exchange -> its answer, by the receiver's algorithm; set by the simulation.
        holds: whether an attacker holds back the answer to a pull that it could answer now.
    """

    to_offer: Callable[[Message], Payload]

    def __init__(
        self,
        parts: RunParts,
        packer: MessagePacker,
        send: Callable[[list[Message]], None],
        fail: Callable[[Message], None],
    ):
        self._network, self._members, self._run, self._compute = parts.network, parts.members, parts.run, parts.compute
        self._clock, self._packer, self._send, self._fail = parts.clock, packer, send, fail
        self.holds: Callable[[Message], bool] = lambda _: False
        self._stores: defaultdict[int, PullStore] = defaultdict(partial(PullStore, parts.run.in_step))
        self._oldest_round, self._oldest_as_of = 0, 0

    def publish(self, node: int, round_num: int, stage: int | None, payload: dict[str, Any]) -> None:
        """Answer pulls with this payload from now on, including waiting pulls."""
        self._packer.publish(node, payload)
        self._stores[node].publish(round_num, stage, payload, self._oldest())
        self.answer_waiting(node)

    def handle(self, request: Message) -> None:
        """Handle the arrival of a request."""
        if request.kind == REQUEST:
            self._answer(request)
        elif request.kind == SCORE_REQUEST:
            self._score(request)
        else:
            payload = self._packer.release(request.receiver, as_sent(self.to_offer(request)), request.round_num)
            self._packer.publish(request.receiver, payload)
            self._respond(request, RESPONSE, payload)

    def answer_waiting(self, node: int) -> None:
        """Answer the pulls that have waited for a publication."""
        for request, stay in self._stores[node].take_waiting():
            if self._still_asks(request, stay):
                self._answer(request)
            else:
                self._network.unused(request)

    def stopped(self, node: int) -> None:
        """Stop a node early: its publication answers all pulls of any round from now on."""
        self._stores[node].close()
        self.answer_waiting(node)

    def turn_away(self, node: int) -> None:
        """Reject the pulls that a node has not answered."""
        for request, stay in self._stores[node].take_waiting() if node in self._stores else ():
            self._network.unused(request)
            if self._still_asks(request, stay):
                self._fail(request)

    def forget(self, node: int) -> None:
        """Forget a node's publications, because it has lost its state."""
        if node in self._stores:
            self._stores[node].clear()

    def _respond(self, request: Message, kind: str, payload: Payload) -> None:
        self._send(self._packer.messages(request.receiver, (request.src,), request.round_num, kind, payload))

    def _answer(self, request: Message) -> None:
        """Answer a peer's pull, or keep it until the node has published for that round."""
        node, store = request.receiver, self._stores[request.receiver]
        payload = store.answer_to(request)
        if payload is None or self.holds(request):
            store.wait(request, self._members[request.src].stay)
            if payload is None and self._members[node].finished:  # it arrived when no round was left for it
                self.turn_away(node)
            return
        if request.keys is not None:
            payload = {key: payload[key] for key in request.keys if key in payload}
        self._respond(request, RESPONSE, self._packer.release(node, payload, request.round_num))

    def _score(self, request: Message) -> None:
        """Compute a peer's model on the training samples, and send the loss when the node's device has finished."""
        compute, member = self._compute, self._members[request.receiver]
        stay, asked_in = member.stay, self._members[request.src].stay
        batches = compute.batches_in("train", member.id)
        rng = self._run.rng("scoring batches", member.id) if compute.draws_numbers else None
        job = compute.losses(member.id, [request.payload["model"]], batches, rng, local_state=member.node.local_state)
        loss = Deferred(lambda: compute.value(job)[0])

        def scored(_: simpy.Event) -> None:
            if member.online and member.stay == stay and self._still_asks(request, asked_in):
                self._respond(request, SCORE, {"loss": loss})
            else:
                self._network.unused(request)

        duration_s = self._clock.computing_s(member.id, 0.0, batches)
        self._clock.after(duration_s).callbacks.append(scored)

    def _still_asks(self, request: Message, stay: int) -> bool:
        """Whether the sender of a request has not left since; a node that returns asks again."""
        asker = self._members[request.src]
        return asker.online and asker.stay == stay

    def _oldest(self) -> int:
        """Return the earliest round of an online node: pulls ask for no earlier one. Computed once a round.

        `completed_by_all` can be later: a node that returns may be in an earlier round.
        """
        completed = self._run.completed_by_all
        if completed > self._oldest_as_of:
            rounds = (member.round_num for member in self._members if member.online and not member.finished)
            self._oldest_round, self._oldest_as_of = min(rounds, default=completed), completed
        return self._oldest_round
