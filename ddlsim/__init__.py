"""ddlsim: a discrete-event simulator of decentralized deep learning.

    import ddlsim

    run = ddlsim.run("smoke", set={"rounds": 10}, seed=1)
    run.evaluations()

`docs/python.md` is the tutorial. Names are imported when they are first used, torch when a run needs it.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # as in typing, which takes longer to import than this module
if TYPE_CHECKING:
    from ddlsim.foundation.errors import DataDamaged, DataMissing, DdlsimError, ScenarioError
    from ddlsim.runs.api.run import Run
    from ddlsim.runs.api.several import Comparison, compare, sweep
    from ddlsim.runs.api.start import Interrupted, check, load, resume, run
    from ddlsim.runs.callbacks import Callback, CallbackFailed, StopRun

_NAMES = {
    "runs.api.start": ("run", "check", "resume", "load", "Interrupted"),
    "runs.api.run": ("Run",),
    "runs.api.several": ("compare", "sweep", "Comparison"),
    "runs.callbacks": ("Callback", "StopRun", "CallbackFailed"),
    "foundation.errors": ("DdlsimError", "ScenarioError", "DataMissing", "DataDamaged"),
}
"""Module -> the names that it defines."""

__all__ = [
    "Callback",
    "CallbackFailed",
    "Comparison",
    "DataDamaged",
    "DataMissing",
    "DdlsimError",
    "Interrupted",
    "Run",
    "ScenarioError",
    "StopRun",
    "check",
    "compare",
    "load",
    "resume",
    "run",
    "sweep",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "data":  # for ddlsim.data.Arrays
        return import_module("ddlsim.data")
    module = next((module for module, names in _NAMES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module 'ddlsim' has no attribute {name!r}")
    found = getattr(import_module(f"ddlsim.{module}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
