"""Checks of the arguments of a node's methods, before they have any effect.

Recorded values are converted to values that metrics.jsonl can hold. A node sends each receiver one message of a round,
since a second one would replace the first.
"""

import sys
from collections.abc import Collection, Iterable, Mapping
from operator import index
from typing import Any

from ddlsim.foundation.errors import DdlsimError
from ddlsim.node.ports import Model, Transport
from ddlsim.tasks.base import KNOWN, ROWS, rows_of


def step_count(steps: Any) -> int:
    """Return a number of mini-batches as an integer. Raise DdlsimError for another value."""
    try:
        count = index(steps)
    except TypeError:
        count = -1
    if count < 0:
        text = f"expected a whole number of mini-batches, 0 or more, got {steps!r}"
        raise DdlsimError(f"node.train: steps: {text}. Round the result of a division with int(...).")
    return count


def node_ids(peers: Iterable[Any], count: int, method: str) -> tuple[int, ...]:
    """Return node ids as Python's integers.

    Args:
        peers: whole numbers, also of NumPy.
        count: number of nodes, a server included.
        method: method of the node, for the error's text.
    Raises:
        DdlsimError: another type, or a node that does not exist.
    """
    try:
        found = tuple(map(index, peers))
    except TypeError as error:
        text = f"expected ids of nodes, such as node.peers(round_num), got {peers!r}"
        raise DdlsimError(f"node.{method}: {text}.") from error
    if found and not 0 <= min(found) <= max(found) < count:
        raise DdlsimError(f"node.{method}: expected ids of nodes, 0 to {count - 1}, got {list(found[:10])}.")
    return found


def check_part(only: str, model: "Model") -> None:
    """Raise DdlsimError if a model has no part of this name."""
    names = [params.part.name for params in model]
    if only not in names:
        text = f"expected the name of a part of the model as `only`, {' or '.join(names)}, got {only!r}"
        raise DdlsimError(f"node.train: {text}. Models in parts come from node.init_models().")


def check_piece(steps: int, done: int, of: int, after_step: bool) -> None:
    """Raise DdlsimError if a training of `of` steps has fewer left than a piece needs, or a function after each."""
    if done + steps > of or after_step:
        text = f"expected at most {of - done} more steps of {of}, and no after_step, got {steps} steps"
        raise DdlsimError(f"node.train: of: {text}. Cut the training into pieces that sum to it.")


def check_has_samples(node_id: int, is_server: bool, method: str) -> None:
    """Raise DdlsimError if an operation that needs samples is called on a server."""
    if is_server:
        text = f"expected a node with samples and a device, got node {node_id}, the server"
        raise DdlsimError(f"node.{method}: {text}. Check node.is_server before the call.")


SIMULATOR_ROWS = ROWS | rows_of(KNOWN.values())
"""Names of rows that the simulator may write, and that reports read."""


LARGEST = sys.float_info.max
"""Readers of metrics.jsonl read numbers as float64."""


def refuse_simulator_rows(name: str, measured: Collection[str]) -> None:
    """Raise DdlsimError for a name that reports would mistake for a row of the simulator.

    Args:
        name: name of the row.
        measured: the rows of the run's metrics.
    """
    if type(name) is not str:
        raise DdlsimError(f"node.record: expected a text as the name of the rows, got {name!r}.")
    if name in SIMULATOR_ROWS or name in measured:
        text = "expected a name of your choice, got the name of rows that the simulator writes"
        raise DdlsimError(f"node.record: {name}: {text}. Use another name, such as train_{name}.")


def to_json_value(name: str, value: Any) -> Any:
    """Return a JSON value: scalars of NumPy and torch as Python numbers, arrays and tensors as lists.

    Args:
        name: name of the rows, for the error's text.
        value: value to be recorded.
    Raises:
        DdlsimError: unsupported type.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, int) and abs(value) > LARGEST:
        text = f"expected a number up to {LARGEST:g}, got an integer of {value.bit_length()} bits"
        raise DdlsimError(f"node.record: {name}: {text}.")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [to_json_value(name, each) for each in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: to_json_value(name, each) for key, each in value.items()}
    call = "; call it for its value" if callable(value) else ""
    kinds = "a number, a text, a boolean, None, or arrays, lists and mappings (with texts as keys) of them"
    raise DdlsimError(f"node.record: {name}: expected {kinds}, got a {type(value).__name__}{call}.")


class SendGuard:
    """Last round of a node's messages, and their receivers.

    Args:
        node_id: the sender.
        transport: port that records which messages receivers have taken.
    """

    def __init__(self, node_id: int, transport: Transport):
        self._node_id, self._transport = node_id, transport
        self.forget()

    def forget(self) -> None:
        """Forget all messages sent so far."""
        self._round_num = -1
        self._receivers: set[int] = set()

    def note(self, receivers: tuple[int, ...], round_num: int) -> None:
        """Raise DdlsimError for a second message to a node in a round, if it would replace the first one there."""
        if round_num != self._round_num:
            self._round_num, self._receivers = round_num, set()
        for receiver in receivers:
            if receiver in self._receivers and not self._transport.has_taken(receiver, round_num):
                raise DdlsimError(
                    "node.send: expected one message per receiver and round, got a second one from node "
                    f"{self._node_id} to node {receiver} in round {round_num}. Send all contents by one call, or "
                    "publish stages of the round (node.publish(round_num, stage=1, ...))."
                )
        self._receivers.update(receivers)
