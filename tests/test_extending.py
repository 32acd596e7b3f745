"""The worked example of the README, packaged as in docs/extending.md, runs as written."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ddlsim.scenario import parts

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text()
README = (ROOT / "README.md").read_text()


def shown(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)
    return found


def example() -> str:
    (found,) = [block for block in re.findall(r"```python\n(.*?)```", README, re.S) if "class BestNeighbor" in block]
    return found


@pytest.fixture
def place(tmp_path) -> Path:
    """Return a folder with the example's three files, as installed from a package."""
    (group,) = tomllib.loads(shown("toml"))["project"]["entry-points"].items()
    lines = [f"[{group[0]}]", *(f"{name} = {target}" for name, target in group[1].items())]
    installed = tmp_path / "best_neighbor-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: best_neighbor\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "best_neighbor.py").write_text(example())
    (tmp_path / "smoke.yaml").write_text((ROOT / "scenarios" / "smoke.yaml").read_text())
    (tmp_path / "mine.yaml").write_text(shown("yaml"))
    return tmp_path


def ddlsim(place: Path, *words: str) -> str:
    path = os.pathsep.join([str(place), str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "ddlsim", *words]
    done = subprocess.run(command, cwd=place, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.full
def test_the_worked_example_runs_as_written(place):
    ddlsim(place, "run", "mine.yaml", "--out", "out", "-q")
    rows = (place / "out" / "metrics.jsonl").read_text().splitlines()
    assert sum('"averaged_with"' in row for row in rows) == 3 * 8  # rounds x nodes


@pytest.mark.full
def test_the_worked_example_is_listed_with_its_keys(place):
    listed = ddlsim(place, "list", "algorithms")
    assert "best_neighbor" in listed and "lowest loss on the node's own samples" in listed


def test_the_page_names_the_entry_point_group_of_every_kind_of_part():
    for key in parts.TABLES:
        assert f"`{parts.table(key).group}`" in PAGE or f'"{parts.table(key).group}"' in PAGE


def test_the_page_names_files_that_exist():
    for name in re.findall(r"`((?:ddlsim|benches|scenarios|csrc|docs|tests)/[\w/.]+\.\w+)`", PAGE):
        assert (ROOT / name).exists(), name
