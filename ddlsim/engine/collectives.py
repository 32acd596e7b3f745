"""Collective operations in progress: their schedules run as messages between members that may leave.

Members call a collective in any order; verb, group, round and the number of the call in that round identify it. A flow
starts once both of its ends have called, and all flows of their earlier steps have arrived (as large messages of MPI
wait for the receiver; see network/collective_schedules.py). A member continues when all flows from it and to it have
arrived. So a straggler delays only members that depend on it, from the first step at which they do.

The collective drops a member that leaves, or whose round has ended without a call. Before any member has the result,
the dropped member's contribution does not count, and the collective starts again with the other members: bytes sent so
far are wasted, and flows under way still arrive. With `on_leave: continue` the other members continue instead: members
that have sent to the dropped member in an earlier step send to its receivers in its place. Once one member has the
result, contributions are final, and the other members continue in this way in either case.

The result is computed from the contributions at the end, in one job for all members. The network carries the bytes.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import simpy

from ddlsim.engine.clock import RunParts
from ddlsim.foundation.errors import DdlsimError
from ddlsim.network.collective_schedules import SCHEDULES
from ddlsim.network.messages.message import COLLECTIVE, Message
from ddlsim.node.ports import CollectiveCall

MOST_SENDINGS = 1000
"""Maximum number of times that a flow is sent because of losses, before the run fails."""


@dataclass(eq=False, slots=True)
class Flow:
    """One flow of a collective; a message carries it as its content."""

    of: "Collective"
    step: int
    src: int
    dst: int
    num_bytes: int
    sendings: int = 0
    message: Message | None = None
    void: bool = False

    @property
    def arrived(self) -> bool:
        """Whether its message has arrived."""
        return self.message is not None


class Collective:
    """A collective in progress.

    Args:
        call: arguments, the same for all members.
        members: nodes that take part, in the order of the group; the root of a broadcast is first.
        links: sender of its flows.

    Attributes:
        contributions: contents of the members that have called, by node.
        present: members whose contributions count; None: no member has the result yet.
    """

    def __init__(self, call: CollectiveCall, members: list[int], links: "Collectives"):
        self.call, self.members, self._links = call, members, links
        self.contributions: dict[int, Any] = {}
        self.present: tuple[int, ...] | None = None
        self._events: dict[int, simpy.Event] = {}
        self._ended: set[int] = set()
        self._num_bytes: int | None = None  # of a contribution; None: none is known
        self._flows: list[Flow] = []
        self._steps: dict[int, list[list[Flow]]] = {}  # of each member, without empty steps
        self._at: dict[int, int] = {}  # of members that have called the current step
        self._open: dict[int, int] = {}  # and the number of its flows that have not arrived

    def join(self, node: int, call: CollectiveCall, content: Any, num_bytes: int | None, event: simpy.Event) -> None:
        """Start a member's part.

        Args:
            node: the member.
            call: its arguments.
            content: its contribution; None if it has none.
            num_bytes: bytes of the contribution; None if it has none.
            event: event that succeeds at the end of its part.

        Raises:
            DdlsimError: other arguments, or bytes, than those of other members.
        """
        known = self._num_bytes
        if call != self.call or (num_bytes is not None and known is not None and num_bytes != known):
            raise DdlsimError(
                f"node.{call.verb}: expected equal arguments from all members, got {self.call.options}, {known} bytes, "
                f"and then from node {node} {call.options}, {num_bytes} bytes. Pass the same arguments everywhere."
            )
        self._events[node] = event
        if num_bytes is not None:
            self.contributions[node] = content
        if self._has_lost_root:
            self._end([node])
        elif known is None and num_bytes is not None:
            self._num_bytes = num_bytes
            self._build()
            self._advance(list(self._events))
        else:
            self._advance([node])

    def result(self) -> dict[int, Any]:
        """Return the contributions in the result, by node, ascending."""
        return {node: self.contributions[node] for node in sorted(self.present or ())}

    def has_called(self, node: int) -> bool:
        """Whether a member has called."""
        return node in self._events

    def missing(self, node: int) -> list[int]:
        """Return the members that a member waits for: those that have not called, or else those that send to it."""
        if node not in self._events or node in self._ended:
            return []
        late = [each for each in self.members if each not in self._events]
        return late or sorted({each.src for each in self._flows if each.dst == node and not each.arrived})

    @property
    def over(self) -> bool:
        """Whether all members have ended."""
        return len(self._ended) == len(self.members)

    @property
    def _has_lost_root(self) -> bool:
        return self.present in (None, ()) and self.call.root is not None and self.call.root not in self.members

    def arrived(self, flow: Flow) -> None:
        """Continue after the arrival of a flow."""
        for end in (flow.src, flow.dst):
            self._open[end] -= 1
        self._advance([end for end in (flow.src, flow.dst) if not self._open[end]])

    def drop(self, node: int) -> None:
        """Continue without a member, or start again."""
        self.members.remove(node)
        self._events.pop(node, None)
        self._ended.discard(node)
        if self.present is None:
            self.contributions.pop(node, None)
        if self._has_lost_root:
            self._use([])
            self._end(self._events)
        elif self._num_bytes is not None:
            if self.call.on_leave == "continue" or self.present is not None:
                self._bypass(node)
            else:
                self._build()
            self._advance(list(self._events))

    def forget_flows(self) -> None:
        """Release the messages of a collective that is over; its members may still read the result."""
        self._use([])

    def _build(self) -> None:
        """Plan the flows of the current members."""
        members, call = self.members, self.call
        place = {member: number for number, member in enumerate(members)}
        sites = [[place[member] for member in site if member in place] for site in call.sites]
        schedule = SCHEDULES[call.verb][call.algorithm](len(members), self._num_bytes or 0, [s for s in sites if s])
        for flow in self._flows:
            if flow.message is not None:
                self._links.discard(flow.message)
        steps = enumerate(schedule)
        self._use(Flow(self, step, members[i], members[j], size) for step, flows in steps for i, j, size in flows)

    def _bypass(self, gone: int) -> None:
        """Let the members that sent to a dropped member in an earlier step send to its receivers, too."""
        to_gone = [flow for flow in self._flows if flow.dst == gone]
        flows = [flow for flow in self._flows if gone not in (flow.src, flow.dst)]
        for flow in self._flows:
            if flow.src == gone and not flow.arrived:
                last = max((each.step for each in to_gone if each.step < flow.step), default=None)
                sources = [each.src for each in to_gone if each.step == last and each.src != flow.dst]
                flows += [Flow(self, flow.step, source, flow.dst, flow.num_bytes) for source in sources]
        self._use(flows)

    def _use(self, flows: Iterable[Flow]) -> None:
        """Replace the flows; each member continues at its first step with a flow that has not arrived."""
        before = self._flows
        for flow in before:
            flow.void = True
        self._flows = sorted(flows, key=attrgetter("step"))
        by_step: dict[int, dict[int, list[Flow]]] = {member: defaultdict(list) for member in self.members}
        for flow in self._flows:
            flow.void = False
            by_step[flow.src][flow.step].append(flow)
            by_step[flow.dst][flow.step].append(flow)
        for flow in before:
            if flow.void:
                flow.message = None  # else they would hold each other, and the contributions
        self._steps = {member: list(steps.values()) for member, steps in by_step.items()}
        self._at = {}

    def _advance(self, nodes: Sequence[int]) -> None:
        """Move members to their next step with a flow that has not arrived, and send the flows that are ready."""
        if self._num_bytes is None:
            return
        moved = []
        for node in nodes:
            if node not in self._events:
                continue
            steps, at = self._steps[node], self._at.get(node, 0)
            while at < len(steps) and all(flow.arrived for flow in steps[at]):
                at += 1
            self._at[node] = at
            if at == len(steps):
                self._end([node])
            else:
                moved.append(node)
                self._open[node] = sum(not flow.arrived for flow in steps[at])
        ready = [flow for node in moved for flow in self._steps[node][self._at[node]] if self._is_ready(flow)]
        if ready:
            self._links.transmit(list(dict.fromkeys(ready)))

    def _is_ready(self, flow: Flow) -> bool:
        """Whether a flow has not been sent, and both of its ends are in its step."""
        return not flow.sendings and all(self._step_of(end) == flow.step for end in (flow.src, flow.dst))

    def _step_of(self, node: int) -> int:
        """Return the current step of a member; -1 before its call and after its last step."""
        steps, at = self._steps[node], self._at.get(node)
        return -1 if at is None or at == len(steps) else steps[at][0].step

    def _end(self, nodes: Iterable[int]) -> None:
        """End the parts of members; contributions are final after the first end."""
        for node in nodes:
            if node in self._ended:
                continue
            if self.present is None:
                self.present = tuple(member for member in self.members if member in self.contributions)
            self._ended.add(node)
            self._events[node].succeed()


class Collectives:
    """All collectives in progress of one run.

    Args:
        parts: objects of the run.
        send: function that passes messages to the network.

    Attributes:
        in_progress: collectives by verb, group, round and number.
    """

    def __init__(self, parts: RunParts, send: Callable[[list[Message]], None]):
        self._members, self._run, self._clock, self._network = parts.members, parts.run, parts.clock, parts.network
        self._send = send
        self.in_progress: dict[tuple, Collective] = {}
        self._counts: dict[int, dict[tuple, int]] = defaultdict(dict)  # node -> (verb, group, round) -> its calls

    def start(
        self, node: int, call: CollectiveCall, content: Any, num_bytes: int | None
    ) -> tuple[simpy.Event, Collective]:
        """Start a member's part; return the event of its end, and the collective."""
        channel = call.verb, call.group, call.round_num
        number = self._counts[node][channel] = self._counts[node].get(channel, 0) + 1
        key = *channel, number
        found = self.in_progress.get(key)
        if found is None:
            ordered = sorted(call.group, key=lambda member: member != call.root)  # stable: the root is first
            members = [each for each in ordered if each == node or self._may_call(each, channel, number)]
            found = self.in_progress[key] = Collective(call, members, self)
        elif node not in found.members:  # it has returned; the others continue without it
            found = Collective(call, [node], self)
        event = self._clock.event()
        found.join(node, call, content, num_bytes, event)
        self._forget_over()
        return event, found

    def arrived(self, message: Message) -> None:
        """Handle the arrival of a flow."""
        (flow,) = message.payload.values()
        if flow.void:
            self.discard(message)
            return
        flow.message = message
        flow.of.arrived(flow)
        if flow.of.over:
            self._forget_over()

    def failed(self, message: Message) -> None:
        """Send a flow that was lost again, unless one of its ends has left."""
        (flow,) = message.payload.values()
        if not flow.void and self._members[flow.src].online and self._members[flow.dst].online:
            self.transmit([flow])

    def left(self, node: int) -> None:
        """Drop a node that has left from all collectives."""
        self._counts.pop(node, None)
        self._drop(node, lambda _: True)

    def round_closed(self, node: int, next_round: int | None) -> None:
        """Drop a node from collectives of rounds before `next_round` (None: of all rounds) that it has not called."""
        self._drop(
            node, lambda one: not one.has_called(node) and (next_round is None or one.call.round_num < next_round)
        )

    def waiting_for(self, node: int) -> list[tuple[str, int, list[int]]]:
        """Return, for each collective that a node waits in, the verb, the round, and the awaited nodes."""
        found = [(f"node.{one.call.verb}", one.call.round_num, one.missing(node)) for one in self.in_progress.values()]
        return [each for each in found if each[2]]

    def discard(self, message: Message) -> None:
        """Count the bytes of an arrived message as wasted."""
        self._network.unused(message)

    def transmit(self, flows: Sequence[Flow]) -> None:
        """Send flows."""
        header_bytes, messages = self._network.header_bytes, []
        for flow in flows:
            flow.sendings += 1
            call = flow.of.call
            if flow.sendings > MOST_SENDINGS:
                text = f"a message from node {flow.src} to node {flow.dst} was lost {MOST_SENDINGS} times in a row"
                raise DdlsimError(f"node.{call.verb}: {text}. Raise network.timeout_s.")
            payload = {call.verb: flow}
            messages.append(
                Message(flow.src, flow.dst, call.round_num, COLLECTIVE, payload, flow.num_bytes, header_bytes)
            )
        self._send(messages)

    def _drop(self, node: int, applies: Callable[[Collective], bool]) -> None:
        for one in list(self.in_progress.values()):
            if node in one.members and applies(one):
                one.drop(node)
        self._forget_over()

    def _forget_over(self) -> None:
        for key in [key for key, one in self.in_progress.items() if one.over]:
            self.in_progress.pop(key).forget_flows()

    def _may_call(self, node: int, channel: tuple, number: int) -> bool:
        """Whether a node may still make the call of this number in its round."""
        may_join = self._members[node].has_yet_to_do(channel[-1]) and self._run.takes_part(node, channel[-1])
        return may_join and self._counts[node].get(channel, 0) < number
