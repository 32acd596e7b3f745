"""Imports point down only; simpy lives in the engine; looking at names does not import torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "ddlsim"
LEVELS = [
    {"__main__"},
    {"cli"},
    {"reproduce"},
    {"runs"},
    {"build"},
    {"scenario"},
    {"algorithms", "compression", "data", "models", "topologies"},
    {"similarities", "merges", "selection"},
    {"engine"},
    {"learning"},
    {"kernels"},
    {"native"},
    {"graph_files", "large_graphs", "report"},
    {"metrics"},
    {"_native", "_cuda", "errors", "units", "rng", "registry"},
]
LEVEL = {room: depth for depth, rooms in enumerate(LEVELS) for room in rooms}
FILES = sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """Rooms of ddlsim that a file imports, type-checking blocks left out."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            node.body = []
    rooms = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module] if node.module != "ddlsim" else [f"ddlsim.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        rooms |= {name.split(".")[1] for name in names if name.startswith("ddlsim.")}
    return rooms


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path):
    room = room_of(path)
    if room == "__init__":
        return
    for other in imported_rooms(path) - {room, "__version__"}:
        assert LEVEL[other] > LEVEL[room], f"{room} imports {other}"


def test_only_the_engine_imports_simpy():
    users = {room_of(path) for path in FILES if "import simpy" in path.read_text() or "from simpy" in path.read_text()}
    assert users == {"engine"}


def test_every_room_has_a_level():
    assert {room_of(path) for path in FILES} - {"__init__"} <= set(LEVEL)


def test_names_and_scenarios_need_no_torch():
    code = (
        "import sys, ddlsim.cli, ddlsim.scenario, ddlsim.report, ddlsim.algorithms, ddlsim.data, ddlsim.models\n"
        "[ddlsim.algorithms.ALGORITHMS[n] for n in ddlsim.algorithms.ALGORITHMS]\n"
        "[ddlsim.models.MODELS[n] for n in ddlsim.models.MODELS]\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, check=False).returncode == 0
