"""ddlsim list: names for scenarios. ddlsim show: a named part with its source, keys, types and defaults."""

import inspect
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ddlsim.cli.options import AsJson
from ddlsim.foundation.errors import ScenarioError, did_you_mean
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

KINDS = (*TABLE_OF, "energy", "metrics", "scenarios", "matrices")
Kind = Annotated[str, typer.Argument(help=f"{', '.join(KINDS)}.", autocompletion=lambda: list(KINDS))]


def list_names(kind: Kind = "", as_json: AsJson = False) -> None:
    """List the names of one kind, or all names, for scenarios, one per line."""
    from ddlsim.report.text import printable
    from ddlsim.scenario import parts

    found = {each: rows_of(each) for each in ([_plural(kind)] if kind else KINDS)}
    if as_json:
        typer.echo(table_text({"schema_version": 1, **found}, indent=1))
        return
    for each, rows in found.items():
        width = max((len(row["name"]) for row in rows), default=0)
        typer.echo(f"{each}:")
        for row in rows:
            also = f" (also {', '.join(row['aliases'])})" if row.get("aliases") else ""
            typer.echo(printable(f"  {row['name']:{width}}  {row['about']}{also} [{row.get('from', 'built-in')}]"))
    key = TABLE_OF.get(_plural(kind)) if kind else None
    group = f", or an entry point in the group {parts.table(key).group}" if key else ""
    typer.echo(f"Others: a class in a file (./mine.py:Mine) or module (package.module:Mine){group}.")
    if key or not kind:
        typer.echo(f"Source, keys and an example: ddlsim show {key or 'KIND'} NAME.")


def show(
    kind: Kind,
    name: Annotated[str, typer.Argument(help="A name of this kind (`ddlsim list KIND`), or ./mine.py:Mine.")],
) -> None:
    """Show a named part: its documentation, source, keys and an example."""
    from ddlsim.foundation import own_code
    from ddlsim.report.text import printable
    from ddlsim.scenario import parts

    key = TABLE_OF.get(_plural(kind))
    if key is None:
        raise ScenarioError(f"show {kind}: has no keys. Use `ddlsim list {_plural(kind)}`.")
    table = parts.table(key)
    try:
        cls = table[name]
    except KeyError:
        raise ScenarioError(f"show {key}: {parts.unknown_name(table, name)}") from None
    name = table.meant(name)
    module = inspect.getmodule(cls)
    keys = _keys(key, name)
    also = f", also {', '.join(table.aliases_of(name))}" if table.aliases_of(name) else ""
    about = [inspect.getdoc(cls) or "", inspect.getdoc(module) or "" if module else ""]
    place = getattr(module, "__file__", None)
    lines = [f"{name} ({key}{also})", *(f"\n{each.partition(ARGS)[0].strip()}" for each in about if each)]
    lines += [f"\nFile: {own_code.shown_path(Path(place))}"] if place else []
    lines += ["\nKeys:" if keys else "\nNo keys.", *_key_lines(keys), "\nExample:", *_example(key, name, keys)]
    typer.echo(printable("\n".join(lines)))


ARGS = "\nArgs:"


def _plural(word: str) -> str:
    """Return the kind of a word in the singular or plural, or of the key of a scenario.

    Raises:
        ScenarioError: the word is not a kind; for the name of a part, with the command that shows the part.
    """
    from ddlsim.scenario import parts

    found = next((kind for kind in KINDS if word in (kind, kind[:-1], TABLE_OF.get(kind))), None)
    if found is not None:
        return found
    named = [key for key in TABLE_OF.values() if word in parts.table(key) or word in parts.table(key).aliases]
    hint = f" Show it with `ddlsim show {named[0]} {word}`." if named else did_you_mean(word, KINDS)
    raise ScenarioError(f"expected a kind of name, got {word!r}.{hint} Kinds: {', '.join(KINDS)}")


def _key_lines(keys: list[dict[str, Any]]) -> list[str]:
    width = max((len(key["key"]) for key in keys), default=0)
    lines = []
    for key in keys:
        default = "required" if key["required"] else f"default {_yaml(key['default'])}"
        lines.append(f"  {key['key']:{width}}  {key['type']}, {default}. {key['about']}".rstrip())
    return lines


def _yaml(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _example(key: str, name: str, keys: list[dict[str, Any]]) -> list[str]:
    """Return YAML lines with the part's keys: its defaults, and ... for required keys."""
    from ddlsim.scenario import parts

    shown = {"name": name} | {each["key"]: "..." for each in keys if each["required"]}
    shown |= {each["key"]: _yaml(each["default"]) for each in keys if each["default"] is not None}
    first, rest = ("- ", "  ") if key in parts.LISTED else ("", "")
    lines = [f"{key}:", *(f"  {rest if i else first}{k}: {v}" for i, (k, v) in enumerate(shown.items()))]
    section = parts.SECTIONS.get(key)
    return [f"  {line}" for line in ([f"{section}:", *(f"  {line}" for line in lines)] if section else lines)]


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
    from ddlsim.scenario.tree import parse_file

    try:
        text = path.read_text(encoding="utf-8")
        description = parse_file(text, str(path)).child("description")
    except (OSError, UnicodeDecodeError, ScenarioError):
        return "cannot be read; `ddlsim check` reports the reason"
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
