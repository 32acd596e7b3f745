"""ddlsim/_native.pyi lists every class, method and function of the compiled module with its parameters."""

import ast
import importlib.util
from pathlib import Path

import pytest

from ddlsim.foundation import native

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "native_stub.py"


def names_of(stub: str) -> set[str]:
    """Return constants, classes and signatures without types, which differ among versions of pybind11."""
    found = set()

    def visit(body, inside):
        for node in body:
            if isinstance(node, ast.ClassDef):
                found.add(f"class {node.name}")
                visit(node.body, f"{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                for argument in ast.walk(node.args):
                    if isinstance(argument, ast.arg):
                        argument.annotation = None
                kind = "property " if node.decorator_list else ""
                found.add(f"{kind}{inside}{node.name}({ast.unparse(node.args)})")
            elif isinstance(node, ast.AnnAssign):
                found.add(f"{inside}{ast.unparse(node.target)}")

    visit(ast.parse(stub).body, "")
    return found


@pytest.mark.skipif(not TOOL.is_file(), reason="no source tree")
def test_stub_names_all_functions_of_the_module():
    spec = importlib.util.spec_from_file_location("native_stub", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    written, there = names_of((ROOT / "ddlsim" / "_native.pyi").read_text()), names_of(tool.stub_of(native.extension()))
    assert written == there, f"run `python {TOOL.relative_to(ROOT)} > ddlsim/_native.pyi`"


def test_parameter_names_reveal_a_changed_parameter_without_types():
    assert names_of("def f(x: int) -> None: ...") != names_of("def f(y: int) -> None: ...")
    assert names_of("class A:\n    def f(self, x: int = 1) -> int: ...") == {"class A", "A.f(self, x=1)"}
