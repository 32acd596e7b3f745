"""Scenario files: YAML text -> frozen, checked Scenario, and back.

Every error that a user can make in a scenario is found here, before data or a GPU is touched, and all of them at once.
files.py finds files, tree.py reads YAML with places, load.py merges, validate.py checks and words the errors, model.py
is the scenario.
"""

from ddlsim.scenario.files import by_name
from ddlsim.scenario.load import as_overrides, from_mapping, from_python, load, with_fallback
from ddlsim.scenario.model import Scenario, digest, to_yaml
from ddlsim.scenario.schema import json_schema
from ddlsim.scenario.tree import ScenarioProblems

__all__ = [
    "Scenario",
    "ScenarioProblems",
    "as_overrides",
    "by_name",
    "digest",
    "from_mapping",
    "from_python",
    "json_schema",
    "load",
    "to_yaml",
    "with_fallback",
]
