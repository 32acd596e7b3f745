"""What a figure without printed numbers shows, as checks of our means: an order of cells, or cells that are alike."""

from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from typing import Annotated, Literal

from annotated_types import Ge, MinLen
from pydantic import BaseModel, ConfigDict, model_validator

Place = str | Annotated[tuple[str, ...], MinLen(1)]
Verdict = Literal["holds", "does not hold", "no value", "not run"]


class Shape(BaseModel):
    """One claim of the paper; exactly one of `order` and `near` is given.

    Args:
        claim: what the figure shows or the text says.
        order: cells from the highest value to the lowest; a list of cells in the place of one: these in any order.
        margin: by how much each must be above the next at least; below 0: how far under it it may be.
        near: cells whose values lie within `within` of each other.
        within: see `near`.
        of: what is compared: null: the mean; a number: that cluster, from 0; a name: that measure.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    claim: str
    order: Annotated[tuple[Place, ...], MinLen(2)] | None = None
    margin: float = 0.0
    near: Annotated[tuple[str, ...], MinLen(2)] | None = None
    within: Annotated[float, Ge(0)] = 0.0
    of: int | str | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> "Shape":
        if (self.order is None) == (self.near is None):
            raise ValueError("expected either order or near")
        return self

    @property
    def cells(self) -> tuple[str, ...]:
        """Those that it speaks of."""
        return tuple(chain(*map(_listed, self.order or self.near or ())))

    def judge(self, values: Mapping[str, float | None]) -> Verdict:
        """Whether the cells' values are as claimed.

        Args:
            values: cell that has been run -> the value that is compared; None: it has none (a target never reached,
                a run that diverged).
        """
        if any(cell not in values for cell in self.cells):
            return "not run"
        found = {cell: value for cell in self.cells if (value := values[cell]) is not None}
        if len(found) < len(self.cells):
            return "no value"
        if self.order:
            places = [[found[cell] for cell in _listed(place)] for place in self.order]
            return _said(all(min(above) >= max(below) + self.margin for above, below in pairwise(places)))
        return _said(max(found.values()) - min(found.values()) <= self.within)


def _listed(place: Place) -> tuple[str, ...]:
    return (place,) if isinstance(place, str) else place


def _said(holds: bool) -> Verdict:
    return "holds" if holds else "does not hold"


def unknown_cells(shapes: Sequence[Shape], cells: Sequence[str]) -> list[tuple[int, str]]:
    """Position of a shape, and a cell that it names and that the matrix has not."""
    return [(index, cell) for index, shape in enumerate(shapes) for cell in shape.cells if cell not in cells]
