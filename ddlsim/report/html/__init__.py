"""A report as one HTML file: sections printed by page.py, figures drawn by the scripts in assets/."""

from pathlib import Path

from ddlsim.report.frame import written_below
from ddlsim.report.html.comparison_page import comparison_page
from ddlsim.report.html.page import Page, Tile, printed
from ddlsim.report.html.run_page import run_page

__all__ = ["Page", "Tile", "comparison_page", "printed", "run_page", "write"]


def write(page: Page, path: str | Path, option: str = "-o") -> Path:
    """Writes a page; one that is there is replaced.

    Args:
        page: what it shows.
        path: the file; folders above it are made.
        option: of the command line, which an error names.
    Raises:
        ScenarioError: if it cannot be written.
    """
    path = Path(path)
    with written_below(path.parent, option):
        path.write_text(printed(page), encoding="utf-8")
    return path
