"""Models for evaluation: an algorithm's candidates, and a node's best model by validation loss.

Early stopping ends a node that has trained too long without a better model.

A node validates the result of each local training, never a merged model, on its own validation samples: the mean over
mini-batches of the batch mean loss, the samples in the same order every time, as the published codes of DAC and its
successors do with images. (DAC's first code validates with batches of one sample; the code of the synthetic problem
shuffles. If the last batch is smaller, its samples weigh more: a different order every time would be noise, and select
the luckiest loss.) It stops when `patience` trainings in a row have given no strictly lower loss.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from ddlsim.foundation.errors import DdlsimError

if TYPE_CHECKING:
    from ddlsim.learning.job_types import Model
    from ddlsim.learning.jobs import Job


SELECTION_BATCHES = 100
"""Local mini-batches on which a node picks among several models for an evaluation (FACADE's code)."""


Choice = Literal["train_loss", "validation_loss", "lowest_test_loss"]


@dataclass(frozen=True)
class EvaluationCandidates:
    """Models that a node would answer queries with.

    Args:
        models: candidates, whole models in parts.
        choose: the data whose loss picks one of several candidates. `lowest_test_loss` uses the test set.
    Raises:
        DdlsimError: if there is no such choice, or no model.
    """

    models: "Sequence[Model]"
    choose: Choice = "train_loss"

    def __post_init__(self) -> None:
        if isinstance(self.models, list | tuple) and not self.models:
            raise DdlsimError("EvaluationCandidates: expected at least one model, such as [(state.model,)], got none.")
        if self.choose not in get_args(Choice):
            choices = ", ".join(get_args(Choice))
            raise DdlsimError(f"EvaluationCandidates: choose: expected {choices}, got {self.choose!r}.")


@dataclass(frozen=True)
class Snapshot:
    """State of a node when it completed an evaluated round.

    Args:
        time_s: simulated time.
        bytes_sent: bytes that it had put on the wire.
        serving: its candidates; None for a server.
        best: its best model by validation loss; None if it has none, or nothing is validated.
        seen: the compared part of the state, if the algorithm compares models, see Algorithm.seen.
        local_state: the learner's state of its trainings, see learning/optimizing/state.py: LocalState.
        best_local_state: the learner's state of the training that made `best`.
        of_server: whether `serving` is the server's, see Algorithm.tests_server_model.
    """

    time_s: float
    bytes_sent: int
    serving: EvaluationCandidates | None
    best: "Model | None" = None
    seen: Any = None
    local_state: Any = None
    best_local_state: Any = None
    of_server: bool = False


class BestModel:
    """A node's best model and its patience.

    Args:
        patience: trainings without improvement after which it has `run_out`; None: never.
    """

    def __init__(self, patience: int | None):
        self._patience = patience
        self._open: list[tuple[Model, Job, Any]] = []
        self.forget()

    @property
    def run_out(self) -> bool:
        """Whether the node's patience is exhausted."""
        return self._patience is not None and self._without_better >= self._patience

    def forget(self) -> None:
        """Reset, because the node has lost its state."""
        self.model: Model | None = None
        self.local_state: Any = None
        self.loss = math.inf
        self._without_better = 0
        self._open.clear()

    def trained(self, model: "Model", validation: "Job", local_state: Any = None) -> None:
        """Register the model of a finished local training; its validation may be computed later.

        Args:
            model: the trained model.
            validation: the losses of that model only.
            local_state: the learner's state of the training.
        """
        self._open.append((model, validation, local_state))

    def resolve(self, value: "Callable[[Job], Sequence[float]]") -> list[float]:
        """Evaluate the validations since the last call.

        Args:
            value: function that computes a job's value.

        Returns:
        The validation losses, oldest first.
        """
        found = []
        for model, job, local_state in self._open:
            (loss,) = value(job)
            found.append(loss)
            better = loss < self.loss
            self._without_better = 0 if better else self._without_better + 1
            if better:
                self.model, self.loss, self.local_state = model, loss, local_state
        self._open.clear()
        return found
