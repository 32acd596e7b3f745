"""The errors a user can cause; each carries the exit code of the command line (see cli/exits.py)."""

from collections.abc import Sequence
from pathlib import Path


class DdlsimError(Exception):
    """Something the user can put right; the text says where, what was expected, what came and what to do."""

    exit_code = 1


class ScenarioError(DdlsimError):
    """A scenario, an override or a command line that cannot be run; nothing was run."""

    exit_code = 2


class DataMissing(DdlsimError):
    """Data or a part of the environment that is not there; the text says how to get it."""

    exit_code = 3


class DataDamaged(DdlsimError):
    """Data that is there but cannot be read; no fallback is taken, since the user meant this data."""

    exit_code = 3


class RecordsFailed(DdlsimError):
    """Records of a run that could not be written, e.g. since the disk is full; what was complete before is kept."""


class RecordsDamaged(DdlsimError):
    """Records of an earlier run that cannot be read; the text names the file and the line."""


class WorkerLost(DdlsimError):
    """A process that computes for a run is there no more; the run can go on from its last checkpoint on others.

    Attributes:
        run_dir: the run's directory; None: it had none yet.
    """

    run_dir: Path | None = None


class ReplayFailed(DdlsimError):
    """A run that is resumed does not repeat what it did before; its records are left as they are.

    Its argument says in what; SimPy makes the errors of a process anew, of their arguments.
    """

    def __str__(self) -> str:
        return (
            f"The replay differs from the run that it repeats: {self.args[0]} The checkpoint is damaged, or was made "
            "by other code. Nothing in the directory has been changed; `ddlsim run ... --force` starts the run again."
        )


def kind_of(value: object) -> str:
    """What came in the place of what was expected, in words."""
    return "nothing (None)" if value is None else f"a {type(value).__name__}"


def listing(items: Sequence[object], most: int = 8) -> str:
    """The items as in a sentence, such as "1, 2 and 5"; of many the first ones and how many more there are."""
    shown = [str(item) for item in items[:most]]
    shown += [f"{len(items) - most} more"] if len(items) > most else []
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))
