"""Checks of an algorithm's calls and records, and bookkeeping of its node.

Calls are checked before they have any effect. Beginnings holds the parameters at the start of a node's trainings, for
aggregation rules and attacks that compare updates.

Deferred values are computed only when they are needed.

An algorithm's records are converted to values that metrics.jsonl can hold.

Sent records the receivers of a node's messages of a round: each receiver gets one message, since a second would replace
the first.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from operator import index
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ddlsim.foundation.errors import DdlsimError
from ddlsim.tasks.base import KNOWN, ROWS, rows_of

if TYPE_CHECKING:
    from ddlsim.learning.bank import Params
    from ddlsim.learning.job_types import Model
    from ddlsim.node.ports import Ports, Transport


def whole_steps(steps: Any) -> int:
    """Raise DdlsimError unless it is a number of mini-batches."""
    try:
        found = index(steps)
    except TypeError:
        found = -1
    if found < 0:
        raise DdlsimError(
            f"node.train: expected a whole number of mini-batches, 0 or more, as `steps`, got {steps!r}. Make one "
            "of what has been divided, by int(...)."
        )
    return found


def node_ids(peers: Iterable[Any], count: int, asked: str) -> tuple[int, ...]:
    """Return node ids as Python's integers.

    Args:
        peers: whole numbers, also of NumPy.
        count: number of nodes, a server included.
        asked: method of the node, for the error's text.
    Raises:
        DdlsimError: another type, or a node that does not exist.
    """
    try:
        found = tuple(map(index, peers))
    except TypeError as error:
        raise DdlsimError(
            f"node.{asked}: expected ids of nodes, such as node.peers(round_num), got {peers!r}."
        ) from error
    if found and not 0 <= min(found) <= max(found) < count:
        raise DdlsimError(f"node.{asked}: expected ids of nodes, 0 to {count - 1}, got {list(found[:10])}.")
    return found


def check_part(only: str, model: "Model") -> None:
    """Raise DdlsimError if a model has no part of this name."""
    names = [params.part.name for params in model]
    if only not in names:
        raise DdlsimError(
            f"node.train: expected the name of a part of the model that is given as `only`, {' or '.join(names)}, got "
            f"{only!r}. Models in parts come from node.init_models(); with whole=True they have one part, model."
        )


def batches_asked(batches: int | None, one_pass: int) -> int:
    """Return the mini-batches, at most one pass over the data; None: one pass. Raise DdlsimError if it is 0."""
    if batches is not None and batches < 1:
        raise DdlsimError(f"node.losses: expected at least one mini-batch, or None for one pass, got {batches}.")
    return one_pass if batches is None else min(batches, one_pass)


def check_has_samples(node_id: int, is_server: bool, asked: str) -> None:
    """Raise DdlsimError if an operation that needs samples is called on a server."""
    if is_server:
        raise DdlsimError(
            f"node.{asked}: node {node_id} is the server, which has no samples and no device to compute with. Ask "
            "node.is_server first, and let the nodes do it."
        )


def check_weights(sources: int, weights: int) -> None:
    """Raise DdlsimError unless there are parameters to merge, and a weight for each."""
    if sources != weights or not sources:
        raise DdlsimError(
            f"node.merge: expected as many weights as parameters, at least one, got {weights} weights of {sources}."
        )


class TrainingStarts:
    """Parameters trained by the node -> parameters at the start of that training, while the former are in use."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[Params, Params] = WeakKeyDictionary()

    def of(self, params: "Params") -> "Params | None":
        """Return the parameters at the start of the training; None if the node has not trained these parameters."""
        return self._of.get(params)

    def trained(self, model: "Model", begun: "Model") -> None:
        """Register the start and the result of a training, part by part."""
        for own, start in zip(model, begun, strict=True):
            if own is not start or own not in self._of:  # frozen parts keep the start of their last training
                # By a separate handle: otherwise the trainings of a node that merges nothing would keep each other
                # alive.
                self._of[own] = copy(start)

    def made(self, of: "Params", made: "Params", taken: "Callable[[Params], Params]" = lambda start: start) -> None:
        """Register parameters derived from others; `taken` derives their start."""
        if of in self._of:
            self._of[made] = taken(self._of[of])


def compared(ports: "Ports", node_id: int) -> bool:
    """Whether anything compares a node's trained parameters with those at the start of the training."""
    conduct = None if ports.attackers is None else ports.attackers.of(node_id)
    if conduct is not None and conduct.compares_updates:
        return True
    return ports.aggregation is not None and ports.aggregation.needs_start


class Deferred:
    """Value that is computed at the first call of this object.

    Until then the work waits, and similar work of other nodes runs with it in one wave.

    Args:
        compute: function that computes the value.
        wire_bytes: its bytes in a message; None: those of one number.
    """

    def __init__(self, compute: Callable[[], Any], wire_bytes: int | None = None):
        self.wire_bytes = wire_bytes
        self._compute: Callable[[], Any] | None = compute
        self._value: Any = None

    def __call__(self) -> Any:
        if self._compute is not None:
            self._value, self._compute = self._compute(), None
        return self._value

    def then(self, change: Callable[[Any], Any]) -> "Deferred":
        """Return a deferred function of this value."""
        return Deferred(lambda: change(self()))


WRITTEN = ROWS | rows_of(KNOWN.values())
"""Names of rows that the simulator may write, and that reports read."""


LARGEST = sys.float_info.max
"""Readers of metrics.jsonl read numbers as float64."""


def refuse_written(name: str, measured: Collection[str]) -> None:
    """Raise DdlsimError for a name that reports would mistake for a row of the simulator.

    Args:
        name: name of the row.
        measured: the rows of the run's metrics.
    """
    if type(name) is not str:
        raise DdlsimError(f"node.record: expected a text as the name of the rows, got {name!r}.")
    if name in WRITTEN or name in measured:
        raise DdlsimError(
            f"node.record: {name}: the simulator writes rows of this name, from which reports have their figures. "
            f"Choose another one, such as train_{name}."
        )


def plain(name: str, value: Any) -> Any:
    """Return a JSON value: scalars of NumPy and torch as Python numbers, arrays and tensors as lists.

    Args:
        name: name of the rows, for the error's text.
        value: value to be recorded.
    Raises:
        DdlsimError: unsupported type.
    """
    if type(value) is int and not -LARGEST <= value <= LARGEST:
        raise DdlsimError(
            f"node.record: {name}: expected a number up to {LARGEST:g}, got an integer of {value.bit_length()} bits."
        )
    if value is None or type(value) in (bool, int, float, str):  # nearly always
        return value
    if hasattr(value, "tolist"):  # arrays and tensors of any size
        value = value.tolist()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [plain(name, each) for each in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: plain(name, each) for key, each in value.items()}
    call = "; call it for its value" if callable(value) else ""
    raise DdlsimError(
        f"node.record: {name}: expected a number, a text, a truth value, None, or arrays, lists and mappings (with "
        f"texts as keys) of them, got a {type(value).__name__}{call}."
    )


class SendGuard:
    """Last round of a node's messages, and their receivers.

    Args:
        node_id: the sender.
        transport: knows which messages receivers have taken.
    """

    __slots__ = ("_node_id", "_receivers", "_round_num", "_transport")

    def __init__(self, node_id: int, transport: "Transport"):
        self._node_id = node_id
        self._transport = transport
        self.forget()

    def forget(self) -> None:
        """Forget all messages sent so far."""
        self._round_num = -1
        self._receivers: tuple[int, ...] | set[int] = ()

    def note(self, receivers: tuple[int, ...], round_num: int) -> None:
        """Raise DdlsimError for a second message to a node in a round, if it would replace the first one there."""
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
