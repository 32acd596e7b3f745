"""Files and outputs are JSON by RFC 8259, even of a diverged run, and readers recognize the divergence."""

import ast
import json
import math
from pathlib import Path

import pytest

import ddlsim
from ddlsim.foundation.strict_json import row_number, row_text, table_text
from ddlsim.report.reading import read

PACKAGE = Path(ddlsim.__file__).parent
WRITERS = ("write", "write_text", "writelines", "echo")


def refuse(token):
    raise AssertionError(f"{token} is no JSON")


def parsed(text):
    return json.loads(text, parse_constant=refuse)


def test_numbers_without_a_json_form_are_texts_in_rows_and_null_in_tables():
    value = {"a": [math.inf, -math.inf, 1.5], "b": {"c": math.nan}, "d": "NaN of the user", "e": None}
    assert row_text(value) == '{"a":["Infinity","-Infinity",1.5],"b":{"c":"NaN"},"d":"NaN of the user","e":null}'
    assert parsed(table_text(value)) == {**value, "a": [None, None, 1.5], "b": {"c": None}}
    assert [row_number(text) for text in ("Infinity", "-Infinity", "text", 2)] == [math.inf, -math.inf, "text", 2]
    assert math.isnan(row_number("NaN"))


def test_no_file_or_output_is_written_by_json_dumps():
    for path in PACKAGE.rglob("*.py"):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            if ast.unparse(call.func).rpartition(".")[2] in WRITERS:
                assert "json.dump" not in ast.unparse(call), path


@pytest.fixture(scope="module")
def diverged(tmp_path_factory):
    """Return a run whose losses are infinite from the first round on."""
    changes = {"training.learning_rate": 1e12, "rounds": 2, "nodes.clusters": [4], "evaluation.samples": 100}
    return ddlsim.run("smoke", set=changes, out=tmp_path_factory.mktemp("run"), progress=None)


def test_files_of_a_diverged_run_are_json(diverged):
    texts = [path.read_text() for path in diverged.dir.rglob("*.json")]
    lines = [line for path in diverged.dir.rglob("*.jsonl") for line in path.read_text().splitlines()]
    for text in (*texts, *lines, ddlsim.compare([diverged]).table("json")):
        parsed(text)
    assert any('"value":"Infinity"' in line for line in lines)


def test_diverged_run_is_recognized_in_current_and_older_files(diverged, tmp_path):
    assert len(read(diverged.dir).diverged) == 4
    path = diverged.dir / "metrics.jsonl"
    text = path.read_text()
    path.write_text(text.replace('"Infinity"', "Infinity").replace('"NaN"', "NaN"))
    try:
        assert read(diverged.dir).diverged == diverged.records.diverged
    finally:
        path.write_text(text)
