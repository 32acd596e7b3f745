"""ddlsim list: names for scenarios, with keys, types and defaults."""

import json
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from ddlsim.cli.options import AsJson
from ddlsim.foundation.strict_json import table_text
from ddlsim.foundation.units import MAX_COUNT

TABLE_OF = {
    "algorithms": "algorithm",
    "aggregations": "aggregation",
    "attacks": "attacks",
    "datasets": "data",
    "tasks": "task",
    "partitions": "partition",
    "shifts": "shift",
    "models": "model",
    "topologies": "topology",
    "links": "links",
    "compressions": "compression",
    "devices": "devices",
    "churns": "churn",
    "optimizers": "optimizer",
    "schedules": "schedule",
}
"""Kind of name -> the key of a scenario that takes it."""

Kind = Enum("Kind", {name: name for name in (*TABLE_OF, "energy", "metrics", "scenarios", "matrices")}, type=str)  # type: ignore[misc]


def list_names(
    kind: Annotated[Kind | None, typer.Argument(help="Names to list, with their keys; by default all names.")] = None,
    as_json: AsJson = False,
) -> None:
    """List names for scenarios, with keys, defaults and origin."""
    from ddlsim.report.text import printable
    from ddlsim.scenario import parts

    found = {each.value: rows_of(each.value) for each in ([kind] if kind else Kind)}
    if as_json:
        typer.echo(table_text({"schema_version": 1, **found}, indent=1))
        return
    for each, rows in found.items():
        width = max((len(row["name"]) for row in rows), default=0)
        typer.echo(f"{each}:")
        for row in rows:
            also = f" (also {', '.join(row['aliases'])})" if row.get("aliases") else ""
            typer.echo(printable(f"  {row['name']:{width}}  {row['about']}{also} [{row.get('from', 'built-in')}]"))
            keys = row.get("keys", []) if kind else []
            key_width = max((len(key["key"]) for key in keys), default=0)
            for key in keys:
                value = key["default"]
                default = f"default {value if isinstance(value, str) else json.dumps(value)}"
                default = "required" if key["required"] else default
                text = f"{key['key']:{key_width}}  {key['type']}, {default}. {key['about']}"
                typer.echo(f"  {'':{width}}    {text}".rstrip())
    key = TABLE_OF.get(kind.value) if kind else None
    group = f", or an entry point in the group {parts.table(key).group}" if key else ""
    typer.echo(f"Others: a class in a file (./mine.py:Mine) or module (package.module:Mine){group}.")
    if kind is None:
        typer.echo("Keys: ddlsim list KIND.")


def rows_of(kind: str) -> list[dict[str, Any]]:
    """Return a row per name: name, about, and for named parts their keys."""
    from ddlsim.scenario import parts

    if kind == "metrics":
        from ddlsim.tasks.builtin import SCORES
        from ddlsim.tasks.metrics import METRICS

        functions = {**METRICS, **SCORES}
        return [{"name": name, "about": parts.first_line(function)} for name, function in functions.items()]
    if kind == "energy":
        from ddlsim.devices.energy import KINDS

        rows = []
        for key, known in KINDS.items():
            for name, preset in known.items():
                values = ", ".join(f"{each} {value:.4g}" for each, value in preset.values.items())
                rows.append({"name": f"{key}: {name}", "about": f"{values}: {preset.about}"})
        return rows
    if kind in ("scenarios", "matrices"):
        from ddlsim.scenario import by_name

        files = by_name(matrices=kind == "matrices")
        return [
            {"name": name, "about": _about(path), "path": str(path), "from": str(path.parent)}
            for name, path in sorted(files.items())
        ]
    table = parts.table(TABLE_OF[kind])
    return [
        {
            "name": name,
            "about": parts.first_line(table[name]),
            "aliases": table.aliases_of(name),
            "from": table.origin_of(name),
            "keys": _keys(TABLE_OF[kind], name),
        }
        for name in table
    ]


def _about(path: Path) -> str:
    """Return the description of a scenario, or its first comment."""
    from ddlsim.foundation.errors import ScenarioError
    from ddlsim.scenario.tree import parse_file

    try:
        text = path.read_text(encoding="utf-8")
        description = parse_file(text, str(path)).child("description")
    except (OSError, UnicodeDecodeError, ScenarioError):
        return "cannot be read; `ddlsim check` says why"
    if description is not None:
        return str(description.value).partition("\n")[0]
    comments = (line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    return next((comment for comment in comments if not comment.startswith("yaml-language-server")), "")


def _keys(key: str, name: str) -> list[dict[str, Any]]:
    from ddlsim.scenario import parts
    from ddlsim.scenario.schema import part_keys

    cls = parts.table(key)[name]
    schema = part_keys(cls, name)["properties"]
    return [
        {
            "key": field.name,
            "type": type_text(schema[field.name]),
            "required": parts.is_required(field),
            "default": None if parts.is_required(field) else parts.default_of(field),
            "about": schema[field.name].get("description", ""),
        }
        for field in parts.keys_of(cls)
    ]


def type_text(schema: dict[str, Any]) -> str:
    """Describe a JSON Schema in a few words."""
    if "anyOf" in schema:
        return " or ".join(type_text(one) for one in schema["anyOf"])
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        if "prefixItems" in schema:
            return "list of (" + ", ".join(type_text(one) for one in schema["prefixItems"]) + ")"
        return f"list of {type_text(schema.get('items', {}))}"
    if schema.get("type") == "object" and "properties" not in schema:
        return "mapping"
    if schema.get("type") == "object":
        return "{" + ", ".join(schema.get("properties", {})) + "}"
    words = {"integer": "int", "number": "number", "string": "text", "boolean": "true | false", "null": "null"}
    bounds = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    stated_bounds = {key: sign for key, sign in bounds.items() if abs(schema.get(key, MAX_COUNT)) != MAX_COUNT}
    limits = " and ".join(f"{sign} {schema[key]:g}" for key, sign in stated_bounds.items())
    return " ".join(filter(None, (words.get(schema.get("type", ""), "any"), limits)))
