"""What an algorithm asks of a node, checked before anything of it is done."""

from collections.abc import Iterable
from operator import index
from typing import TYPE_CHECKING, Any

from ddlsim.errors import DdlsimError

if TYPE_CHECKING:
    from ddlsim.learning.job_types import Model


def whole_steps(steps: Any) -> int:
    """Raises DdlsimError unless it is a number of mini-batches."""
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
    """Raises DdlsimError if a model has no part of this name."""
    names = [params.part.name for params in model]
    if only not in names:
        raise DdlsimError(
            f"node.train: expected the name of a part of the model that is given as `only`, {' or '.join(names)}, got "
            f"{only!r}. Models in parts come from node.init_models(); with whole=True they have one part, model."
        )


def batches_asked(batches: int | None, one_pass: int) -> int:
    """At most one pass over the data, which is what None asks for. Raises DdlsimError if none is asked for."""
    if batches is not None and batches < 1:
        raise DdlsimError(f"node.losses: expected at least one mini-batch, or None for one pass, got {batches}.")
    return one_pass if batches is None else min(batches, one_pass)


def check_has_samples(node_id: int, is_server: bool, asked: str) -> None:
    """Raises DdlsimError if a server is asked for what takes samples."""
    if is_server:
        raise DdlsimError(
            f"node.{asked}: node {node_id} is the server, which has no samples and no device to compute with. Ask "
            "node.is_server first, and let the nodes do it."
        )


def check_weights(sources: int, weights: int) -> None:
    """Raises DdlsimError unless there is a weight for each of the parameters to be merged, of which there are some."""
    if sources != weights or not sources:
        raise DdlsimError(
            f"node.merge: expected as many weights as parameters, at least one, got {weights} weights of {sources}."
        )
