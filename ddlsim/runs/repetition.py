"""The first part of a resumed run: what it did up to a checkpoint is repeated, and its records are written again.

They go into a file beside metrics.jsonl, which it replaces when the checkpoint is reached: until then nothing in the
directory changes, so a process that is killed while it repeats can simply be resumed again.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ddlsim.foundation.errors import RecordsFailed, ReplayFailed
from ddlsim.runs.checkpoint import FOLDER, LOG, State, StoredRows, cut_of, read_log, remove_checkpoints

if TYPE_CHECKING:
    from ddlsim.learning.learner import Learner
    from ddlsim.runs.recorder import Recorder

REPEATED = "metrics.repeated"
OF_AN_END = (
    "summary.json",
    "communication.jsonl",
    "links.jsonl",
    "contents.jsonl",
    "energy.jsonl",
    "models.safetensors",
)
"""What a run that was interrupted has written at its end; it is written anew."""


class ReplayToCheckpoint:
    """Repeats a run up to a checkpoint.

    Args:
        checkpoint: its folder.
        state: what it says.
        learner: computes nothing until the checkpoint is reached.
    """

    def __init__(self, checkpoint: Path, state: State, learner: "Learner"):
        from ddlsim.learning.jobs import LoggedPast

        self.state = state
        self._directory = checkpoint.parent.parent
        self._learner = learner
        self._cut = cut_of(state)
        self._rows = StoredRows(checkpoint, state)
        self._rounds = 0
        log = read_log(self._directory / FOLDER / LOG, state.log_bytes)
        learner.jobs.past = LoggedPast(self._cut, log)

    @property
    def records(self) -> Path:
        """Where metrics go while the run is repeated."""
        return self._directory / REPEATED

    def round(self, time_s: float) -> bool:
        """All nodes have completed a round again; whether it is the last one that is repeated."""
        self._rounds += 1
        if self._rounds == self.state.rounds and time_s != self.state.time_s:
            raise ReplayFailed(f"round {self._rounds} ends at {time_s} s, not at {self.state.time_s} s.")
        return self._rounds == self.state.rounds

    def end(self, recorder: "Recorder") -> None:
        """Loads parameters and puts the records in place.

        Raises:
            ReplayFailed: if the run does not stand where it stood.
            RecordsFailed: if the records cannot be put in place.
        """
        from ddlsim.learning.jobs import end_replay

        learner, num_bytes = self._learner, recorder.num_bytes()
        if num_bytes != self.state.metrics_bytes:
            raise ReplayFailed(f"metrics.jsonl has {num_bytes} bytes, not {self.state.metrics_bytes}.")
        end_replay(learner.jobs, learner.rows, self._cut, self._rows.numbers, self._rows.values)
        learner.backends.know(self.state.reasons)
        for name in OF_AN_END:
            with suppress(OSError):
                (self._directory / name).unlink(missing_ok=True)
        remove_checkpoints(self._directory, newer_than=self.state.rounds)
        try:
            os.replace(self.records, self._directory / "metrics.jsonl")
        except OSError as error:
            raise RecordsFailed(f"{self.records} cannot be renamed: {error.strerror or error}.") from error
        recorder.has_moved(self._directory / "metrics.jsonl")

    def abandon(self, recorder: "Recorder | None") -> None:
        """Leaves the directory as it was."""
        with suppress(RecordsFailed):
            if recorder is not None:
                recorder.close()
        with suppress(OSError):
            self.records.unlink(missing_ok=True)
