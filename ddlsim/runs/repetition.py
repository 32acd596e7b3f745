"""The first part of a resumed run, which repeats it up to a checkpoint and writes its records again.

They go into another file, which replaces metrics.jsonl at the checkpoint: until then nothing in the directory changes,
so a process that is killed while it repeats can be resumed again.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ddlsim.foundation.errors import RecordsFailed, ReplayFailed
from ddlsim.runs.checkpoint_files import FOLDER, LOG, State, StoredRows, cut_of, read_log, remove_checkpoints

if TYPE_CHECKING:
    from ddlsim.learning.learner import Learner
    from ddlsim.runs.recorder import Recorder

REPEATED = "metrics.repeated"
LAST_FILES = (
    "summary.json",
    "communication.jsonl",
    "links.jsonl",
    "contents.jsonl",
    "energy.jsonl",
    "models.safetensors",
)
"""Files that an interrupted run wrote at its end; the resumed run writes them again."""


class ReplayToCheckpoint:
    """Repeats a run up to a checkpoint.

    Args:
        checkpoint: its folder.
        state: of the checkpoint.
        learner: takes logged values in place of computing until the checkpoint.
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
        """File of metrics until the checkpoint."""
        return self._directory / REPEATED

    def round(self, time_s: float) -> bool:
        """Count a round that all nodes have completed again; return whether the checkpoint is reached."""
        self._rounds += 1
        if self._rounds == self.state.rounds and time_s != self.state.time_s:
            raise ReplayFailed(f"round {self._rounds} ends at {time_s} s, not at {self.state.time_s} s.")
        return self._rounds == self.state.rounds

    def end(self, recorder: "Recorder") -> None:
        """Load parameters and move the records to their place.

        Raises:
            ReplayFailed: if the run has not reached the same state.
            RecordsFailed: if the records cannot be moved.
        """
        from ddlsim.learning.jobs import end_replay

        learner, num_bytes = self._learner, recorder.num_bytes()
        if num_bytes != self.state.metrics_bytes:
            raise ReplayFailed(f"metrics.jsonl has {num_bytes} bytes, not {self.state.metrics_bytes}.")
        end_replay(learner.jobs, learner.rows, self._cut, self._rows.numbers, self._rows.values)
        learner.backends.know(self.state.reasons)
        for name in LAST_FILES:
            with suppress(OSError):
                (self._directory / name).unlink(missing_ok=True)
        remove_checkpoints(self._directory, newer_than=self.state.rounds)
        try:
            os.replace(self.records, self._directory / "metrics.jsonl")
        except OSError as error:
            raise RecordsFailed(f"{self.records} cannot be renamed: {error.strerror or error}.") from error
        recorder.has_moved(self._directory / "metrics.jsonl")

    def abandon(self, recorder: "Recorder | None") -> None:
        """Leave the directory unchanged."""
        with suppress(RecordsFailed):
            if recorder is not None:
                recorder.close()
        with suppress(OSError):
            self.records.unlink(missing_ok=True)
