"""Random programs: mailboxes in C++, filled without Python, equal plain mailboxes filled by Python."""

from itertools import pairwise

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from mailbox_reference import PlainMailboxes
from simpy import Environment
from small_network import equal_network

from ddlsim.network.messages.message import PUSH, RESPONSE, Message

NODES = 4
MANY_NODES = 6  # more messages of a round than a mailbox holds without an allocation
nodes, rounds, kinds = st.integers(0, NODES - 1), st.integers(0, 3), st.sampled_from((PUSH, RESPONSE))
some_nodes = st.lists(nodes, unique=True)

# -- separate mailboxes: every operation in sequence

many = st.integers(0, MANY_NODES - 1)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("announce"), many, many, rounds),
        st.tuples(st.just("deliver"), many, kinds, many, rounds),
        st.tuples(st.just("fail"), many, kinds, many, rounds),
        st.tuples(st.just("wait"), many, kinds, rounds, st.lists(many, unique=True), st.sampled_from((None, 1.0, 3.0))),
        st.tuples(st.just("take"), many, kinds, rounds, st.booleans()),
        st.tuples(st.just("take_all"), many, kinds, rounds),
        st.tuples(st.just("closed"), many, st.one_of(rounds, st.none())),
        st.tuples(st.just("leave"), many),
        st.tuples(st.just("return"), many),
        st.tuples(st.just("close"), many),
        st.tuples(st.just("pass"), st.sampled_from((0.5, 1.0, 2.0))),
    ),
    max_size=40,
)


class Alone:
    """Mailboxes without a network, and their unused messages."""

    def __init__(self, plain: bool):
        self.env = Environment()
        self.network = equal_network(self.env, MANY_NODES, 1.0, 1.0, on_delivery=lambda _: None)
        self.unused = [0] * MANY_NODES
        if plain:
            self.boxes = PlainMailboxes(self.env, MANY_NODES, self._count)
            self.announce, self.leave, self.back = self.boxes.announce, self.boxes.left, self.boxes.returned
        else:
            self.boxes = self.network.use_mailboxes()
            self.announce = self.network._transport.announce
            self.leave, self.back = self.network.remove_node, self.network.return_node
        self.plain = plain

    def _count(self, node: int, message: Message) -> None:
        self.unused[message.src] += message.payload_bytes if message.src != node else 0

    def play(self, program: list[tuple]) -> list:
        log = []
        for number, (what, *values) in enumerate(program):
            if what == "announce":
                self.announce(*values)
            elif what == "deliver":
                node, kind, sender, round_num = values
                self.boxes.deliver(Message(sender, node, round_num, kind, number, 2**number, 0))
            elif what == "wait":
                event = self.boxes.wait(*values)
                event.callbacks.append(lambda _, number=number: log.append(("woken", number, self.env.now)))
            elif what in ("take", "take_all"):
                log.append([message.payload for message in getattr(self.boxes, what)(*values)])
            elif what == "leave":
                self.leave(*values)
                self.boxes.clear(*values)
                self.boxes.reconsider(*values)
            elif what == "return":
                self.back(*values)
            elif what == "pass":
                self.env.run(until=self.env.now + values[0])
            else:
                getattr(self.boxes, what)(*values)
            while self.env.peek() <= self.env.now:
                self.env.step()
            log.append([self.boxes.waiting_for(node, kind) for node in range(MANY_NODES) for kind in (PUSH, RESPONSE)])
            log.append(self.unused[:] if self.plain else self.network.use().unused_bytes.tolist())
        return log


@given(operations)
def test_every_operation_equals_the_plain_mailboxes(program):
    assert Alone(plain=False).play(program) == Alone(plain=True).play(program)


# -- nodes that send, wait and take over a lossy network, with churn, deadlines and changing links

steps = st.tuples(  # of a node: rest, send, wait and take; a wait of None reads without waiting
    st.integers(0, 8),
    some_nodes,
    st.integers(0, 400),
    st.one_of(st.none(), some_nodes),
    st.sampled_from((None, None, 0.25, 1.0)),
    st.booleans(),
)
events = st.tuples(st.integers(0, 40), st.sampled_from(("leave", "capacity")), nodes, st.integers(1, 10))
worlds = st.fixed_dictionaries(
    {
        "lives": st.lists(st.lists(steps, max_size=5), min_size=NODES, max_size=NODES),
        "events": st.lists(events, max_size=5),
        "capacity": st.lists(st.integers(50, 1500), min_size=NODES, max_size=NODES),
        "latency_s": st.sampled_from((0.0, 0.25, 0.1)),
        "fidelity": st.sampled_from(("flow", "flow", "latency", "ideal")),
        "drop_prob": st.sampled_from((0.0, 0.0, 0.4)),
        "on_drop": st.sampled_from(("retransmit", "drop")),
        "timeout_s": st.sampled_from((None, None, 0.2)),
        "by_hand": st.booleans(),
    }
)
TICK_S = 0.125


class World:
    """The same nodes, with mailboxes filled by the network or plain ones filled by Python."""

    def __init__(self, plain: bool, world: dict):
        self.plain, self.world, self.log = plain, world, []
        self.env = Environment()
        capacity = np.array(world["capacity"], dtype=float)
        self.network = equal_network(
            self.env,
            NODES,
            capacity,
            capacity[::-1],
            world["latency_s"],
            fidelity=world["fidelity"],
            on_delivery=self._delivered,
            on_abort=self._fail,
            drop_prob=world["drop_prob"],
            on_drop=world["on_drop"],
            timeout_s=world["timeout_s"],
        )
        if plain:
            self.boxes = PlainMailboxes(self.env, NODES, lambda _, message: self.network.unused(message))
        else:
            self.boxes = self.network.use_mailboxes()
        self.closed_rounds, self.away = [0] * NODES, set()
        for node, life in enumerate(world["lives"]):
            self.env.process(self._live(node, life))
        for event in sorted(world["events"]):
            self.env.process(self._happen(*event))

    def _delivered(self, message: Message) -> None:
        self.log.append(("by hand", self.env.now, message.src, message.dst)) if message.kind == "note" else None
        if message.kind == PUSH:
            self.boxes.deliver(message)

    def _fail(self, message: Message) -> None:
        self.log.append(("failed", self.env.now, message.src, message.dst))
        if message.kind == PUSH:
            self.boxes.fail(message.dst, PUSH, message.src, message.round_num)

    def _send(self, node: int, peers: list[int], round_num: int, size: int) -> None:
        peers = tuple(peer for peer in peers if peer not in self.away)
        if node in self.away or not peers:
            return
        streams = ("somebody listens",) if self.world["by_hand"] else ()
        self.network.send([Message(node, peers, round_num, PUSH, (node, round_num, size), size, 3, streams)])
        if self.plain:
            for peer in peers:
                self.boxes.announce(peer, node, round_num)
        self.network.send([Message(node, peers[0], round_num, "note", None, size // 2, 0)])

    def _live(self, node: int, life: list[tuple]):
        for round_num, (rest, peers, size, senders, deadline_s, late_too) in enumerate(life):
            yield self.env.timeout(rest * TICK_S)
            self._send(node, peers, round_num, size)
            if senders is None:
                taken = self.boxes.take_all(node, PUSH, round_num - 1)
            else:
                yield self.boxes.wait(node, PUSH, round_num, senders, deadline_s)
                taken = self.boxes.take(node, PUSH, round_num, late_too)
            self.log.append(("took", self.env.now, node, [message.payload for message in taken]))
            self.closed_rounds[node] = round_num + 1
            self.boxes.closed(node, round_num + 1)
        self.boxes.close(node)
        self.boxes.closed(node, None)

    def _happen(self, tick: int, what: str, node: int, value: int):
        yield self.env.timeout(tick * TICK_S)
        if what == "capacity":
            self.network.set_capacity(node, 100.0 * (value - 1), 100.0 * value)
        elif node not in self.away:
            self.away.add(node)
            self.network.remove_node(node)
            if self.plain:
                self.boxes.left(node)
            self.boxes.clear(node)
            self.boxes.reconsider(node)
            yield self.env.timeout(value * TICK_S)
            self.away.discard(node)
            self.network.return_node(node)
            if self.plain:
                self.boxes.returned(node)

    def play(self) -> tuple:
        self.env.run()
        use = list(self.network.use().rows())
        return (
            self.env.now,
            self.log,
            [self.boxes.waiting_for(node) for node in range(NODES)],
            use,
            list(self.network.traffic.rows()),
        )


def stalled() -> dict:
    """Return messages whose latency ends on a permanently stalled link; the run lasts until then."""
    rest = (0, [], 0, None, None, False)
    return {
        "lives": [[], [], [rest, rest, rest, (1, [0, 1, 2], 2, None, None, False)], []],
        "events": [(0, "capacity", 2, 1)],
        "capacity": [50] * NODES,
        "latency_s": 0.25,
        "fidelity": "flow",
        "drop_prob": 0.0,
        "on_drop": "retransmit",
        "timeout_s": None,
        "by_hand": False,
    }


@given(worlds)
@example(stalled())
def test_network_and_python_fill_mailboxes_alike(world):
    ours, plain = World(False, world).play(), World(True, world).play()
    times_s = [entry[1] for entry in ours[1]]
    assert all(before <= after for before, after in pairwise(times_s))
    assert ours == plain
