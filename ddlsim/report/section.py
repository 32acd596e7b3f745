"""What a report is made of: titled sections, each a table or a figure of plain numbers, without any layout.

`sections/` computes them from records; depth.py prints their tables as text, html/ prints all of them as one page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Unit = Literal["number", "count", "percent", "bytes", "seconds", "joules"]
"""How values are written: percent takes shares (0.73 is `73.00 %`), bytes, seconds and joules choose a prefix."""


@dataclass(frozen=True)
class Table:
    """Cells of text; numbers are aligned right.

    Args:
        header: column titles; empty for none.
        rows: cells, as many per row as titles.
        left: how many columns from the left hold words.
        strong: rows (by number) that stand out.
        title: in a text report, if it is not the section's.
        note: a line below it that explains its cells.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1
    strong: Sequence[int] = ()
    title: str = ""
    note: str = ""


@dataclass(frozen=True)
class Axis:
    """One way to lay the points of a figure from left to right.

    Args:
        name: `round`, `simulated time`, ...
        values: [P], ascending; empty where each line has its own.
        unit: how they are written.
    """

    name: str
    values: np.ndarray
    unit: Unit = "count"


@dataclass(frozen=True)
class Series:
    """One line of a figure.

    Args:
        label: its name, with which a legend begins.
        values: [P]; nan leaves a gap.
        color: number in the palette, which is that of the cluster where a line belongs to one; -1: neutral.
        low, high: [P], a band around it; both or none.
        thin: drawn as a background to others.
        dash: number of the dash pattern; 0: none.
        x: for each axis of the figure the points of this line alone, [Q] each; values, low and high are then [Q] too.
            All lines of a figure have them, and its axes no values, or none has: then the axes' points are theirs.
    """

    label: str
    values: np.ndarray
    color: int = -1
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    thin: bool = False
    dash: int = 0
    x: Sequence[np.ndarray] | None = None


@dataclass(frozen=True)
class Mark:
    """A horizontal line at a value that matters: a target, a published number."""

    label: str
    value: float
    color: int = -1


@dataclass(frozen=True)
class Lines:
    """Curves over one of several axes.

    Args:
        x: axes that the reader can choose from, the first one first; all [P].
        y: what is drawn.
        series: the lines.
        unit: how values are written.
        marks: horizontal lines.
        style: line; step: a value holds until the next; bars; points: not connected.
        log: whether the vertical axis is logarithmic.
        from_zero: whether it begins at 0.
    """

    x: Sequence[Axis]
    y: str
    series: Sequence[Series]
    unit: Unit = "number"
    marks: Sequence[Mark] = ()
    style: Literal["line", "step", "bars", "points"] = "line"
    log: bool = False
    from_zero: bool = False


@dataclass(frozen=True)
class Frame:
    """One picture of a heat map that has several.

    Args:
        label: what tells it from the others.
        values: [R, C]; nan where there is nothing.
        unit: how values are written.
    """

    label: str
    values: np.ndarray
    unit: Unit = "number"


@dataclass(frozen=True)
class Heat:
    """Values of rows and columns as colors, one picture or several.

    Args:
        frames: the pictures, all [R, C].
        rows, columns: their labels, R and C of them.
        row_title, column_title: what rows and columns are.
        frame_title: what the frames differ in.
        choose: slider: frames are moments, on one scale of colors; select: frames are different things.
        borders: rows before which a cluster begins, for a line; of columns as well where `square`.
        categories: names of the values 0, 1, ...; colors are then those of the palette. Empty: values are numbers.
        ramp: numbers: from the least to the largest value; share: from nothing to 1, of parts of a whole.
        square: rows and columns are the same nodes: a graph can be drawn.
        clusters: cluster of each row, for the graph; as many as rows.
    """

    frames: Sequence[Frame]
    rows: Sequence[str]
    columns: Sequence[str]
    row_title: str
    column_title: str
    frame_title: str = ""
    choose: Literal["slider", "select"] = "select"
    borders: Sequence[int] = ()
    categories: Sequence[str] = ()
    ramp: Literal["numbers", "share"] = "numbers"
    square: bool = False
    clusters: Sequence[int] = ()


@dataclass(frozen=True)
class Bars:
    """Horizontal bars made of parts.

    Args:
        labels: names of the bars, B of them.
        parts: names of the parts, P of them.
        values: [B, P], not negative.
        unit: how values are written.
    """

    labels: Sequence[str]
    parts: Sequence[str]
    values: np.ndarray
    unit: Unit = "bytes"


Figure = Lines | Heat | Bars


@dataclass(frozen=True)
class Section:
    """One thing that a report shows.

    Args:
        key: a short name that is unique in its report: letters, digits and dashes.
        title: one line.
        group: the part of the report that it stands in.
        about: a sentence or two on what is seen and how it was computed.
        table: its numbers in text form; beside a figure it is what a text report prints in its place.
        figure: what is drawn.
        code: a command or a file, word for word.
        notes: what a reader must know.
        open: whether a page shows the section at once; long tables are folded.
    """

    key: str
    title: str
    group: str
    about: str = ""
    table: Table | None = None
    figure: Figure | None = None
    code: str = ""
    notes: Sequence[str] = ()
    open: bool = True
