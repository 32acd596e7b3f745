"""Scenario files: YAML text -> frozen, checked Scenario, and back.

Every error that a user can make in a scenario is found here, before data or a GPU is touched, and all of them at once.
files.py finds files, tree.py reads YAML with places, load.py merges, validate.py checks and words the errors, model.py
is the scenario.
"""

from ddlsim.scenario.files import by_name as by_name
from ddlsim.scenario.load import from_mapping as from_mapping
from ddlsim.scenario.load import from_python as from_python
from ddlsim.scenario.load import load as load
from ddlsim.scenario.load import with_fallback as with_fallback
from ddlsim.scenario.model import Scenario as Scenario
from ddlsim.scenario.model import digest as digest
from ddlsim.scenario.model import to_yaml as to_yaml
from ddlsim.scenario.schema import json_schema as json_schema
from ddlsim.scenario.tree import ScenarioProblems as ScenarioProblems
