"""The code of docs/python.md runs as written, also in a notebook."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.S)


@pytest.mark.full
def test_the_blocks_of_the_page_run_one_after_the_other(tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "page.py").write_text("\n".join(BLOCKS))
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "stopped {'round'" in done.stdout and "all clusters are above 20 %" in done.stdout
    assert (tmp_path / "bytes.png").stat().st_size > 5000 and (tmp_path / "minority.png").stat().st_size > 5000
    assert len(list((tmp_path / "runs" / "sweep-smoke").rglob("summary.json"))) == 4


@pytest.mark.slow
def test_a_notebook_defines_an_algorithm_and_a_module_runs_them_and_shows_the_run(tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("matplotlib")
    (own,) = [block for block in BLOCKS if "class Lazy" in block]
    parts = own.partition("mine = ")
    cells = [f"import sys; sys.path.insert(0, {str(ROOT)!r})\nimport ddlsim", parts[0], "".join(parts[1:])]
    cells += ["mine", "mine.plot(x='bytes')", "mine.evaluations().head()", "mine.manifest['plugins']"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [[each for each in cell.outputs if each.output_type == "execute_result"] for cell in notebook.cells]
    assert "<table>" in shown[3][0].data["text/html"] and "Lazy" in shown[3][0].data["text/html"]
    assert "image/png" in shown[4][0].data
    plugins = ast.literal_eval(shown[6][0].data["text/plain"])
    assert [(each["kind"], each["name"]) for each in plugins] == [("algorithm", "Lazy"), ("model", "Net")]
    assert [each["sha256"] for each in plugins] == [None, None]  # no file defines them
