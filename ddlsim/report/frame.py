"""What all figures share: palette, size, title."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ddlsim.errors import DataMissing, ScenarioError

if TYPE_CHECKING:
    from ddlsim.report.records import Records

# Okabe and Ito's palette: distinct for color-blind readers; dashes tell the lines apart in print.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.", ":")


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
