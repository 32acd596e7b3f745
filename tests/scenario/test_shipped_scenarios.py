"""Properties of every scenario shipped with ddlsim."""

import json
from functools import cache
from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

from ddlsim.scenario import by_name, digest, json_schema, load, to_yaml, with_fallback
from ddlsim.scenario.files import is_matrix
from ddlsim.scenario.parts import PART_PATHS, TABLES, table

FOLDER = Path(__file__).parents[2] / "scenarios"
FILES = sorted(
    path for path in FOLDER.rglob("*.yaml") if "base" not in path.relative_to(FOLDER).parts and not is_matrix(path)
)
NAMES = [path.stem for path in FILES]


shipped = cache(load)


@cache
def resolved(path: Path) -> str:
    return to_yaml(shipped(path))


@pytest.fixture(scope="module")
def schema():
    jsonschema.Draft202012Validator.check_schema(json_schema())
    return jsonschema.Draft202012Validator(json_schema())


@pytest.mark.full
def test_scenarios_are_written_and_read_again_unchanged(tmp_path):
    changed = []
    for path in FILES:
        scenario, text = shipped(path), resolved(path)
        (tmp_path / "resolved.yaml").write_text(text)
        again = load(tmp_path / "resolved.yaml")
        if (again, with_fallback(again), to_yaml(again)) != (scenario, with_fallback(scenario), text):
            changed.append(path.name)
    assert changed == []


@pytest.mark.full
def test_schema_accepts_files_and_their_resolved_forms(schema):
    yaml = YAML(typ="safe", pure=True)
    documents = [(path.name, yaml.load(text)) for path in FILES for text in (path.read_text(), resolved(path))]
    assert [(name, error.message) for name, document in documents for error in schema.iter_errors(document)] == []


def test_names_are_unique():
    assert len(set(NAMES)) == len(NAMES)
    assert set(NAMES) <= set(by_name())


def test_digest_covers_all_keys_except_texts(tmp_path):
    path = FOLDER / "smoke.yaml"
    whole = digest(load(path))
    assert len(whole) == 8 and int(whole, 16) >= 0
    assert digest(load(path, ["description=other", "name=other", "paper={a: 1}"])) == whole
    assert digest(load(path, ["seed=1"])) != whole
    assert digest(load(path, ["algorithm.heads=3"])) != whole


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"rounds": 0}, "$.rounds"),
        ({"algorithm": {"name": "facade", "headz": 2}}, "$.algorithm"),
        ({"algorithm": {"name": "facade", "heads": 0}}, "$.algorithm.heads"),
        ({"topology": {"name": "rings"}}, "$.topology.name"),
        ({"topology": {"degre": 2}}, "$.topology"),
        ({"network": {"links": {"name": "uniform", "latency_ms": -1}}}, "$.network.links.latency_ms"),
        ({"churn": {"name": "schedule", "offline": [{"node": 1}]}}, "$.churn.offline[0]"),
        ({"fallback": {"rounds": "many"}}, "$.fallback"),
        ({"modell": 1}, "$"),
    ],
)
def test_schema_and_loader_refuse_the_same_files(schema, change, place):
    document = YAML(typ="safe", pure=True).load((FOLDER / "smoke.yaml").read_text()) | change
    assert place in {error.json_path for error in schema.iter_errors(document)}


def test_schema_requires_complete_scenarios_unless_they_extend(schema):
    assert not schema.is_valid({"rounds": 3})
    assert schema.is_valid({"extends": "other.yaml", "rounds": 3})


def test_schema_holds_texts_and_defaults_of_every_named_part():
    definitions = json_schema()["$defs"]
    assert len(definitions) == len(PART_PATHS) == len(TABLES)
    heads = next(
        branch["then"]["properties"]["heads"]
        for branch in definitions["algorithm"]["allOf"]
        if branch["if"]["properties"]["name"].get("const") == "facade"
    )
    assert (heads["default"], heads["minimum"]) == (2, 1) and "number of heads" in heads["description"]
    names = {key: [*table(key), *table(key).aliases] for key in TABLES if key != "optimizer"}  # torch's are open
    assert all(definitions[key]["properties"]["name"]["anyOf"][0]["enum"] == names[key] for key in names)
    json.dumps(definitions)


CELLS = [
    path for path in FILES if "extends" in path.read_text() and "accuracy:" in path.read_text().partition("paper:")[2]
]


def test_published_numbers_are_not_inherited_by_extends():
    """`extends` merges `paper` key by key, so a missing deviation would come from another cell."""
    yaml = YAML(typ="safe", pure=True)
    assert CELLS
    assert [path.name for path in CELLS if shipped(path).paper != yaml.load(path.read_text())["paper"]] == []
