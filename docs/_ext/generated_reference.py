"""Write the reference of scenarios and commands from their definitions: keys, kinds of named parts, options."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ddlsim.cli.listing import TABLE_OF, rows_of, type_text
from ddlsim.scenario import json_schema

Schema = dict[str, Any]
COMMANDS = """# Commands

Exit codes: 0 done; 1 the run failed; 2 the input was refused and nothing was run; 3 data or a part of the environment
is missing; 5 some of several runs failed; 130 interrupted. Results go to stdout, progress and messages to stderr.

"""
PAGE_OF = {key: plural for plural, key in TABLE_OF.items()}


def setup(app: Any) -> Schema:
    app.connect("builder-inited", lambda app: write(Path(app.srcdir) / "reference"))
    return {"parallel_read_safe": True}


def write(folder: Path) -> None:
    """Write into `folder`: scenario.md, cli.md, and parts/<kind>.md for every kind of named part."""
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    _put(folder / "scenario.md", "\n".join(_scenario(json_schema())))
    command = [sys.executable, "-m", "typer", "ddlsim.cli", "utils", "docs", "--name", "ddlsim"]
    commands = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    _put(folder / "cli.md", COMMANDS + commands.partition("\n")[2].strip())
    for kind in TABLE_OF:
        _put(folder / "parts" / f"{kind}.md", "\n".join(_kind(kind)))


def _put(path: Path, text: str) -> None:
    """Write a page only if it changed, for incremental builds."""
    if not path.exists() or path.read_text(encoding="utf-8") != text + "\n":
        path.write_text(text + "\n", encoding="utf-8")


def _scenario(schema: Schema) -> Iterator[str]:
    yield from ("# Keys of a scenario", "", schema["description"], "")
    yield "`ddlsim check FILE` tests a file against this page; `ddlsim schema` prints it as a JSON Schema, for editors."
    yield from ("Any key can be set from the command line by its dotted path: `--set training.learning_rate=0.01`.", "")
    yield from ("## Top level", "")
    yield from _keys(schema["properties"])
    for name, section in schema["properties"].items():
        yield from _section(name, section)


def _section(path: str, schema: Schema) -> Iterator[str]:
    """Return the keys of a section, followed by the keys of nested sections."""
    if not _is_section(schema):
        return
    yield from ("", f"## {path}", "", _sentence(schema.get("description", "")), "")
    yield from _keys(schema["properties"], f"{path}.")
    for name, inner in schema["properties"].items():
        yield from _section(f"{path}.{name}", inner)


def _is_section(schema: Schema) -> bool:
    """Whether a key holds a section, optionally null."""
    return schema.get("type") in ("object", ["object", "null"]) and bool(schema.get("properties"))


def _keys(properties: Schema, prefix: str = "") -> Iterator[str]:
    yield from ("| key | type | default | |", "|---|---|---|---|")
    for name, schema in properties.items():
        kind, default = _kind_of(name, schema, prefix), _default(schema)
        yield f"| `{name}` | {kind} | {default} | {_cell(_sentence(schema.get('description', '')))} |"


def _kind_of(name: str, schema: Schema, prefix: str) -> str:
    part = schema.get("$ref", "").rpartition("/")[2]
    if part in PAGE_OF:
        return f"[{PAGE_OF[part]}](parts/{PAGE_OF[part]}.md)"
    if _is_section(schema):
        return f"[section](#{(prefix + name).replace('.', '')})"
    return _cell(type_text(schema)) if schema.get("type") or schema.get("anyOf") or schema.get("enum") else ""


def _kind(kind: str) -> Iterator[str]:
    key = TABLE_OF[kind]
    yield from (f"# {kind.capitalize()}", "")
    yield f"What `{key}: {{name: ...}}` can name. A class in a file stands for a name as well: `name: ./mine.py:Mine`."
    for row in rows_of(kind):
        yield from ("", f"## {row['name']}", "", _sentence(row["about"]))
        if row["aliases"]:
            yield from ("", f"Also: {', '.join(f'`{alias}`' for alias in row['aliases'])}.")
        if row["keys"]:
            yield from ("", "| key | type | default | |", "|---|---|---|---|")
        for one in row["keys"]:
            default = "required" if one["required"] else f"`{json.dumps(one['default'])}`"
            yield f"| `{one['key']}` | {_cell(one['type'])} | {default} | {_cell(_sentence(one['about']))} |"


def _default(schema: Schema) -> str:
    return f"`{json.dumps(schema['default'])}`" if "default" in schema else ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _cell(text: str) -> str:
    """Return text for a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
