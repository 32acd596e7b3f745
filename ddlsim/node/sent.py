"""Whom a node has sent a message of its round: each receiver gets one, a second would take the place of the first."""

from typing import TYPE_CHECKING

from ddlsim.errors import DdlsimError

if TYPE_CHECKING:
    from ddlsim.node.ports import Transport


class Sent:
    """The round that a node has sent messages of last, and their receivers.

    Args:
        node_id: the sender.
        transport: knows what receivers have taken.
    """

    __slots__ = ("_node_id", "_receivers", "_round_num", "_transport")

    def __init__(self, node_id: int, transport: "Transport"):
        self._node_id = node_id
        self._transport = transport
        self.forget()

    def forget(self) -> None:
        """What it has sent so far is void."""
        self._round_num = -1
        self._receivers: tuple[int, ...] | set[int] = ()

    def note(self, receivers: tuple[int, ...], round_num: int) -> None:
        """Raises DdlsimError for a second message to a node in a round, if it would replace the first one there."""
        if round_num != self._round_num:
            self._round_num, self._receivers = round_num, receivers
            return
        before = self._receivers if isinstance(self._receivers, set) else set(self._receivers)
        for receiver in receivers:
            if receiver in before and not self._transport.has_taken(receiver, round_num):
                raise DdlsimError(
                    f"node.send: node {self._node_id} has sent to node {receiver} in round {round_num} already, which "
                    "has not received it yet and gets one message of each node and round. Send all contents by one "
                    "call, or publish stages of the round, node.publish(round_num, stage=1, ...), for node.pull(peers, "
                    "round_num, stages=...)."
                )
        before.update(receivers)
        self._receivers = before
