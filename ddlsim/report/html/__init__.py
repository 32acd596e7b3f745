"""A report as one HTML file: sections printed by page.py, figures drawn by the scripts in assets/."""

import os
from pathlib import Path

from ddlsim.report.figures import written_below
from ddlsim.report.html.page import Page, Tile, comparison_page, printed, run_page

__all__ = ["Page", "Tile", "comparison_page", "printed", "run_page", "write"]


def write(page: Page, path: str | Path, option: str = "-o") -> Path:
    """Write a page. An existing file is replaced once the new one is complete.

    Args:
        page: what it shows.
        path: the file; folders above it are created.
        option: of the command line, which an error names.
    Raises:
        ScenarioError: if it cannot be written.
    """
    path = Path(path)
    with written_below(path.parent, option):
        draft = path.with_name(f"{path.name}.draft")
        try:
            draft.write_text(printed(page), encoding="utf-8")
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)
    return path
