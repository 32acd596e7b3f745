"""Imports point down only, TYPE_CHECKING blocks counted, between subpackages and inside them."""

import ast
from functools import cache
from pathlib import Path

import networkx as nx

PACKAGE = Path(__file__).parents[1] / "ddlsim"
LEVELS = [
    {"__main__", "cli"},
    {"runs"},
    {"assembly"},
    {"engine"},
    {"algorithms"},
    {"node"},
    {"learning", "network"},
    {"data", "models", "attacks", "scenario", "report"},
    {"kernels", "tasks", "topologies", "aggregation", "devices", "churn"},
    {"foundation", "_native", "_cuda"},
]
LEVEL = {name: depth for depth, names in enumerate(LEVELS) for name in names}
FILES = sorted(PACKAGE.rglob("*.py"))
MODULES = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__") for path in FILES}


def subpackage_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imported(path: Path) -> set[str]:
    """Return the modules of ddlsim that a file imports: at its head, for type checking, or inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner & MODULES or {node.module}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {module for module in found if module.startswith("ddlsim.")}


def test_imports_point_down():
    upward = [
        f"{path.relative_to(PACKAGE)} imports {other}"
        for path in FILES
        if (own := subpackage_of(path)) != "__init__"
        for other in sorted({module.split(".")[1] for module in imported(path)} - {own})
        if LEVEL[other] <= LEVEL[own]
    ]
    assert upward == []


def test_imports_have_no_cycles():
    graph = nx.DiGraph()
    for path in FILES:
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        graph.add_edges_from((module, other) for other in imported(path) if other in MODULES and other != module)
    assert list(nx.simple_cycles(graph)) == []


def test_only_subpackages_of_simulated_time_import_simpy():
    users = {
        subpackage_of(path) for path in FILES if "import simpy" in path.read_text() or "from simpy" in path.read_text()
    }
    assert users == {"assembly", "engine", "network", "node"}


def test_every_subpackage_has_a_level():
    assert {subpackage_of(path) for path in FILES} - {"__init__"} <= set(LEVEL)
