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

_PLACES = {
    "run": "runs.api.start",
    "check": "runs.api.start",
    "resume": "runs.api.start",
    "load": "runs.api.start",
    "Interrupted": "runs.api.start",
    "Run": "runs.api.run",
    "compare": "runs.api.several",
    "sweep": "runs.api.several",
    "Comparison": "runs.api.several",
    "Callback": "runs.callbacks",
    "StopRun": "runs.callbacks",
    "CallbackFailed": "runs.callbacks",
    "DdlsimError": "foundation.errors",
    "ScenarioError": "foundation.errors",
    "DataMissing": "foundation.errors",
    "DataDamaged": "foundation.errors",
}
"""Name -> the module that defines it."""

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
    if name not in _PLACES:
        raise AttributeError(f"module 'ddlsim' has no attribute {name!r}")
    found = getattr(import_module(f"ddlsim.{_PLACES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
