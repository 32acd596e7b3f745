"""The tutorials as notebooks: `python docs/_ext/notebooks.py FOLDER` writes one per page of docs/tutorials.

A block whose first line is a comment with a file's name becomes a cell that writes this file; blocks in bash become
cells of bash, and text between blocks stays text. `make -C docs notebooks` writes them to docs/_build/notebooks.
"""

import re
import sys
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

PAGES = Path(__file__).resolve().parent.parent / "tutorials"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n?", re.S | re.M)
FILE = re.compile(r"# (\w[\w./-]*\.\w+)\n")


def notebook(page: str) -> nbformat.NotebookNode:
    """Return a page's text as cells."""
    cells, end = [], 0
    for block in BLOCK.finditer(page):
        cells += _text(page[end : block.start()])
        end = block.end()
        language, code = block.groups()
        file = FILE.match(code)
        if file:
            cells.append(new_code_cell(f"%%writefile {file[1]}\n{code.rstrip()}"))
        elif language == "bash":
            cells.append(new_code_cell(f"%%bash -e\n{code.rstrip()}"))
        elif language == "python":
            cells.append(new_code_cell(code.rstrip()))
        else:
            cells += _text(block.group())
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    made = new_notebook(cells=cells + _text(page[end:]), metadata=metadata)
    for number, cell in enumerate(made.cells):
        cell.id = f"cell-{number}"  # the same file from the same page
    return made


def _text(text: str) -> list[nbformat.NotebookNode]:
    return [new_markdown_cell(text.strip())] if text.strip() else []


def main(folder: Path) -> None:
    """Write all notebooks."""
    folder.mkdir(parents=True, exist_ok=True)
    for page in sorted(PAGES.glob("*.md")):
        nbformat.write(notebook(page.read_text(encoding="utf-8")), folder / f"{page.stem}.ipynb")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
