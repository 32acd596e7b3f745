"""Figures of sections drawn with matplotlib (the optional extra `plot`): a panel per axis of curves and per picture."""

import io
import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.foundation.environment import needed
from ddlsim.foundation.errors import ScenarioError
from ddlsim.report.section import Axis, Bars, Figure, Frame, Heat, Lines, Series
from ddlsim.report.text import evenly_spaced, unit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis as Scale
    from matplotlib.figure import Figure as Drawing

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette: distinct for color-blind readers; dashes distinguish the lines in print."""
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
COLUMNS, PANEL_INCHES, LETTER_INCHES = 4, (6.4, 3.8), 0.068
MOST_PICTURES, MOST_MARKERS, MOST_TICKS = 4, 100, 12
"""Pictures of a slider that are drawn, points of a line that have markers, and labels of a heat map's rows."""
Panel = tuple[str, Callable[["Axes"], None]]


def draw(figures: Sequence[tuple[str, Figure]], title: str = "") -> "Drawing":
    """Draw figures in one, which notebooks show by themselves.

    Args:
        figures: title and contents; a figure with several axes or pictures becomes a panel for each.
        title: of the whole.
    Raises:
        DataMissing: if matplotlib is not installed.
    """
    need_matplotlib()
    from matplotlib.figure import Figure as Drawing

    class Shown(Drawing):
        """A figure with the method by which notebooks show objects."""

        def _repr_png_(self) -> bytes:
            file = io.BytesIO()
            self.savefig(file, format="png", dpi=110)
            return file.getvalue()

    panels = [panel for name, figure in figures for panel in _panels(name, figure)]
    columns = min(COLUMNS, len(panels))
    lines = math.ceil(len(panels) / columns)
    width, height = PANEL_INCHES if columns == 1 else (4.2, 3.6)
    drawing = Shown(figsize=(width * columns, height * lines), layout="constrained")
    places = drawing.subplots(lines, columns, squeeze=False).flatten()
    for (name, paint), axes in zip(panels, places, strict=False):
        paint(axes)
        axes.set_title(name, fontsize=10)
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    notes = dict.fromkeys(figure.note for _, figure in figures if not isinstance(figure, Heat))
    characters = int(width * columns / LETTER_INCHES)
    if lines_above := [textwrap.fill(text, characters) for text in (title, *notes) if text]:
        drawing.suptitle("\n".join(lines_above), fontsize=9)
    _add_legend(drawing)
    return drawing


def _add_legend(drawing: "Drawing") -> None:
    """Add one legend below all panels, with as many columns as fit."""
    handles: dict[str, Any] = {}
    for axes in drawing.axes:
        handles |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if len(handles) > 1:
        columns = max(1, int(drawing.get_figwidth() / (0.6 + LETTER_INCHES * max(map(len, handles)))))
        drawing.set_figheight(drawing.get_figheight() + 0.19 * math.ceil(len(handles) / columns))
        place: Any = "outside lower center"
        ncols = min(columns, len(handles))
        drawing.legend(handles.values(), handles.keys(), loc=place, ncols=ncols, fontsize=8, frameon=False)


def _panels(title: str, figure: Figure) -> list[Panel]:
    if isinstance(figure, Lines):
        return [(title, partial(_draw_lines, figure=figure, number=number)) for number in range(len(figure.x))]
    if isinstance(figure, Bars):
        return [(title, partial(_draw_bars, figure=figure))]
    frames, slider = figure.frames, figure.choose == "slider"
    if slider:
        frames = [frames[index] for index in evenly_spaced(len(frames), MOST_PICTURES)]
    shared = np.concatenate([frame.values.ravel() for frame in frames])
    panels: list[Panel] = []
    for frame in frames:
        name = f"{figure.frame_title if slider else ''} {frame.label}" if len(frames) > 1 else title
        scale = shared if slider else frame.values
        panels.append((name, partial(_draw_heat, figure=figure, frame=frame, scale=scale)))
    return panels


def _draw_lines(axes: "Axes", figure: Lines, number: int) -> None:
    axis = figure.x[number]
    points = [axis.values if one.x is None else one.x[number] for one in figure.series]
    x_unit, x_size = unit_of(axis.unit, points)
    y_unit, y_size = unit_of(figure.unit, [one.values for one in figure.series])
    palette = colors(max([one.color for one in figure.series], default=0) + 1)
    for one, x in zip(figure.series, points, strict=True):
        _draw_series(axes, figure, one, x / x_size, y_size, "0.5" if one.color < 0 else palette[one.color])
    for mark in figure.marks:
        color = "0.4" if mark.color < 0 else palette[mark.color % len(palette)]
        axes.axhline(mark.value / y_size, color=color, linewidth=0.9, linestyle=":", label=mark.label)
    if not any(np.isfinite(one.values).any() for one in figure.series):
        axes.text(0.5, 0.5, "no values", transform=axes.transAxes, ha="center", color="0.4")
    elif figure.log:
        axes.set_yscale("log")
    elif figure.unit == "count":
        axes.locator_params(axis="y", integer=True)
    if figure.from_zero:
        axes.axhline(0, color="0.4", linewidth=0.8)
    _label_axis(axes, axis, x_unit)
    axes.set_ylabel(_with_unit(figure.y, y_unit))
    axes.grid(alpha=0.3)


def _draw_series(axes: "Axes", figure: Lines, one: Series, x: np.ndarray, y_size: float, color: Any) -> None:
    y = one.values / y_size
    if figure.style == "bars":
        axes.bar(x, y, width=np.diff(x).min() if len(x) > 1 else 1, color=color, label=one.label)
        return
    label = one.label if np.isfinite(y).any() else None  # a run without values has no entry in the legend
    style: dict[str, Any] = {"color": color, "label": label, "linewidth": 0.8 if one.thin else 1.4}
    style |= {"marker": MARKERS[one.color % len(MARKERS)] if len(x) <= MOST_MARKERS else None, "markersize": 3}
    connected = figure.style != "points"
    style |= {"linestyle": DASHES[one.dash % len(DASHES)] if connected else "none"}
    axes.plot(x, y, drawstyle="steps-post" if figure.style == "step" else "default", **style)
    if one.low is None or one.high is None:
        return
    low, high = one.low / y_size, one.high / y_size
    if connected:
        axes.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0)
    else:
        axes.vlines(x, low, high, color=color, linewidth=1)


def _label_axis(axes: "Axes", axis: Axis, unit: str) -> None:
    axes.set_xlabel(_with_unit(axis.name, unit))
    if axis.names:
        axes.set_xticks(range(len(axis.names)), axis.names)
        axes.set_xlim(-0.5, len(axis.names) - 0.5)
    elif axis.log:
        axes.set_xscale("log")
    elif axis.unit == "count":
        axes.locator_params(axis="x", integer=True)


def _draw_heat(axes: "Axes", figure: Heat, frame: Frame, scale: np.ndarray) -> None:
    from matplotlib.colors import BoundaryNorm, ListedColormap

    unit, size = unit_of(frame.unit, [scale])
    shown = np.ma.masked_invalid(frame.values / size)
    aspect: Any = "equal" if figure.square else "auto"
    bar: dict[str, Any] = {"label": _with_unit(frame.label if len(figure.frames) == 1 else "", unit)}
    if figure.categories:
        count = len(figure.categories)
        norm = BoundaryNorm(np.arange(count + 1) - 0.5, count)
        kind: dict[str, Any] = {"cmap": ListedColormap(colors(count)), "norm": norm}
        bar = {"ticks": range(count), "format": lambda value, _: figure.categories[int(value)]}
    elif figure.ramp == "share":
        kind = {"vmin": 0, "vmax": 1 / size}
    else:
        known = scale[np.isfinite(scale)] / size
        low = 0 if frame.unit in ("count", "bytes") else min(known, default=0)
        kind = {"vmin": low, "vmax": max(known, default=1)}
    image = axes.imshow(shown, aspect=aspect, interpolation="nearest", **kind)
    drawn = axes.figure.colorbar(image, ax=axes, **bar)
    if frame.unit == "count" and not figure.categories:
        drawn.ax.locator_params(axis="y", integer=True)
    for border in figure.borders:
        axes.axhline(border - 0.5, color="black", linewidth=0.8)
        if figure.square:
            axes.axvline(border - 0.5, color="black", linewidth=0.8)
    _set_ticks(axes.xaxis, figure.columns)
    _set_ticks(axes.yaxis, figure.rows)
    axes.set(xlabel=figure.column_title, ylabel=figure.row_title)


def _set_ticks(scale: "Scale", labels: Sequence[str]) -> None:
    step = math.ceil(len(labels) / MOST_TICKS)
    scale.set_ticks(range(0, len(labels), step), labels[::step])


def _draw_bars(axes: "Axes", figure: Bars) -> None:
    values = np.asarray(figure.values, dtype=float)
    unit, size = unit_of(figure.unit, [values.sum(1)])
    left, palette = np.zeros(len(values)), colors(len(figure.parts))
    several = len(figure.parts) > 1
    for part, width, color in zip(figure.parts, values.T / size, palette, strict=False):
        axes.barh(range(len(width)), width, left=left, color=color, label=part if several else None)
        left = left + width
    if len(figure.spread):
        spread = np.asarray(figure.spread) / size
        low = np.minimum(spread, left)  # a cost is not negative
        axes.errorbar(left, range(len(left)), xerr=(low, spread), fmt="none", ecolor="0.2", capsize=3)
    axes.set_yticks(range(len(figure.labels)), figure.labels)
    axes.invert_yaxis()
    axes.set_xlabel(_with_unit("" if several else figure.parts[0], unit))


def colors(count: int) -> Sequence[Any]:
    """Return at least `count` different colors: the palette, or colors of equal distance along matplotlib's `turbo`."""
    if count <= len(COLORS):
        return COLORS
    from matplotlib import colormaps

    return [tuple(map(float, color)) for color in colormaps["turbo"](np.linspace(0.04, 0.96, count))]


def _with_unit(words: str, unit: str) -> str:
    return f"{words} ({unit})" if words and unit else words or unit


def save_drawing(drawing: "Drawing", path: Path) -> None:
    """Write a drawing; the file's ending names its format, and the same drawing gives the same file."""
    settings = {"pdf.fonttype": 42, "svg.hashsalt": "ddlsim"}  # text in a PDF stays text
    with need_matplotlib().rc_context(settings):
        drawing.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)


@contextmanager
def written_below(folder: Path, option: str) -> Iterator[None]:
    """Make a folder for output files; errors of writing name the option of the command line."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        where = error.filename or folder
        reason = error.strerror or error
        raise ScenarioError(f"{option}: expected to write to {where}, got: {reason}. Name another path.") from error


def need_matplotlib() -> Any:
    """Return the package, or raise a DataMissing that names the extra to install."""
    return needed("matplotlib", "plot", "figures")
