"""Write ddlsim/_native.pyi, the types of the compiled module, from pybind11's signatures in docstrings.

    python tools/native_stub.py > ddlsim/_native.pyi && ruff format ddlsim/_native.pyi

tests/kernels/test_native_stub.py fails if it is outdated.
"""

import re
from types import ModuleType

HEAD = '''"""Types of the compiled module, written by tools/native_stub.py; addresses are int, strides elements."""

from collections.abc import Sequence

import numpy
from numpy.typing import ArrayLike, NDArray
'''
WHOLE = "typing.SupportsInt | typing.SupportsIndex"
REAL = "typing.SupportsFloat | typing.SupportsIndex"


def stub_of(module: ModuleType) -> str:
    """Return the stub: constants, classes with their methods and properties, and functions, by name."""
    blocks = []
    for name, value in sorted(vars(module).items()):
        if name.startswith("__"):
            continue
        if isinstance(value, type):
            blocks.append("\n" + _class(module, name, value))
        elif callable(value):
            blocks.append(_function(module, name, value.__doc__ or ""))
        else:
            blocks.append(f"{name}: {type(value).__name__}\n")
    return HEAD + "\n" + "".join(blocks)


def _class(module: ModuleType, name: str, found: type) -> str:
    lines = [f"class {name}:\n"]
    for key, value in sorted(vars(found).items()):
        doc = value.fget.__doc__ if isinstance(value, property) else getattr(value, "__doc__", None)
        if key.startswith("_") and (key != "__init__" or f"{key}(" not in (doc or "")):
            continue
        if isinstance(value, property):
            result = _plain(module, doc.split("->")[1].strip())
            lines.append(f"    @property\n    def {key}(self) -> {result}: ...\n")
        else:
            lines.append("    " + _function(module, key, doc or "", method=True))
    return "".join(lines) if len(lines) > 1 else f"class {name}: ...\n"


def _function(module: ModuleType, name: str, doc: str, method: bool = False) -> str:
    signature = doc.strip().splitlines()[0] if doc.strip() else ""
    match = re.fullmatch(re.escape(name) + r"\((.*)\) -> (.*)", signature)
    if match is None:  # a function of Python's C interface, without a signature
        return f"def {name}({'self, ' if method else ''}*arguments: object) -> object: ...\n"
    parameters, result = _plain(module, match[1]), _plain(module, match[2])
    if method:
        parameters = re.sub(r"^self: \w+", "self", parameters)
    if "arg0: " in parameters:  # pybind11 has no names: by position only
        parameters += ", /"
    return f"def {name}({parameters}) -> {result}: ...\n"


def _plain(module: ModuleType, types: str) -> str:
    """Simplify pybind11's types; convertible types become int or float."""
    types = types.replace(f"{module.__name__}.", "").replace(WHOLE, "int").replace(REAL, "float")
    types = re.sub(r"typing\.Annotated\[numpy\.typing\.ArrayLike, numpy\.\w+\]", "ArrayLike", types)
    types = re.sub(r'typing\.Annotated\[([^"]*), "FixedSize\(\d+\)"\]', r"\1", types)
    types = types.replace("numpy.typing.", "").replace("collections.abc.", "")
    return re.sub(r"\b(tuple|dict|list)\b(?!\[)", lambda word: GENERIC[word[1]], types)


GENERIC = {"tuple": "tuple[object, ...]", "dict": "dict[object, object]", "list": "list[object]"}


if __name__ == "__main__":
    from ddlsim.foundation import native

    print(stub_of(native.extension()), end="")
