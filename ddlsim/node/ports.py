"""The five ports through which a node reaches the rest of a run. An algorithm uses its node; a node uses these ports.

One object implements each port for all nodes, so methods take the node's id if they need it. The engine implements
Clock and Transport.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from ddlsim.network.messages.encoder import Payload
from ddlsim.network.messages.message import Keys, Message
from ddlsim.node.run import Run

if TYPE_CHECKING:
    import simpy

    from ddlsim.aggregation.base import Aggregation
    from ddlsim.attacks.node_attacks import Attackers
    from ddlsim.learning.bank import Params as Params
    from ddlsim.learning.job_types import Model as Model
    from ddlsim.learning.learner import Learner
    from ddlsim.learning.size_learner import SizeLearner
else:
    Model = Params = Any  # at run time, so that algorithms do not import torch


class Clock(Protocol):
    """Simulated time, and the simulated duration of computing."""

    @property
    def now_s(self) -> float:
        """Simulated seconds since the start."""

    def after(self, seconds: float) -> "simpy.Event":
        """Return an event this number of seconds from now."""

    def event(self) -> "simpy.Event":
        """Return an event that has not happened yet."""

    def computing_s(self, node: int, steps: float, forward_passes: float = 0) -> float:
        """Return the seconds of a node's device for these local steps and forward passes if it starts now."""


OnLeave = Literal["rebuild", "continue"]
"""Effect of a member that leaves during a collective, see engine/collectives.py."""


@dataclass(frozen=True)
class CollectiveCall:
    """Arguments of a collective operation, equal for all its members.

    Args:
        verb: all_reduce, reduce_scatter, all_gather or broadcast.
        group: its members.
        round_num: the round.
        algorithm: name of its schedule, see network/collective_schedules.py.
        on_leave: effect of a member that leaves.
        root: the member whose content a broadcast sends.
        sites: members of each site, for the algorithm `hierarchical`.
    """

    verb: str
    group: tuple[int, ...]
    round_num: int
    algorithm: str
    on_leave: OnLeave = "rebuild"
    root: int | None = None
    sites: tuple[tuple[int, ...], ...] = ()

    @property
    def options(self) -> str:
        """The arguments that members may have chosen differently, for messages."""
        return f"algorithm={self.algorithm}, on_leave={self.on_leave}, root={self.root}, sites={list(self.sites)}"


class Transport(Protocol):
    """Messages of all nodes, as pushes, and as pulls of a node's publications. Messages are ordered by sender."""

    def push(self, sender: int, receivers: Iterable[int], round_num: int, payload: Payload) -> None:
        """Send the payload to every receiver; nothing can be sent to offline nodes."""

    def publish(self, node: int, round_num: int, stage: int | None, payload: dict[str, Any]) -> None:
        """Answer pulls with this payload from now on, including waiting pulls."""

    def pull(
        self, node: int, peers: Sequence[int], round_num: int, keys: Keys, stages: Mapping[int, int] | None
    ) -> None:
        """Ask peers for their publications."""

    def ask_for_scores(self, node: int, peers: Sequence[int], round_num: int, model: "Model") -> None:
        """Ask peers for the loss of a model on their training samples."""

    def exchange(self, node: int, peers: Sequence[int], round_num: int, payload: Payload) -> None:
        """Offer the payload to peers; each answers when it arrives (`Algorithm.answer`)."""

    def starts_with(self, node: int, models: "Sequence[Model]") -> None:
        """Register models that a node has drawn, which contain no information on data; private messages contain the
        change since then.
        """

    def collective(
        self, node: int, call: CollectiveCall, content: Any, wire_bytes: int | None
    ) -> "tuple[simpy.Event, Callable[[], dict[int, Any]]]":
        """Start a member's part of a collective; return the event of its end, and the function that then returns the
        contents that count, by node.

        Args:
            node: the member.
            call: arguments of the collective.
            content: parameters, or mappings and lists of them; None: it only receives.
            wire_bytes: their bytes on the wire; None: by type and network.compression.
        """

    def wait(self, node: int, kind: str, round_num: int, senders: Sequence[int]) -> "simpy.Event":
        """Return an event that happens when every message of this round that can still arrive from the senders has
        arrived, or at the round's deadline.

        Args:
            node: the node that waits.
            kind: kind of the messages: PUSH, RESPONSE or SCORE of network/messages/message.py.
            round_num: the round; messages of other rounds do not count.
            senders: the nodes whose messages the node waits for.
        """

    def take(self, node: int, kind: str, round_num: int) -> list[Message]:
        """Return the messages of a round after the wait for it, and forget the messages of this and earlier rounds.

        Args:
            node: the receiver.
            kind: as in `wait`.
            round_num: the round that ends; with protocol.late_messages `keep`, the result includes, for senders
                without a message of this round, the newest message that arrived after its own round had ended.

        Returns:
            At most one message of each sender.
        """

    def has_taken(self, node: int, round_num: int) -> bool:
        """Whether this is the last round whose pushed messages the node has taken."""

    def take_newest(self, node: int, kind: str, oldest_round: int, newest_round: int) -> list[Message]:
        """Return the newest message of every sender, if it is no older than protocol.staleness_s; only messages of
        later rounds are kept.

        Args:
            node: the receiver.
            kind: as in `wait`.
            oldest_round: messages of earlier rounds are left out.
            newest_round: messages of later rounds are neither returned nor removed.
        """


Compute: TypeAlias = "Learner | SizeLearner"
"""Real learning (learning/learner.py), or its placeholder with the same methods in network-only runs. Every call
returns at once; work is done when its value is needed (learning/jobs.py).
"""


@dataclass(frozen=True, slots=True)
class Log:
    """Rows that nodes write into the run's records; by default none, as in network-only runs, whose values are
    placeholders.

    Args:
        row: (time_s, node, completed, name, value) ; writes one value; `completed` counts its round as completed.
        measure: (time_s, node, completed, name, model, local_state) ; writes rows of a model's accuracy and loss on the
            node's validation samples, once they are known.
        measured: names of the rows of the run's metrics, which nodes may not write.
        trained: (time_s, node, completed, steps, losses) ; notes the losses of a finished training, of as many pieces
            as it was cut into, and its steps in all.
    """

    row: Callable[..., None] = lambda *_: None
    measure: Callable[..., None] = lambda *_: None
    measured: Collection[str] = ()
    trained: Callable[..., None] = lambda *_: None


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of one run, its aggregation rule (None: the algorithm's plain average), its attackers (None: all nodes are
    honest), and the counter of (node, round, steps) of private trainings.
    """

    clock: Clock
    transport: Transport
    compute: Compute
    run: Run
    log: Log
    aggregation: "Aggregation | None" = None
    attackers: "Attackers | None" = None
    released: Callable[[int, int, int], None] | None = None
