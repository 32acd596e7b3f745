"""The specification of a job: plain data, in which random choices are already made.

While a job is pending its specification holds the rows that it reads (bank.py: Row) and weak references to those that
it fills. Backends compute specifications that hold all their rows (`hold_outputs`). Other processes get specifications
with numbers in place of rows (`numbered`), which can be pickled and compared, and are `bound` to their rows there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self
from weakref import ref

from ddlsim.learning.bank import Row, Rows
from ddlsim.learning.optimizing.state import leaves, replaced


@dataclass(eq=False, kw_only=True)
class JobSpec:
    """Specification of one job.

    Args:
        node: the node that it is computed for; None for the node of its first row.
    """

    kind: ClassVar[str]
    reads_in: ClassVar[tuple[str, ...]]
    """Fields that hold rows to be read: alone, in tuples, in mappings or in OptimizerState."""
    writes_in: ClassVar[tuple[str, ...]] = ()
    """Fields that hold rows to be filled; of a job without such fields the outcome is a value."""
    numbers_in: ClassVar[tuple[str, ...]] = ("node",)
    """Fields that hold the number of a node or of its cluster."""

    node: int | None = None

    @property
    def reads(self) -> tuple[int, ...]:
        """Numbers of the rows that must be known before it can run, of a specification with numbers."""
        return tuple(number for name in self.reads_in for number in leaves(getattr(self, name)))

    @property
    def writes(self) -> tuple[int, ...]:
        """Numbers of the rows that it fills, of a specification with numbers."""
        return tuple(number for name in self.writes_in for number in leaves(getattr(self, name)))

    def hold_outputs(self) -> Self:
        """Hold the rows to be filled from now on, with None in place of those that nothing holds any more."""
        fields = vars(self)
        for name in self.writes_in:
            fields[name] = replaced(fields[name], _referent)
        return self

    def numbered(self) -> Self:
        """Return the specification with numbers in place of rows."""
        return self._changed(number_of, lambda reference: number_of(_referent(reference)))

    def bound(self, rows: Rows, first: int = 0) -> Self:
        """Return the specification with rows in place of numbers; None in place of rows to be filled that nothing holds
        any more. `first` is the number of the run's first node among those of several runs.
        """
        bound = self._changed(rows.__getitem__, rows.get)
        fields = vars(bound)
        if first:
            fields.update((name, fields[name] + first) for name in self.numbers_in if fields[name] is not None)
        return bound

    def _changed(self, read: Callable[[Any], Any], written: Callable[[Any], Any]) -> Self:
        """Return a copy with other representations of the rows that it reads and fills."""
        changed = object.__new__(type(self))
        fields = vars(changed)
        fields.update(vars(self))
        for names, change in ((self.reads_in, read), (self.writes_in, written)):
            for name in names:
                fields[name] = replaced(fields[name], change)
        return changed


def number_of(row: Row | None) -> int | None:
    """Return the number of a row, if there is one."""
    return None if row is None else row.number


def _referent(reference: Any) -> Row | None:
    """The row of a weak reference, or a row that is held already."""
    return reference() if type(reference) is ref else reference
