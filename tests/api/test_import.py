"""`import ddlsim` is quick: its names are imported on first use."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import ddlsim

ROOT = Path(ddlsim.__file__).parents[1]
SLOW = ("torch", "torchvision", "numpy", "networkx", "pandas", "matplotlib", "pydantic", "simpy", "typing")


def imported_by(code):
    """Return the slow packages that a fresh Python imports while it runs some code."""
    code = (
        f"import sys; had = set(sys.modules); {code}; print(*[n for n in {SLOW} if n in sys.modules and n not in had])"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_import_of_ddlsim_imports_nothing_slow():
    assert imported_by("import ddlsim") == []


@pytest.mark.parametrize("name", ddlsim.__all__)
def test_every_public_name_exists_and_has_a_docstring(name):
    assert getattr(ddlsim, name).__doc__ and name in dir(ddlsim)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'ddlsim' has no attribute 'runn'"):
        ddlsim.runn  # noqa: B018


def test_docstrings_of_public_functions_describe_every_argument():
    import inspect

    for function in (ddlsim.run, ddlsim.resume, ddlsim.compare, ddlsim.sweep):
        described = inspect.signature(function).parameters.values()
        for name in (each.name for each in described if each.default is not ...):  # ...: keys of a scenario
            assert re.search(rf"^ +(\w+, )*{name}(, \w+)*: ", function.__doc__, re.M), (function.__name__, name)
