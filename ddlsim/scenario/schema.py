"""The JSON Schema of scenario files for editors, from the definitions that check them."""

from typing import Any, get_args

from pydantic.json_schema import GenerateJsonSchema

from ddlsim.foundation import own_code
from ddlsim.foundation.registry import Registry
from ddlsim.scenario import parts
from ddlsim.scenario.model import DEFAULTS, Scenario
from ddlsim.scenario.sections import Section
from ddlsim.scenario.tree import OPTIMIZER_KEYS

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]


class _Quiet(GenerateJsonSchema):
    """Generates nothing for named parts, which `_part` writes."""

    def function_plain_schema(self, schema: Any) -> Schema:
        return {}


def json_schema() -> Schema:
    """Return the schema (draft 2020-12). A file that `extends` another may omit required keys."""
    whole = _section(Scenario, ())
    properties = whole["properties"]
    properties["extends"] = {"type": "string", "description": "Path of the scenario that this one changes."}
    overrides = {key: value for key, value in properties.items() if key not in ("name", "extends", "fallback")}
    properties["fallback"] = {
        "description": properties["fallback"]["description"],
        "oneOf": [{"type": "null"}, {"type": "object", "properties": overrides, "additionalProperties": False}],
    }
    required = [key for key in whole.pop("required", []) if key != "name" and key not in DEFAULTS]
    return {
        "$schema": DIALECT,
        "title": "ddlsim scenario",
        **whole,
        "if": {"not": {"required": ["extends"]}},
        "then": {"required": required},
        "$defs": {key: _part(key) for key in parts.TABLES},
    }


def _section(cls: type[Section], path: tuple[str, ...]) -> Schema:
    """Return the schema of a section; all its keys are optional, because another file may give them."""
    plain = cls.model_json_schema(schema_generator=_Quiet)
    docs = parts.key_docs(cls)
    properties: Schema = {}
    for key, field in cls.model_fields.items():
        if key in parts.TABLES:
            ref: Schema = {"$ref": f"#/$defs/{key}"}
            properties[key] = {"type": "array", "items": ref} if key in parts.LISTED else ref
        elif (inner := _inner_section(field.annotation)) is not None:
            properties[key] = _section(inner, (*path, key))
            if not isinstance(field.annotation, type):
                properties[key] |= {"type": ["object", "null"], "default": None}
        else:
            properties[key] = _inlined(_untitled(plain["properties"][key]), plain.get("$defs", {}))
            properties[key].pop("description", None)  # the reason for its default
        if key in docs:
            properties[key]["description"] = docs[key]
    if path == ("training",):
        properties.update({key: {"description": "Of the optimizer."} for key in sorted(OPTIMIZER_KEYS)})
    found = {
        "type": "object",
        "description": parts.first_line(cls),
        "properties": properties,
        "additionalProperties": False,
    }
    return {**found, "required": plain.get("required", [])} if not path else found


def _inner_section(hint: Any) -> type[Section] | None:
    """Return the section in an annotation, which may allow null, or None."""
    found = (one for one in (hint, *get_args(hint)) if isinstance(one, type) and issubclass(one, Section))
    return next(found, None)


def _part(key: str) -> Schema:
    """Return the schema of a named part, with the keys of each name (if-then per name)."""
    known = parts.table(key)
    if key == "optimizer":
        return _optimizer(known)
    about = f"One of: {', '.join(known)}; or a class in a file, ./mine.py:Mine, or module, package.module:Mine."
    in_file = {"type": "string", "pattern": own_code.PATTERN}
    every: Schema = {"name": {"anyOf": [{"enum": [*known, *known.aliases]}, in_file], "description": about}}
    branches = []
    for name in known:
        then = part_keys(known[name], name)
        every.update({own: {} for own in then["properties"] if own not in every})
        which: Schema = {"const": name}
        if known.aliases_of(name):
            which = {"enum": [name, *known.aliases_of(name)]}
            then["properties"]["name"] = {**which, "description": then["description"]}
        branches.append({"if": {"properties": {"name": which}, "required": ["name"]}, "then": then})
    nullable = key in parts.OPTIONAL or "none" in known
    # A part without a name is merged over another file's part, whose keys are unknown here.
    return {
        "type": ["object", *([] if key in parts.LISTED else ["string"]), *(["null"] if nullable else [])],
        "properties": every,
        "if": {"properties": {"name": in_file}, "required": ["name"]},
        "else": {"properties": {key: {} for key in every}, "additionalProperties": False},
        "allOf": [*branches, {"if": {"type": "string"}, "then": every["name"]}],
    }


def _optimizer(known: Registry) -> Schema:
    """Return the schema of optimizers; torch's are not listed, because that would import torch."""
    about = f"{', '.join(known.own_names)}, any other of torch.optim, or a class in a file, ./mine.py:Mine."
    branches: list[Schema] = []
    for name in known.own_names:
        is_it = {"properties": {"name": {"const": name}}, "required": ["name"]}
        branches.append({"if": is_it, "then": part_keys(known[name], name)})
    properties = {"name": {"type": "string", "description": about}}
    return {"type": ["object", "string"], "properties": properties, "allOf": branches}


def part_keys(cls: type, name: str) -> Schema:
    generated = parts.checker(cls).json_schema(schema_generator=_Quiet)
    definitions = generated.pop("$defs", {})
    docs = parts.key_docs(cls)
    properties: Schema = {"name": {"const": name, "description": parts.first_line(cls)}}
    for field in parts.keys_of(cls):
        own = _inlined(_untitled(generated["properties"][field.name]), definitions)
        if field.name in docs:
            own["description"] = docs[field.name]
        if not parts.is_required(field):
            own["default"] = parts.default_of(field)
        properties[field.name] = own
    return {
        "description": parts.first_line(cls),
        "properties": properties,
        "required": generated.get("required", []),
        "additionalProperties": False,
    }


def _untitled(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key != "title"}


def _inlined(schema: Any, definitions: Schema) -> Any:
    """Replace references to definitions by the definitions."""
    if isinstance(schema, list):
        return [_inlined(one, definitions) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        found = definitions[schema["$ref"].rpartition("/")[2]]
        return _inlined(_untitled(found), definitions)
    return {key: _inlined(value, definitions) for key, value in schema.items()}
