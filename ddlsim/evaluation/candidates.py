"""What an algorithm hands over to be evaluated."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from ddlsim.errors import DdlsimError

if TYPE_CHECKING:
    from ddlsim.learning.job_types import Model

Choice = Literal["train_loss", "validation_loss", "lowest_test_loss"]


@dataclass(frozen=True)
class EvaluationCandidates:
    """What a node would answer queries with.

    Args:
        models: candidates, whole models in parts.
        choose: the data whose loss picks one of several candidates. `lowest_test_loss` peeks at the test set.
    Raises:
        DdlsimError: if there is no such choice, or no model.
    """

    models: "Sequence[Model]"
    choose: Choice = "train_loss"

    def __post_init__(self) -> None:
        if isinstance(self.models, list | tuple) and not self.models:
            raise DdlsimError("EvaluationCandidates: expected at least one model, such as [(state.model,)], got none.")
        if self.choose not in get_args(Choice):
            raise DdlsimError(
                f"EvaluationCandidates: choose: expected {', '.join(get_args(Choice))}, got {self.choose!r}."
            )


@dataclass(frozen=True)
class Snapshot:
    """What a node held when it completed an evaluated round.

    Args:
        time_s: simulated time.
        bytes_sent: bytes it had put on the wire.
        serving: its candidates; None: a server.
        best: its best model by validation loss; None: it has none, or nothing is validated.
        seen: of algorithms that compare models, what is compared, see Algorithm.seen.
        kept: what the learner keeps of its trainings, see learning/optimizer_state.py.
        best_kept: what it kept of the training that made `best`.
    """

    time_s: float
    bytes_sent: int
    serving: EvaluationCandidates | None
    best: "Model | None" = None
    seen: Any = None
    kept: Any = None
    best_kept: Any = None
