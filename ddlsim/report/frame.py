"""What all figures share: palette, size, title."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.errors import DataMissing, ScenarioError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ddlsim.report.records import Records
    from ddlsim.tasks.metric import Metric

# Okabe and Ito's palette: distinct for color-blind readers; dashes tell the lines apart in print.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.", ":")


MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def styles(count: int) -> list[dict[str, Any]]:
    """Color, dashes and mark of so many lines; no color comes twice, and lines that are alike in color are not in
    dashes.

    Up to seven have the palette above; more have colors of equal distance along matplotlib's `turbo`.
    """
    colors: Sequence[Any] = COLORS
    if count > len(COLORS):
        from matplotlib import colormaps

        colors = [tuple(map(float, color)) for color in colormaps["turbo"](np.linspace(0.04, 0.96, count))]
    return [
        {"color": colors[index], "linestyle": DASHES[index % len(DASHES)], "marker": MARKERS[index % len(MARKERS)]}
        for index in range(count)
    ]


def shown_figure(inches: tuple[float, float]) -> "tuple[Figure, Axes]":
    """An empty figure that a notebook shows by itself, whether pyplot is in use or not, and its axes.

    Raises:
        DataMissing: if matplotlib is not installed.
    """
    need_matplotlib()
    from matplotlib.figure import Figure

    class Shown(Figure):
        """A figure with what a notebook asks an object for."""

        def _repr_png_(self) -> bytes:
            file = io.BytesIO()
            self.savefig(file, format="png", dpi=110)
            return file.getvalue()

    figure = Shown(figsize=inches, layout="constrained")
    return figure, figure.add_subplot()


def new_figure(records: "Records"):
    """An empty figure and its axes, with the run's title."""
    need_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    about = records.manifest
    data = about.get("data") or {}
    title = f"{about.get('scenario')}, {about.get('algorithm')}, seed {about.get('seed')}"
    axes.set_title(f"{title}, FALLBACK DATA {data.get('name')}" if data.get("fallback") else title, fontsize=10)
    return figure, axes


def quality_scale(metric: "Metric", values: np.ndarray) -> str:
    """The scale of an axis of these values: a metric's own, unless none of them can be drawn on it (all diverged)."""
    return metric.axis_scale if (np.isfinite(values) & (values > 0)).any() else "linear"


@contextmanager
def written_below(folder: Path, option: str) -> Iterator[None]:
    """Makes a folder for figures; that they cannot be written is the fault of an option of the command line."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        where = error.filename or folder
        reason = error.strerror or error
        raise ScenarioError(f"{option}: expected to write to {where}, got: {reason}. Name another path.") from error


def need_matplotlib():
    """The package, or a DataMissing that names the extra to install."""
    try:
        import matplotlib
    except ImportError as error:
        raise DataMissing("Figures need matplotlib, which is not installed: pip install 'ddlsim[plot]'.") from error
    return matplotlib
