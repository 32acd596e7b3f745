"""A run is repeated up to a cut without computing anything, and goes on from there.

Simulated events are repeated; every job of the earlier process that had run by then is over as soon as it is enqueued:
its value comes from a log, and the rows that it fills stay without values until the cut. There the rows that something
still holds are loaded, and jobs run from then on. Jobs and rows have the same numbers in both processes, which is how
values and rows are found; that the counts agree at the cut is checked.
"""

import gc
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddlsim.errors import ReplayFailed
from ddlsim.learning.bank import Row, Rows

if TYPE_CHECKING:
    import torch

    from ddlsim.learning.jobs import Jobs


@dataclass(frozen=True)
class Cut:
    """Where the queue of jobs stands, between two waves.

    Args:
        num_jobs: enqueued so far.
        num_rows: rows that have a number.
        pending: numbers of the jobs that have not run.
        num_old: how many of them were pending at the last flush.
    """

    num_jobs: int
    num_rows: int
    pending: tuple[int, ...]
    num_old: int


class LoggedPast:
    """The jobs before a cut; see jobs.py: Past.

    Args:
        cut: of the earlier process.
        values: (number, value) of every job that computed one, in the order in which they ran.
    """

    def __init__(self, cut: Cut, values: Iterable[tuple[int, Any]]):
        self._num_jobs = cut.num_jobs
        self._pending = frozenset(cut.pending)
        self._values: Iterator[tuple[int, Any]] = iter(values)
        self._read_ahead: dict[int, Any] = {}

    def has_run(self, number: int) -> bool:
        """See Past."""
        if number >= self._num_jobs:
            raise ReplayFailed(f"it has more than {self._num_jobs} jobs.")
        return number not in self._pending

    def value(self, number: int) -> Any:
        """See Past; each value is handed out once."""
        while number not in self._read_ahead:
            try:
                found, value = next(self._values)
            except StopIteration:
                raise ReplayFailed(f"the log holds no value of job {number}.") from None
            self._read_ahead[found] = value
        return self._read_ahead.pop(number)


def cut_here(jobs: "Jobs", rows: Rows) -> Cut:
    """Where the queue stands now."""
    pending, num_old = jobs.pending()
    return Cut(jobs.num_submitted, rows.num_given, tuple(pending), num_old)


def known_rows(rows: Rows) -> list[Row]:
    """The rows that have been computed and that something holds."""
    return [row for row in rows.held() if row.slot is not None and row.job is None]


def end_replay(
    jobs: "Jobs", rows: Rows, cut: Cut, stored: Collection[int], load: "Callable[[Row], torch.Tensor]"
) -> None:
    """Gives the rows that are held their values, and lets jobs run.

    Args:
        jobs: the queue.
        rows: of the run.
        cut: where the earlier process stood.
        stored: numbers of the rows whose values are there.
        load: gives the values of one of them, float32 [P].

    Raises:
        ReplayFailed: if the process does not stand where the earlier one did.
    """
    gc.collect()  # rows in reference circles, if there are any
    here = cut_here(jobs, rows)
    if (here.num_jobs, here.num_rows) != (cut.num_jobs, cut.num_rows):
        raise ReplayFailed(
            f"it has {here.num_jobs} jobs and {here.num_rows} rows at the checkpoint, which says "
            f"{cut.num_jobs} and {cut.num_rows}."
        )
    if here.pending != cut.pending:
        differ = sorted(set(here.pending) ^ set(cut.pending))
        raise ReplayFailed(f"jobs {differ[:5]} are not pending in both.")
    held = rows.held()
    for row in held:
        if row.number not in stored and row.job is None:
            raise ReplayFailed(f"the checkpoint lacks row {row.number}.")

    def loaded(row: Row) -> "torch.Tensor":
        values = load(row)
        if values.shape != (row.size,):
            raise ReplayFailed(f"row {row.number} has {row.size} values, the checkpoint's {values.numel()}.")
        return values

    rows.load((row, loaded(row)) for row in held if row.number in stored)
    jobs.begin(cut.num_old)
