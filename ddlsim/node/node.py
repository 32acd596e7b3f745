"""The node that an algorithm uses: operations that take simulated time (verbs), and plain calls.

A verb (train, losses, receive, pull, ...) is a method whose operation takes simulated time. It returns a `Verb`, which
the algorithm yields, and receives the outcome: `losses = yield node.losses(models, batches=10)`. Operations whose time
on a device is negligible (handing messages to the network, merging, recording) are plain calls: a message travels while
the node continues.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from operator import index
from typing import Any

from ddlsim.foundation.errors import DdlsimError
from ddlsim.network.messages.encoder import as_sent
from ddlsim.network.messages.message import PUSH, RESPONSE, SCORE, Message
from ddlsim.node import arguments
from ddlsim.node.candidates import BestModel
from ddlsim.node.collective_verbs import Steps, Verb
from ddlsim.node.computing_verbs import ComputingVerbs
from ddlsim.node.ports import Model, Params, Ports

__all__ = ["Message", "Model", "Node", "Params", "Steps", "Verb"]
"""Types in the signatures of algorithms."""


class Node(ComputingVerbs):
    """One simulated participant: its device, its data (by node id, in the learner).

    Args:
        node_id: 0 .. num_nodes-1; the server, if there is one, is num_nodes.
        ports: the rest of the run.
        best: record in which each local training is validated; None: no validation.
        times_lost: number of times that the participant has lost its state; this node started after the last loss.

    Attributes:
        awaited: nodes whose messages the node has waited for last.
        last_received_round: last round whose pushed messages the node has received, all at once.
        received_from: on a server, senders of the received messages of that round.
        unanswered: with a server, whether the node has waited for its message in vain; the engine resets it.
        open_verbs: number of verbs created and not yet yielded; the engine counts them down.
    """

    def __init__(self, node_id: int, ports: Ports, best: BestModel | None = None, times_lost: int = 0):
        super().__init__(node_id, ports, best, times_lost)
        self._sent = arguments.SendGuard(node_id, ports.transport)
        self.last_received_round = -1
        self.awaited: Sequence[int] = ()
        self.received_from: set[int] = set()
        self.unanswered = False

    def restart_round(self) -> None:
        """Forget the messages sent in this round, because the node may repeat it after its return. Called by the
        engine.
        """
        self._sent.forget()
        self.open_verbs, self._pieces = 0, None

    def settings_changed(self) -> None:
        """Discard values derived from settings, because the run continues with other settings. Called by the engine."""
        self._local_steps = None

    # -- verbs that take time --------------------------------------------------------------------------------------

    def sleep(self, seconds: float) -> Verb:
        """Wait for this number of simulated seconds; outcome: None.

        Args:
            seconds: 0 or more.
        """
        return self._after(float(seconds), lambda: None)

    def round_end(self, round_num: int) -> Verb:
        """Wait until the server has closed this round, without a message; outcome: None."""
        event = self._run.round_end(round_num, self._clock.event)
        self.open_verbs += 1
        return self._clock.after(0.0) if event is None else event, lambda: None

    def receive(self, round_num: int, senders: Iterable[int] | None = None, *, wait: bool | None = None) -> Verb:
        """Receive messages pushed to this node, ordered by sender, at most one of each.

        Synchronous: all messages of this round, once every message that can still arrive from `senders` (by default
        those of the round's graph) has arrived, or at the deadline (protocol.deadline_s). With protocol.late_messages
        `keep`, the result includes messages that arrived too late for their own round. Asynchronous: at once, the
        newest message of every sender that has not been received yet, unless it was sent more than protocol.staleness_s
        ago. Messages of a last exchange after all rounds wait for this node's own last exchange, which receives no
        others.

        Args:
            round_num: the round.
            senders: the nodes whose messages are waited for; None: the senders of the round's graph (`senders`).
            wait: true: as in synchronous runs, whatever the mode; false: as in asynchronous runs; None: by the mode.
        """
        if not (self._run.synchronous if wait is None else wait):
            first, last = self._run.rounds_taken(self.round_num)
            return self._after(0.0, lambda: self._transport.take_newest(self.id, PUSH, first, last))
        if senders is None:
            self.awaited = self.senders(round_num)
        else:
            self.awaited = arguments.node_ids(senders, self._num_members, "receive")
        return self._collect(PUSH, round_num, self.awaited)

    def pull(
        self,
        peers: Iterable[int],
        round_num: int,
        keys: Sequence[str] | None = None,
        *,
        stages: Mapping[int, int] | None = None,
    ) -> Verb:
        """Ask peers for their publications, or for some keys of them; outcome: their messages, ordered by sender.

        Synchronous: a peer answers when it has published for this round. Asynchronous: with its newest publication. The
        deadline and late answers are as with `receive`, in both modes.

        Args:
            peers: the nodes to ask.
            round_num: round of the answers.
            keys: keys of their publications; None: all keys.
            stages: per peer the requested stage of the round, if peers publish several; a number that travels with the
                request. In synchronous runs the answer is exactly that stage, even if the peer has published later
                ones. None: the first of the round, or the newest if peers publish without stages.
        """
        peers, round_num = arguments.node_ids(peers, self._num_members, "pull"), index(round_num)
        self._transport.pull(self.id, peers, round_num, keys, stages)
        return self._collect(RESPONSE, round_num, peers)

    def exchange(self, peers: Iterable[int], round_num: int, **payload: Any) -> Verb:
        """Offer a payload to peers; outcome: their answers in time, ordered by sender.

        The algorithm of a peer answers when the offer arrives, whatever the peer does (`Algorithm.answer`). The
        deadline is as with `receive`; answers after it are discarded.

        Raises:
            DdlsimError: as `send`.
        """
        peers, round_num = arguments.node_ids(peers, self._num_members, "exchange"), index(round_num)
        self._transport.exchange(self.id, peers, round_num, as_sent(payload))
        event, take = self._collect(RESPONSE, round_num, peers)
        return event, lambda: [answer for answer in take() if answer.round_num == round_num]

    def score_remotely(self, peers: Iterable[int], model: "Model", round_num: int) -> Verb:
        """Send a model to peers, which compute it on all their training samples and answer with the mean loss.

        Outcome: their messages, ordered by sender, each with a `Deferred` loss as payload["loss"]. The deadline is as
        with `receive`. A peer scores in parallel to its other work; a slower training meanwhile is not modeled.
        """
        peers, round_num = arguments.node_ids(peers, self._num_members, "score_remotely"), index(round_num)
        self._transport.ask_for_scores(self.id, peers, round_num, model)
        return self._collect(SCORE, round_num, peers)

    def turn_stages(self, peers: Iterable[int], round_num: int) -> dict[int, int]:
        """Return for each peer 1 if its turn in this round is before this node's, else 0.

        The turns are a random order of all nodes, drawn in each round and known to all. Pulling with these stages is
        equivalent to processing the nodes in that order, but a node waits only for the answers that it asked for.
        """
        turns = self._run.turns(round_num)
        return {peer: int(turns[peer] < turns[self.id]) for peer in peers}

    # -- messages and records --------------------------------------------------------------------------------------

    def send(self, peers: Iterable[int], round_num: int, **payload: Any) -> None:
        """Hand one message per peer to the network.

        Numbers travel as 8 bytes, arrays and tensors as they are, texts in UTF-8, parameters as 4 bytes a value or as
        network.compression says (see network/messages/encoder.py: it follows the parameters that are sent under one
        name, so different things need different names, or different keys of a mapping under one). Receivers do not see
        changes in place after this call; they share the received objects, and must not change them.

        Raises:
            DdlsimError: a value whose bytes on the wire are unknown, see network/messages/encoder.py; a second message
                to a node that has not received the first one of this round, if nodes do their rounds together; or a
                message of the last exchange before that exchange, if no node waits.
        """
        known = peers is self._peers[1]  # ids of the node's own topology need no check
        receivers = tuple(peers) if known else arguments.node_ids(peers, self._num_members, "send")
        round_num = index(round_num)
        if self._run.in_step:
            self._sent.note(receivers, round_num)
        elif round_num >= self._run.rounds > self.round_num and self._run.has_final_exchange:
            raise DdlsimError(
                f"node.send: expected a round_num of 0 to {self._run.rounds - 1} with mode async, got {round_num}. "
                "Later rounds belong to the last exchange (finish), which takes no messages of rounds."
            )
        self._transport.push(self.id, receivers, round_num, as_sent(payload))

    def offer(self, peers: Iterable[int], round_num: int, **payload: Any) -> None:
        """Offer a payload to peers, as `exchange` does, without waiting; the content of their answers is ignored.

        Raises:
            DdlsimError: as `send`.
        """
        peers = arguments.node_ids(peers, self._num_members, "offer")
        self._transport.exchange(self.id, peers, index(round_num), as_sent(payload))

    def publish(self, round_num: int, *, stage: int | None = None, **payload: Any) -> None:
        """Make this payload available to peers that pull, now and later.

        Args:
            round_num: peers that ask for this round, or an earlier one, get this payload.
            stage: for peers that ask for a stage of the round; earlier stages remain available to peers in earlier
                stages.
            payload: content of the answers; see `send`.

        Raises:
            DdlsimError: as `send`.
        """
        self._transport.publish(self.id, round_num, stage, as_sent(payload))

    def measure(self, name: str, model: "Model", round_num: int) -> None:
        """Write a row of a model's quality on this node's validation samples, for monitoring, at no simulated time."""
        self._log.measure(self._clock.now_s, self.id, round_num + 1, name, model, self.local_state)

    def record(self, name: str, value: Any, round_num: int) -> None:
        """Write one row of the run's metrics; the round counts as completed. A network-only run omits such rows, since
        placeholder values would determine them.

        Args:
            name: name of the rows; not the name of a metric.
            value: a number, a text, a boolean, None, or lists and mappings (with texts as keys) of them; arrays and
                tensors are written as lists, and NumPy's scalars as numbers.
            round_num: the round.

        Raises:
            DdlsimError: a value that metrics.jsonl cannot hold, or a name under which the simulator writes rows.
        """
        arguments.refuse_simulator_rows(name, self._log.measured)
        self._log.row(self._clock.now_s, self.id, index(round_num) + 1, name, arguments.to_json_value(name, value))

    # --------------------------------------------------------------------------------------------------------------

    def _collect(self, kind: str, round_num: int, senders: Sequence[int]) -> Verb:
        self.open_verbs += 1
        transport = self._transport
        event = transport.wait(self.id, kind, round_num, senders)
        if kind == PUSH:
            return event, partial(self._take_pushed, round_num)
        return event, partial(transport.take, self.id, kind, round_num)

    def _take_pushed(self, round_num: int) -> list[Message]:
        self.last_received_round = round_num
        messages = self._transport.take(self.id, PUSH, round_num)
        if self._run.server is not None:
            self.received_from = {message.src for message in messages if message.round_num == round_num}
            self.unanswered = self._run.server in self.awaited and self._run.server not in self.received_from
        return messages
