"""Sections, the elements of a report: a title with a table or a figure of plain numbers, without any layout.

`sections/` computes them from records; run_report.py prints their tables as text, figures.py draws their figures, html/
prints all of them as one page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Unit = Literal["number", "count", "percent", "bytes", "seconds", "joules"]
"""Format of values: percent takes shares (0.73 is `73.00 %`), bytes, seconds and joules choose a prefix."""


@dataclass(frozen=True)
class Table:
    """Cells of text; numbers are aligned right.

    Args:
        header: column titles; empty for none.
        rows: cells, as many per row as titles.
        left: number of columns from the left that hold words.
        strong: numbers of emphasized rows.
        title: in a text report, if it is not the section's.
        note: a line below it that explains its cells.
        best: row and column of the cells that are emphasized.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1
    strong: Sequence[int] = ()
    title: str = ""
    note: str = ""
    best: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True)
class Axis:
    """A horizontal axis of a figure.

    Args:
        name: `round`, `simulated time`, ...
        values: [P], ascending; empty if each line has its own.
        unit: format of the values.
        names: of the values 0, 1, ..., which are then no numbers.
        log: whether it is logarithmic.
    """

    name: str
    values: np.ndarray
    unit: Unit = "count"
    names: Sequence[str] = ()
    log: bool = False


@dataclass(frozen=True)
class Series:
    """One line of a figure.

    Args:
        label: its name, with which a legend starts.
        values: [P]; nan leaves a gap.
        color: number in the palette, the cluster's number if a line belongs to a cluster; -1 is neutral.
        low, high: [P], a band around it; both or none.
        thin: drawn as a background to others.
        dash: number of the dash pattern; 0 is a solid line.
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
        x: axes that the reader can choose from, the default first; all [P].
        y: label of the values.
        series: the lines.
        unit: format of the values.
        marks: horizontal lines.
        style: line; step: a value holds until the next; bars; points: not connected.
        log: whether the vertical axis is logarithmic.
        from_zero: whether it starts at 0.
        note: a remark that every picture of it shows.
    """

    x: Sequence[Axis]
    y: str
    series: Sequence[Series]
    unit: Unit = "number"
    marks: Sequence[Mark] = ()
    style: Literal["line", "step", "bars", "points"] = "line"
    log: bool = False
    from_zero: bool = False
    note: str = ""


@dataclass(frozen=True)
class Frame:
    """One picture of a heat map that has several.

    Args:
        label: its name among the pictures.
        values: [R, C]; nan for an empty cell.
        unit: format of the values.
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
        row_title, column_title: meaning of rows and columns.
        frame_title: meaning of the frames.
        choose: slider: frames are moments, on one scale of colors; select: frames are different things.
        borders: rows before which a cluster starts, for a line; also columns if `square`.
        categories: names of the values 0, 1, ...; colors are then from the palette. Empty: values are numbers.
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
    """Horizontal bars of stacked parts.

    Args:
        labels: names of the bars, B of them.
        parts: names of the parts, P of them.
        values: [B, P], not negative.
        unit: format of the values.
        spread: deviations of the bars' sums, [B]; empty if there are none.
        note: as of lines.
    """

    labels: Sequence[str]
    parts: Sequence[str]
    values: np.ndarray
    unit: Unit = "bytes"
    spread: Sequence[float] = ()
    note: str = ""


Figure = Lines | Heat | Bars


@dataclass(frozen=True)
class Section:
    """One section of a report.

    Args:
        key: a short name that is unique in its report: letters, digits and dashes.
        title: one line.
        group: the part of the report that contains it.
        about: a sentence or two on its contents and computation.
        table: its numbers in text form, printed by a text report in place of a figure.
        figure: the figure.
        code: a command or a file, word for word.
        notes: remarks for the reader.
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
