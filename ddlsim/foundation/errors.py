"""The errors that users can cause, with the exit codes of the command line (cli/exits.py)."""

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path


class DdlsimError(Exception):
    """An error that the user can fix; the text gives the place, the expected and the actual value, and what to do."""

    exit_code = 1


class ScenarioError(DdlsimError):
    """An invalid scenario, override or command line; nothing was run."""

    exit_code = 2


class DataMissing(DdlsimError):
    """Missing data or a missing package; the text says how to get it."""

    exit_code = 3


class DataDamaged(DdlsimError):
    """Data that exists but cannot be read; the fallback is not used, because the user chose this data."""

    exit_code = 3


class RecordsFailed(DdlsimError):
    """Records of a run could not be written, e.g. because the disk is full; complete records remain."""


class RecordsDamaged(DdlsimError):
    """Records of an earlier run cannot be read; the text names the file and the line."""


class WorkerLost(DdlsimError):
    """A worker process of a run was lost; the run can continue from its last checkpoint on other workers.

    Attributes:
        run_dir: the run's directory; None before it exists.
    """

    run_dir: Path | None = None


class ReplayFailed(DdlsimError):
    """A resumed run does not repeat its records, which stay unchanged.

    Its argument names the difference. SimPy re-creates the errors of a process from their arguments.
    """

    def __str__(self) -> str:
        return (
            f"The replay differs from the run that it repeats: {self.args[0]} The checkpoint is damaged, or was made "
            "by other code. Nothing in the directory has been changed; `ddlsim run ... --force` starts the run again."
        )


def cause_of(error: Exception) -> str:
    """Return the type and text of an error of other code, in one line; a long text is cut off."""
    return f"{type(error).__name__}: {' '.join(str(error).split()):.200}"


def kind_of(value: object) -> str:
    """Return the type of an unexpected value in words."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return "nothing (None)" if value is None else f"a {type(value).__name__}"


def did_you_mean(wrong: object, known: Iterable[str]) -> str:
    """Return a sentence with the nearest known name, after a space, or nothing."""
    found = difflib.get_close_matches(str(wrong), list(known), n=1, cutoff=0.6)
    return f" Did you mean {found[0]!r}?" if found else ""


def listing(items: Sequence[object], most: int = 8) -> str:
    """Return items as in a sentence, such as "1, 2 and 5"; of many the first ones and the number of others."""
    shown = [str(item) for item in items[:most]]
    shown += [f"{len(items) - most} more"] if len(items) > most else []
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))
