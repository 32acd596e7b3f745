"""Validate a tree of YAML values as a Scenario, or report all problems with place and explanation."""

import json
import math
from typing import Any, NamedTuple, get_args, get_type_hints

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ddlsim.foundation.errors import ScenarioError, did_you_mean
from ddlsim.scenario import parts
from ddlsim.scenario.crosscheck import cross_problems
from ddlsim.scenario.model import Scenario
from ddlsim.scenario.synonyms import suggestion
from ddlsim.scenario.tree import NUMBER_LIKE, Mark, Problem, Tree

Path = tuple[str | int, ...]

_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "none_required": "null",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping (key: value)",
    "model_type": "a mapping (key: value)",
    "model_attributes_type": "a mapping (key: value)",
    "dataclass_type": "a mapping (key: value)",
    "part_type": "a name, such as {example}, or a mapping, such as {{name: {example}}}",
    "literal_error": "{expected}",
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "a number of at least {ge:g}",
    "less_than": "a number below {lt:g}",
    "less_than_equal": "a number of at most {le:g}",
    "string_pattern_mismatch": "letters, digits and any of _ . + - (it names a folder)",
}


def validate(tree: Tree) -> tuple[Scenario | None, list[Problem]]:
    """Check a tree that is merged with the defaults.

    Returns:
        The scenario and no problems, or None and at least one.
    """
    scenario, problems = check_section(tree, Scenario)
    if scenario is not None:
        problems = [Problem(_mark(tree, path), dotted(path), text) for path, text in cross_problems(scenario)]
    return (None, problems) if problems else (scenario, [])


def check_section(tree: Tree, owner: type[BaseModel]) -> tuple[Any, list[Problem]]:
    """Check a tree against the model of one section.

    Args:
        tree: the section.
        owner: a pydantic model.
    Returns:
        The model and no problems, or None and at least one.
    """
    try:
        return owner.model_validate_json(json.dumps(tree.plain())), []
    except ValidationError as error:
        return None, _problems(tree, error, owner)


def dotted(path: Path) -> str:
    """("nodes", "clusters", 1) -> "nodes.clusters[1]"."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return text.removeprefix(".")


def follow(tree: Tree, path: Path) -> tuple[Tree, Path]:
    """Return the deepest tree along a path, and its path."""
    reached: Path = ()
    for key in path:
        below = tree.child(key)
        if below is None:
            break
        tree, reached = below, (*reached, key)
    return tree, reached


def _mark(tree: Tree, path: Path) -> Mark:
    found, reached = follow(tree, path)
    return found.mark if reached == path else found.key


class _Found(NamedTuple):
    """One pydantic error with its place in the tree; `tag_at` is the depth of a union's branch name in its path."""

    path: Path
    tag_at: int | None
    error: ErrorDetails


def _problems(tree: Tree, error: ValidationError, owner: type[BaseModel]) -> list[Problem]:
    found = [_locate(tree, one) for one in error.errors(include_url=False)]
    deepest: dict[Path, int] = {}
    for one in found:
        if one.tag_at is not None:
            base = one.path[: one.tag_at]
            deepest[base] = max(deepest.get(base, 0), len(one.path))
    groups: dict[Path, list[ErrorDetails]] = {}
    for one in found:
        if one.error["type"] == "too_short" and any(
            len(other.path) > len(one.path) and other.path[: len(one.path)] == one.path for other in found
        ):
            continue  # pydantic counts the entries that are right
        # Inside a union only the branch that got furthest is meant: for a list with a bad entry, the list.
        if one.tag_at is None or len(one.path) == deepest[one.path[: one.tag_at]]:
            groups.setdefault(one.path, []).append(one.error)
    return [_problem(tree, path, errors, owner) for path, errors in groups.items()]


def _locate(tree: Tree, error: ErrorDetails) -> _Found:
    """Follow an error's place along the tree, without the names of union branches that pydantic inserts."""
    path: Path = ()
    tag_at = None
    place = error["loc"]
    for i, key in enumerate(place):
        below = tree.child(key)
        if below is not None:
            tree, path = below, (*path, key)
        elif i == len(place) - 1 and error["type"] == "missing":
            path = (*path, key)
        elif tag_at is None:
            tag_at = len(path)
    return _Found(path, tag_at, error)


def _problem(tree: Tree, path: Path, errors: list[ErrorDetails], owner: type[BaseModel]) -> Problem:
    value, _ = follow(tree, path)
    kinds = [error["type"] for error in errors]
    if "missing" in kinds:
        return Problem(value.key, dotted(path), f"required key {path[-1]!r} is missing{_name_hint(path)}")
    if "extra_forbidden" in kinds or "unexpected_keyword_argument" in kinds:
        return Problem(value.key, dotted(path), _unknown_key(tree, path, owner))
    if "unknown_name" in kinds or "refused" in kinds:
        return Problem(value.mark, dotted(path), errors[0]["msg"])
    expected = " or ".join(dict.fromkeys(_expected(error, path) for error in errors))
    hint = ""
    if "literal_error" in kinds and isinstance(value.value, str):
        hint = did_you_mean(value.value, [word for error in errors for word in _words(error)])
    if isinstance(value.value, str) and NUMBER_LIKE.match(value.value) and "number" in expected:
        hint = " Write it without quotes."
    text = f"expected {expected}, got {shown(value)}"
    return Problem(value.mark, dotted(path), text + (f".{hint}" if hint else ""))


def _expected(error: ErrorDetails, path: Path) -> str:
    context = dict(error.get("ctx", {}))
    if error["type"] == "literal_error":
        words = _words(error)
        context["expected"] = ("one of " if len(words) > 1 else "") + ", ".join(words)
    if error["type"] == "part_type":
        key = next(str(key) for key in reversed(path) if isinstance(key, str))
        context["example"] = next(iter(parts.table(key)), "...")
    if error["type"] in ("too_short", "too_long"):
        least, most = context.get("min_length"), context.get("max_length")
        return f"a list of at {'least' if most is None else 'most'} {least if most is None else most} entries"
    if error["type"] == "value_error":  # a check of ddlsim, whose text starts like this
        return str(context["error"]).removeprefix("expected ")
    template = _EXPECTED.get(error["type"])
    if template is None:
        return error["msg"].removeprefix("Input should be ")
    return template.format(**context)


def _words(error: ErrorDetails) -> list[str]:
    """Return the words of a Literal from pydantic's "'a', 'b' or 'c'"."""
    if error["type"] != "literal_error":
        return []
    return [word.strip().strip("'") for word in error["ctx"]["expected"].replace(" or ", ", ").split(",")]


def shown(value: Tree) -> str:
    """Return a value as YAML, shortened."""
    plain = value.plain()
    if isinstance(plain, str):
        text = repr(plain)
    elif plain is None:
        return "nothing (null)"
    elif plain in (math.inf, -math.inf):
        return ".inf" if plain > 0 else "-.inf"
    elif isinstance(plain, dict):
        text = "{" + ", ".join(f"{key}: {json.dumps(child)}" for key, child in plain.items()) + "}"
    else:
        text = json.dumps(plain)
    return text if len(text) <= 60 else text[:57] + "..."


def _name_hint(path: Path) -> str:
    if path[-1] == "name" and len(path) > 1 and path[-2] in parts.TABLES:
        return f". Known names: {', '.join(parts.table(str(path[-2])))}"
    return ""


def _unknown_key(tree: Tree, path: Path, owner: type[BaseModel]) -> str:
    allowed = allowed_keys(tree, path[:-1], owner)
    if owner is Scenario and len(path) > 1 and path[-1] in Scenario.model_fields:
        return f"unknown key {path[-1]!r}. It belongs to the top level of the scenario, like {path[0]!r}."
    homes = [section for section, keys in _section_keys().items() if path[-1] in keys] if owner is Scenario else []
    hint = f" It belongs under {' or '.join(map(repr, homes))}." if homes else suggestion(path[-1], allowed)
    return f"unknown key {path[-1]!r}.{hint} Allowed here: {', '.join(allowed) or 'nothing'}"


def allowed_keys(tree: Tree, path: Path, owner: Any = Scenario) -> list[str]:
    """Return the allowed keys of the mapping at a path in a tree of an `owner`."""
    for i, key in enumerate(path):
        if isinstance(key, int):
            continue
        if key in parts.TABLES and isinstance(owner, type) and issubclass(owner, BaseModel):
            name, _ = follow(tree, (*path[: i + 1], "name"))
            try:
                owner = parts.table(key)[name.value]
            except (KeyError, TypeError, ScenarioError):
                return ["name"]
        elif owner is not None:
            owner = _owner_below(owner, key)
    if owner is None:
        return []
    if issubclass(owner, BaseModel):
        return [*owner.model_fields, *(["extends"] if owner is Scenario else [])]
    keys = [field.name for field in parts.keys_of(owner)]
    return ["name", *keys] if path and path[-1] in parts.TABLES else keys


def _owner_below(owner: type, key: str) -> type | None:
    if issubclass(owner, BaseModel):
        hint = owner.model_fields[key].annotation if key in owner.model_fields else None
        hint = next((arg for arg in get_args(hint) if isinstance(arg, type) and issubclass(arg, BaseModel)), hint)
        return hint if isinstance(hint, type) and issubclass(hint, BaseModel) else None
    return parts.nested_dataclass(get_type_hints(owner, include_extras=True).get(key))


def _section_keys() -> dict[str, list[str]]:
    sections = {key: field.annotation for key, field in Scenario.model_fields.items()}
    return {
        key: list(hint.model_fields)
        for key, hint in sections.items()
        if isinstance(hint, type) and issubclass(hint, BaseModel)
    }
