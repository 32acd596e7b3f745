"""scenarios/schema.json, which editors read by the first line of every shipped scenario."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

from ddlsim.cli.listing import TABLE_OF
from ddlsim.scenario import json_schema, parts
from ddlsim.scenario.files import is_matrix

SCENARIOS = Path(__file__).parents[2] / "scenarios"
FILES = [file for file in sorted(SCENARIOS.rglob("*.yaml")) if file.parent.name != "base" and not is_matrix(file)]


@pytest.fixture(scope="module")
def schema():
    return json.loads((SCENARIOS / "schema.json").read_text())


def test_schema_file_equals_the_output_of_ddlsim_schema(schema):
    assert schema == json.loads(json.dumps(json_schema())), "write it anew: ddlsim schema > scenarios/schema.json"


def test_the_first_line_of_every_part_is_a_whole_sentence():
    """`ddlsim list` and editors show only this line."""
    known = [cls for table in TABLE_OF.values() for cls in parts.table(table).values()]
    assert len(known) > 100
    assert not [cls for cls in known if not parts.first_line(cls).endswith((".", ")", ":"))]


def test_every_scenario_names_the_schema_and_fits_it(schema):
    check = jsonschema.Draft202012Validator(schema)
    assert len(FILES) > 30
    for file in FILES:
        text = file.read_text()
        (named,) = re.findall(r"\A# yaml-language-server: \$schema=(\S+)\n", text)
        assert (file.parent / named).resolve() == SCENARIOS / "schema.json", file
        assert not list(check.iter_errors(YAML(typ="safe").load(text))), file
