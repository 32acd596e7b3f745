"""Checkpoints of a run, at ends of rounds or evaluations, and its repetition up to one; see checkpoint_files.py.

A resumed run first repeats the events up to the checkpoint and writes its records again. They go into another file,
which replaces metrics.jsonl at the checkpoint: until then nothing in the directory changes, so a process that is killed
while it repeats can be resumed again.
"""

import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ddlsim.foundation.errors import RecordsFailed, ReplayFailed, ScenarioError
from ddlsim.foundation.interrupts import GRACE_S
from ddlsim.runs import checkpoint_files as files
from ddlsim.runs.recorder import Recorder

if TYPE_CHECKING:
    from ddlsim.learning.learner import Learner


KEPT = 2
WRITING = 0.05
"""Largest share of the time that additional checkpoints of slow runs may take."""
ALL = sys.maxsize

_EVERY = re.compile(r"(\d+(?:\.\d+)?)\s*([smhr])$", re.ASCII)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Every:
    """Frequency of checkpoints, which are made at the end of a round that all nodes have completed.

    Args:
        wall_s: at the first such end after this many seconds; or
        rounds: after this many rounds. Neither: never.
        keep: number of checkpoints to keep, also after the end of the run, so that it can be branched; and one is made
            before the first node starts its last round. None: the last two, until the run is done.
    """

    wall_s: float | None = None
    rounds: int | None = None
    keep: int | None = None

    @property
    def never(self) -> bool:
        """Whether no checkpoints are made."""
        return self.wall_s is None and self.rounds is None


def parse_every(text: str, keep: str | None = None) -> Every:
    """Parse `30s`, `10m`, `1h`, `50r` (rounds) or `0` (never), and the number of checkpoints to keep, or `all`.

    Raises:
        ScenarioError: if a text is invalid.
    """
    if keep is not None and keep != "all" and not (keep.isdecimal() and int(keep) > 0):
        raise ScenarioError(f"--checkpoint-keep {keep[:40]}: expected a number from 1 or all.")
    kept = None if keep is None else ALL if keep == "all" else int(keep)
    if text.strip() == "0":
        return Every(keep=kept)
    match = _EVERY.match(text.strip())
    if match is not None:
        amount, unit = float(match[1]), match[2]
        if unit != "r" and amount > 0:
            return Every(wall_s=amount * _SECONDS[unit], keep=kept)
        if amount >= 1 and amount.is_integer():
            return Every(rounds=int(amount), keep=kept)
    raise ScenarioError(f"--checkpoint-every {text[:40]}: expected 30s, 10m or 1h, 50r (rounds) or 0 (no checkpoints).")


class Checkpoints:
    """Makes the checkpoints of a run; the run calls `round` whenever all nodes have completed a round.

    Args:
        directory: of the run.
        every: frequency of checkpoints.
        learner: of the run.
        recorder: writes metrics.jsonl.
        last_round: number of rounds of each node.
        made_with: see State.
        wall_s: returns the wall seconds of the run so far.
        warn: prints a warning about a checkpoint that could not be written.
        replayed: repetition of the checkpoint from which the run continues; None: the run starts.

    Attributes:
        slow: whether a signal may not wait for the next checkpoint, so they are made whenever they take little time.
    """

    def __init__(
        self,
        directory: Path,
        every: Every,
        learner: "Learner",
        recorder: Recorder,
        last_round: int,
        made_with: dict[str, str | None],
        wall_s: Callable[[], float],
        warn: Callable[[str], None],
        replayed: "ReplayToCheckpoint | None" = None,
    ):
        self._folder = directory / files.FOLDER
        self._every, self._learner, self._recorder = every, learner, recorder
        self._last_round = last_round
        self._made_with, self._wall_s, self._warn = made_with, wall_s, warn
        self._log = files.ValueLog(self._folder / files.LOG, replayed.state.log_bytes if replayed else 0)
        self._rounds = self._last_rounds = replayed.state.rounds if replayed else 0
        self._evaluations = replayed.evaluations if replayed else 0
        self._last_s = self._step_s = time.monotonic()
        self._writing_s = 0.0
        self.slow = False
        self._failing = False
        learner.jobs.on_values = self._log.add

    def round(self, time_s: float, completed: int, furthest: int, now: bool = False) -> None:
        """Make a checkpoint at the end of a round, if one is due.

        Args:
            time_s: simulated seconds.
            completed, furthest: see State.
            now: make one in any case.
        """
        self._rounds += 1
        every, due = self._every, now
        self._measure_step()
        if self.slow and every.keep is None:
            due |= (time.monotonic() - self._last_s) * WRITING >= self._writing_s
        if every.rounds is not None:
            due |= self._rounds - self._last_rounds >= every.rounds
        if every.wall_s is not None:
            due |= time.monotonic() - self._last_s >= every.wall_s
        if every.keep is not None:  # from here the run can be extended; nodes are rarely two rounds apart
            due |= self._last_round - 3 <= furthest < self._last_round - 1
        if due:
            self._make(time_s, completed, furthest, 0)

    def evaluated(self, time_s: float, completed: int, furthest: int, now: bool) -> None:
        """Count an evaluation, and make a checkpoint if the run ends `now` and has none since the end of the round."""
        self._evaluations += 1
        self._measure_step()
        if now and (self._last_rounds < self._rounds or not self._rounds):
            self._make(time_s, completed, furthest, self._evaluations)

    def _measure_step(self) -> None:
        now_s = time.monotonic()
        self.slow |= now_s - self._step_s > GRACE_S
        self._step_s = now_s

    def _make(self, time_s: float, completed: int, furthest: int, evaluations: int) -> None:
        started_s = time.monotonic()
        try:
            self._write(time_s, completed, furthest, evaluations)
            self._failing = False
            self._writing_s = time.monotonic() - started_s
        except OSError as error:
            if not self._failing:
                self._warn(
                    f"WARNING: no checkpoint can be written to {self._folder}: {error.strerror or error}. "
                    "The run continues; earlier checkpoints are kept."
                )
            self._failing = True
        self._last_rounds = self._rounds
        self._last_s = self._step_s = time.monotonic()

    def _write(self, time_s: float, completed: int, furthest: int, evaluations: int) -> None:
        from ddlsim.learning.jobs import computed_rows

        jobs, rows = self._learner.jobs, self._learner.rows
        jobs.settle()
        self._folder.mkdir(exist_ok=True)
        log_bytes = self._log.write()
        state = files.State(
            rounds=self._rounds,
            completed=completed,
            furthest=furthest,
            time_s=time_s,
            cut=asdict(jobs.cut(rows)),
            log_bytes=log_bytes,
            metrics_bytes=self._recorder.num_bytes(),
            wall_s=self._wall_s(),
            reasons={name: dict(found) for name, found in self._learner.backends.reasons.items()},
            made_with=self._made_with,
            evaluations=evaluations,
        )
        files.write_checkpoint(self._folder, state, computed_rows(rows), rows)
        for old in files.checkpoints_of(self._folder.parent)[self._every.keep or KEPT :]:
            shutil.rmtree(old, ignore_errors=True)


REPEATED = "metrics.repeated"
LAST_FILES = (
    *("summary.json", "models.safetensors.index.json"),
    *("communication.jsonl", "links.jsonl", "contents.jsonl", "energy.jsonl"),
    *("time_use.jsonl", "timeline.jsonl"),
)
"""Files that an interrupted run wrote at its end; the resumed run writes them again."""


class ReplayToCheckpoint:
    """Repeats a run up to a checkpoint.

    Args:
        checkpoint: its folder.
        state: of the checkpoint.
        learner: takes logged values in place of computing until the checkpoint.

    Attributes:
        evaluations: evaluations repeated so far.
    """

    def __init__(self, checkpoint: Path, state: files.State, learner: "Learner"):
        from ddlsim.learning.jobs import LoggedPast

        self.state = state
        self._directory = checkpoint.parent.parent
        self._learner = learner
        self._cut = files.cut_of(state)
        self._rows = files.StoredRows(checkpoint, state)
        self._rounds = self.evaluations = 0
        log = files.read_log(self._directory / files.FOLDER / files.LOG, state.log_bytes)
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
        return self._rounds == self.state.rounds and not self.state.evaluations

    def evaluated(self) -> bool:
        """Count a repeated evaluation; return whether the checkpoint is reached."""
        self.evaluations += 1
        return self.evaluations == self.state.evaluations

    def end(self, recorder: Recorder) -> None:
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
        files.remove_checkpoints(self._directory, newer_than=self.state.rounds)
        try:
            os.replace(self.records, self._directory / "metrics.jsonl")
        except OSError as error:
            raise RecordsFailed(f"{self.records} cannot be renamed: {error.strerror or error}.") from error
        recorder.has_moved(self._directory / "metrics.jsonl")

    def abandon(self) -> None:
        """Leave the directory unchanged, once the recorder is closed."""
        with suppress(OSError):
            self.records.unlink(missing_ok=True)
