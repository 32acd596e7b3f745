"""What travels between the simulation and workers, and from worker to worker; plain data, all of it picklable."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

    from ddlsim.learning.job_types import JobSpec
    from ddlsim.learning.layout import Part

Ref = Any
"""What a call will return, to be waited for or handed on to another worker."""


@dataclass(frozen=True)
class Block:
    """Rows on their way, those of one part together.

    Args:
        pieces: number of the part, numbers of n rows int64 [n], their values float32 [n, P].
    """

    pieces: "tuple[tuple[int, np.ndarray, np.ndarray], ...]"


@dataclass(frozen=True)
class Drawn:
    """Fresh models that a worker draws by itself, so that they need not travel.

    Args:
        architecture: its name.
        seed, count: see Architecture.draw.
        rows: place among the drawn models, number of the part, number of the row.
    """

    architecture: str
    seed: int
    count: int
    rows: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Wave:
    """Jobs of one kind for one worker.

    Args:
        kind: of all jobs.
        specs: the jobs.
        outputs: numbers of the rows that they fill, of those that something holds, and of their parts.
        drawn: rows that it has to draw first.
        released: rows that nothing holds any more.
        parts: those whose numbers the worker does not know yet.
    """

    kind: str
    specs: "Sequence[JobSpec]"
    outputs: tuple[tuple[int, int], ...]
    drawn: tuple[Drawn, ...]
    released: tuple[int, ...]
    parts: "dict[int, Part]"


class Workers(Protocol):
    """The processes that compute, each with a Shard (shard.py). Calls to one worker are run in their order."""

    count: int
    block_bytes: int
    """Rows under way from worker to worker should not be more."""

    def call(self, worker: int, method: str, *arguments: Any) -> Ref:
        """Begins a call of a Shard's method; arguments may be what other calls will return."""

    def calls(self, worker: int, method: str, results: int, *arguments: Any) -> list[Ref]:
        """The same of a method that returns so many results, each of which can be handed on by itself."""

    def wait(self, ref: Ref) -> Any:
        """What a call has returned.

        Raises:
            WorkerLost: if its worker, or one whose rows it needs, is there no more.
            Exception: what the call has raised.
        """

    def packed(self, value: Any) -> bytes:
        """Bytes that a worker can unpickle."""

    def close(self) -> None:
        """Ends the processes."""
