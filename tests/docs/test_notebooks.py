"""The tutorials as notebooks."""

import os
import sys
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
SHORT = "own_topology"
"""The page whose commands take least; test_tutorials.py runs the commands of every page."""


@pytest.fixture(scope="module")
def notebook():
    sys.path.insert(0, str(ROOT / "docs" / "_ext"))
    from notebooks import notebook

    sys.path.pop(0)
    return notebook


def test_blocks_become_cells_by_their_language(notebook):
    page = "# Page\n\nText.\n\n```bash\nls\n```\n\n```python\n# mine.py\nx = 1\n```\n"
    page += "```python\nx\n```\n```yaml\na: 1\n```\n"
    made = notebook(page)
    nbformat.validate(made)
    assert [cell.source for cell in made.cells] == [
        "# Page\n\nText.",
        "%%bash -e\nls",
        "%%writefile mine.py\n# mine.py\nx = 1",
        "x",
        "```yaml\na: 1\n```",
    ]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=[pytest.mark.full if page.stem == SHORT else pytest.mark.slow])
        for page in PAGES
    ],
)
def test_the_notebook_of_a_page_runs(page, notebook, tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, words in (("ddlsim", "-m ddlsim"), ("pytest", "-m pytest -p no:cacheprovider"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    folder = tmp_path / "here"
    folder.mkdir()
    made = notebook(page.read_text())
    nbclient.NotebookClient(made, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
