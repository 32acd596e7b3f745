"""Forged payloads of attackers, and what attackers know.

Parameters are forged before compression, and once for all receivers unless the attack sends each receiver different
parameters; so a repeated sending is the same forgery. Under `privacy` a node that forges neither clips nor adds noise,
and knows only the released parameters of honest nodes. An attack begins with the attacker's own round, also for nodes
in other rounds that ask it. attacks/base.py describes the attackers' knowledge.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from ddlsim.attacks.base import Attack
from ddlsim.attacks.forgeries import Sybil
from ddlsim.attacks.node_attacks import Attackers, NodeAttacks
from ddlsim.engine.packing import MessagePacker
from ddlsim.network.messages.encoder import Path, Payload, is_parameters, parameters_in, walk
from ddlsim.network.messages.message import EXCHANGE, PUSH, RESPONSE, SCORE_REQUEST, SECURE, Keys, Message, Nodes
from ddlsim.node.ports import Params
from ddlsim.topologies.base import Receivers

JUNK = "junk"
FLOODED = (PUSH, RESPONSE, SCORE_REQUEST, SECURE, EXCHANGE)
"""Kinds of messages that junk accompanies."""

Place = tuple[Path, int]
"""Location of parameters in a payload, and their number of values."""

Known = dict[int, "Params"]
"""Node -> parameters."""

Forgery = tuple[int, int | None, tuple[int, ...]]
"""Sender, receiver (None: all of them), and `id` of the active attacks, which live as long as the run."""


class ForgingPacker(MessagePacker):
    """Messages of honest nodes and attackers; further arguments as in MessagePacker.

    Args:
        attackers: the attackers and their attacks.

    Attributes:
        withheld: called with each message that an attacker withholds; set by the transport.
    """

    withheld: Callable[[Message], None]

    def __init__(self, attackers: Attackers, *args: Any):
        self.attackers = attackers
        self.knowing = {attack.knows for attack, _ in attackers.attacks if attack.forges}
        self._sent: dict[Place, Known] = {}  # newest parameters that each node would have sent honestly
        self._forged_last: dict[Place, Known] = {}  # parameters that attacked nodes have sent, after all forging
        self._received: dict[int, dict[Place, Known]] = {}  # attacked node -> parameters that reached it
        self._newest_s: dict[tuple[int, int, Place], float] = {}  # (attacked node, sender, place) -> its time
        # Parameters -> their forgery; several nodes may have the same parameters.
        self._forged: WeakKeyDictionary[Params, dict[Forgery, Params]] = WeakKeyDictionary()
        self._in_clear: set[int] = set()  # nodes under `privacy` that have sent forgeries without noise
        super().__init__(*args)

    def publish(self, node: int, payload: Payload) -> None:
        if not self._senders:  # otherwise noise is added first
            self._learn(node, payload)

    def push(self, sender: int, receivers: Nodes, payload: Payload) -> None:
        """Handle a payload that a node will push to the receivers."""
        if receivers or not self._senders:
            self._learn(sender, payload)

    def sent_in_clear(self, node: int) -> bool:
        return node in self._in_clear

    def release(self, sender: int, payload: Payload, round_num: int) -> Payload:
        """Return the payload to send; forgers neither clip nor add noise."""
        attacks = self.attackers.of(sender)
        if attacks is not None and attacks.forging(self.round_of(sender, round_num)):
            self._in_clear.update(sender for _ in parameters_in(payload))
            return payload
        return super().release(sender, payload, round_num)

    def messages(
        self, sender: int, receivers: Nodes, round_num: int, kind: str, payload: Payload, keys: Keys = None
    ) -> list[Message]:
        if kind not in (RESPONSE, SCORE_REQUEST, EXCHANGE):  # pushes are forged before, see AttackedTransport
            return super().messages(sender, receivers, round_num, kind, payload, keys)
        found: list[Message] = []
        if self._senders or kind != RESPONSE:  # answers without noise are known since they were published
            self._learn(sender, payload)
        for group, changed in self.outgoing(sender, receivers, round_num, kind, payload):
            found += super().messages(sender, group, round_num, kind, changed, keys)
        return found

    def _separate_receiver(self, sender: int, receivers: Nodes) -> int | None:
        attacks = self.attackers.of(sender)
        return receivers[0] if attacks is not None and attacks.per_receiver else None

    # -- messages of attacked nodes -------------------------------------------------------------------------------

    def round_of(self, sender: int, round_num: int) -> int:
        """Return the round by which a node attacks when it sends a message of this round: its own, whatever the
        requester's.

        If nodes do their rounds together, a node that has stopped early continues with the others.
        """
        own = self._members[sender].node.round_num
        return max(own, round_num) if self._run.in_step else own

    def outgoing(
        self, sender: int, receivers: Nodes, round_num: int, kind: str, payload: Payload, own_round: int | None = None
    ) -> Iterator[tuple[Nodes, Payload]]:
        """Return receivers and payloads; `own_round` is the round by which the node attacks (default: its own)."""
        attacks = self.attackers.of(sender)
        if attacks is None:
            yield receivers, payload
            return
        receivers = self._not_withheld(attacks, receivers, round_num, kind)
        forging = attacks.forging(self.round_of(sender, round_num) if own_round is None else own_round)
        if not forging and attacks.leads_sybils:
            self._note(self._forged_last, sender, payload)
        forged_apart = any(attack.per_receiver for attack, _ in forging)
        apart = forged_apart or (attacks.per_receiver and self._encoders is not None)  # into each receiver's stream
        for group in [(receiver,) for receiver in receivers] if apart else [receivers]:
            if not group:
                continue
            to = group[0] if forged_apart else None

            def forged(leaf: Any, path: Path, to: int | None = to) -> Any:
                return self._forge(sender, leaf, path, to, round_num, forging) if is_parameters(leaf) else leaf

            yield group, walk(payload, forged) if forging else payload

    def _forge(
        self,
        sender: int,
        own: Params,
        path: Path,
        receiver: int | None,
        round_num: int,
        forging: Sequence[tuple[Attack, Nodes]],
    ) -> Params:
        """Return the forgery of parameters; the same parameters of a sender give the same forgery."""
        follows = any(isinstance(attack, Sybil) and sender != nodes[0] for attack, nodes in forging)
        forgeries = {} if follows else self._forged.setdefault(own, {})
        key = sender, receiver, tuple(id(attack) for attack, _ in forging)
        found = forgeries.get(key)
        if found is None:
            place, found = (path, own.size), own
            start = self._members[sender].node.started_from(own)
            for attack, nodes in forging:
                if isinstance(attack, Sybil):
                    first = self._forged_last.get(place, {}).get(nodes[0])
                    found = found if sender == nodes[0] or first is None else first
                    continue
                known, accomplices, center = self._known(attack, nodes, sender, place, receiver, round_num)
                seed = int(self._run.rng("attack", sender).integers(2**63 - 1)) if self._compute.draws_numbers else 0
                sizes = self._run.num_nodes, len(nodes), accomplices
                view = {"known": known, "start": start, "receiver": center}
                found = self._compute.attack(attack, found, **view, seed=seed, sizes=sizes)
            if found is not own:  # of the first sybil, which would keep its own models forever
                forgeries[key] = found
            self._forged_last.setdefault(place, {})[sender] = found
        return found

    def _known(
        self, attack: Attack, nodes: Nodes, sender: int, place: Place, receiver: int | None, round_num: int
    ) -> tuple[list[Params], int, Params | None]:
        """Return the rows that an attack knows, the accomplices around the receiver, and the receiver's row; the last
        two only for attacks that send each receiver different parameters.
        """
        sent = self._sent.get(place, {})
        if attack.per_receiver and receiver is not None:
            around = self.around(receiver, round_num)
            rows = [sent[node] for node in sorted(around) if node in sent and self.is_honest(node)]
            accomplices = max(1, sum(node in nodes for node in around))
            center = sent.get(receiver)
            return rows or [sent[sender]], accomplices, center
        if attack.knows != "all":  # those under one attack collude
            known = {node: sent[node] for node in nodes if node in sent}
            if attack.knows == "neighbors":
                known |= self._received.get(sender, {}).get(place, {})
        else:
            known = {node: row for node, row in sent.items() if self.is_honest(node)}
        return [known[node] for node in sorted(known)] or [sent[sender]], 1, None

    def around(self, receiver: int, round_num: int) -> Sequence[int]:
        """Return the nodes that send to a receiver in a round."""
        all_with_all = not self._run.uses_topology or round_num >= self._run.rounds
        if receiver == self._run.server or all_with_all:
            return range(self._run.num_nodes)
        graph = self._run.neighbors(round_num)
        return graph.senders[receiver] if isinstance(graph, Receivers) else graph[receiver]

    def is_honest(self, node: int) -> bool:
        """Whether it is a node, not a server, and not under attack."""
        return node != self._run.server and self.attackers.of(node) is None

    def _learn(self, sender: int, payload: Payload) -> None:
        """Record the parameters that a node sends, or would send if it were honest, as known to the attackers that can
        see it.
        """
        if "all" in self.knowing or self.attackers.of(sender) is not None:
            self._note(self._sent, sender, payload)

    def receive(self, message: Message) -> None:
        """Record the parameters of an honest node as known to the attacked receiver."""
        receiver, src, sent_s = message.receiver, message.src, message.sent_s
        if self.attackers.of(receiver) is None or not self.is_honest(src):
            return
        known = self._received.setdefault(receiver, {})
        for path, params in parameters_in(message.payload):
            place = path, params.size
            if sent_s >= self._newest_s.get((receiver, src, place), 0.0):  # an older one may arrive later
                self._newest_s[receiver, src, place] = sent_s
                known.setdefault(place, {})[src] = params

    def _note(self, known: dict[Place, Known], node: int, payload: Payload) -> None:
        for path, params in parameters_in(payload):
            known.setdefault((path, params.size), {})[node] = params

    def _not_withheld(self, attacks: NodeAttacks, receivers: Nodes, round_num: int, kind: str) -> Nodes:
        """Return the receivers of a message; the others stop waiting for it, at once or at the deadline."""
        chance = attacks.withholds(self.round_of(attacks.node, round_num))
        if not chance:
            return receivers
        rng, left = self._run.rng("withheld messages", attacks.node), []
        for receiver in receivers:
            if self.attackers.of(receiver) is not None or rng.random() >= chance:
                left.append(receiver)
            else:
                self.withheld(Message(attacks.node, receiver, round_num, kind, {}, 0))
        return tuple(left)

    def junk(self, message: Message) -> Message | None:
        """Return the junk that a flooding node adds to a message; none for requests and scores, which are small."""
        attacks = self.attackers.of(message.src) if message.kind in FLOODED else None
        factor = 0.0 if attacks is None else attacks.flood(self.round_of(message.src, message.round_num))
        if not factor:
            return None
        header_bytes = self._network.header_bytes
        size = round(factor * (message.payload_bytes + header_bytes))
        return Message(message.src, message.dst, message.round_num, JUNK, {JUNK: None}, size, header_bytes)

    def forget(self, node: int) -> None:
        """Forget a node's knowledge after it has lost its state."""
        super().forget(node)
        self._received.pop(node, None)
