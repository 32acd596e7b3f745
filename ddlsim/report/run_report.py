"""Report of a run outside of a browser: its summary and the tables of all sections as text, figures as files."""

from collections.abc import Callable, Iterable
from pathlib import Path

from ddlsim.foundation.errors import DdlsimError
from ddlsim.report.comparing.rows import compared
from ddlsim.report.comparing.tables import table_of
from ddlsim.report.figures import draw, need_matplotlib, save_drawing, written_below
from ddlsim.report.reading import read
from ddlsim.report.records import Records
from ddlsim.report.section import Section
from ddlsim.report.sections import sections
from ddlsim.report.sections.about import GROUP as ABOUT
from ddlsim.report.summary import left_out_if_damaged, read_all, summary_of
from ddlsim.report.summary_table import table as summary_table
from ddlsim.report.text import columns


def report(run_dirs: Iterable[str | Path], on_damaged: Callable[[DdlsimError], None] | None = None) -> str:
    """Return a detailed report of every run, followed by a comparison if there are several.

    Args:
        run_dirs: run directories, or folders with runs below them.
        on_damaged: called with the error of a run that cannot be read, which is then left out; by default it is raised.
    Raises:
        ScenarioError: if one of them is not a run and holds none.
        RecordsDamaged: see `on_damaged`.
    """
    parts, shown = [], []
    for records in read_all(run_dirs, on_damaged):
        with left_out_if_damaged(records.directory, on_damaged):
            parts.append(_one(records))
            shown.append(records)
    if len(shown) > 1:
        parts.append(_section("All runs", table_of(compared(shown))))
    return "\n\n\n".join(parts) + "\n" if parts else ""


def _one(records: Records) -> str:
    summary = summary_of(records)
    parts = [_section(str(records.directory), summary_table(summary))]
    for section in sections(records, summary):
        if section.table is not None and section.group != ABOUT:
            parts.append(_section(section.table.title or section.title, body(section)))
    return "\n\n".join(parts)


def body(section: Section) -> str:
    """A section's table as text, and what must be known about it."""
    table = section.table
    assert table is not None
    notes = [] if section.figure is not None else section.notes  # notes on the figure
    return "\n".join([columns(table.header, table.rows, table.left), *([table.note] if table.note else []), *notes])


def _section(title: str, text: str) -> str:
    return f"{title}\n{'=' * len(title)}\n{text}"


def save_plots(run_dir: str | Path, out_dir: str | Path) -> list[Path]:
    """Draw the figure of each section of a run into a PNG file named by the section's key, and return the files.

    Args:
        run_dir: a run directory.
        out_dir: folder for the files, created if missing.
    Raises:
        DataMissing: if matplotlib is not installed.
        ScenarioError: if the directory is not a run, or the folder cannot be written to.
    """
    need_matplotlib()
    records, folder, paths = read(run_dir), Path(out_dir), []
    with written_below(folder, "--plots"):
        for section in sections(records, summary_of(records)):
            if section.figure is not None:
                paths.append(folder / f"{section.key.replace('-', '_')}.png")
                save_drawing(draw([(section.title, section.figure)], records.title), paths[-1])
    return paths
