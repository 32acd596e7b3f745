"""Arguments of calls from Python as keys of a scenario: parts, data sets and mappings."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ddlsim.data import Arrays
from ddlsim.data.hugging_face import arrays_of
from ddlsim.foundation.errors import ScenarioError, kind_of
from ddlsim.foundation.registry import Part
from ddlsim.report.reading import read_yaml
from ddlsim.runs.options import Options
from ddlsim.scenario import Scenario, parts
from ddlsim.scenario.synonyms import suggestion

KEYS = ("algorithm", "model", "data", "topology")
"""Parts with a separate argument."""


def part_of(key: str, value: Any) -> Any:
    """Return the value of a scenario key for an argument.

    Args:
        key: such as model.
        value: a name; a mapping with a name; a part or its class; for a model also a torch.nn.Module, or a class or
            function that makes modules; for data also a set or pair of sets, see `run`.
    Raises:
        ScenarioError: if the type is unsupported.
    """
    if isinstance(value, str | Part) or _is_part_class(value) or _is_mapping(value):
        return value
    if key == "topology":
        found = value if isinstance(value, list | tuple) else [value]
        if found and all(hasattr(graph, "is_multigraph") for graph in found):  # networkx takes time to import
            from ddlsim.topologies.files import edges_of

            return edges_of(value)
    if key == "model" and callable(value):
        from ddlsim.models.from_python import model_from_python

        return model_from_python(value)
    if key == "data" and isinstance(value, tuple) and len(value) == 2:
        return _arrays(dict(zip(("train", "test"), value, strict=True)))
    if key == "data" and hasattr(value, "__getitem__"):
        return _arrays(value if isinstance(value, Mapping) else {"train": value})
    also = {
        "model": ", a function that makes a torch.nn.Module",
        "data": ", ((x, y), (x_test, y_test))",
        "topology": ", a networkx graph or a list of them, one per round",
    }.get(key, "")
    raise ScenarioError(
        f"{key}: expected a name, a mapping with a name, a part or its class{also}, got {kind_of(value)}."
    )


def _arrays(arguments: Mapping[Any, Any]) -> Any:
    """Return the data set of arrays with these arguments, or of data frames and the like with keys of their readers."""
    splits = {key: arguments[key] for key in ("train", "test", "validation") if arguments.get(key) is not None}
    try:
        keys = {key: value for key, value in arguments.items() if key not in splits}
        found = arrays_of(splits, keys) if "train" in splits else None
        if found is not None:
            return found
        inspect.signature(Arrays).bind(**arguments)
    except TypeError as error:
        raise ScenarioError(
            f"data: expected arguments of ddlsim.data.Arrays, or keys of table or hf: {error}."
        ) from error
    return Arrays(**arguments)


def changes_of(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return changes by dotted key, with parts in place of arguments."""
    return {key: part_of(key, value) if key in KEYS else value for key, value in changes.items()}


def sections_of(options: dict[str, Any]) -> dict[str, Any]:
    """Take the keys of a scenario out of the arguments of a call.

    Raises:
        TypeError: if an argument is neither a key nor an option of a run.
    """
    known = [*Scenario.model_fields, *(field.name for field in fields(Options))]
    for name in options.keys() - known:
        raise TypeError(f"unexpected keyword argument {name!r}.{suggestion(name, known)}")
    return {key: options.pop(key) for key in Scenario.model_fields if key in options}


def flat(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys and values of an argument: a mapping without a name changes only the keys that it has."""
    if not isinstance(value, Mapping) or not value or {"name", "train", "test"} & value.keys():
        yield key, value
        return
    for inner, child in value.items():
        yield from flat(f"{key}.{inner}", child)


def scenario_of(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario mapping with parts in place of arguments.

    As in a file, a mapping without a name has keys of the part of the extended scenario, unless it has arrays.
    """
    own = {
        key: value
        for key, value in mapping.items()
        if not (isinstance(value, Mapping) and not {"name", "train", "test"} & value.keys())
    }
    return {**mapping, **changes_of(own)}


def register(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Register classes under the names that the resumed run has for them.

    Args:
        arguments: key -> as for `part_of`; None: not passed.
    Returns:
        The parts, by key; arrays exist as long as their part.
    """
    found = {key: part_of(key, value) for key, value in arguments.items() if value is not None}
    for key, part in found.items():
        if not isinstance(part, str) and not _is_mapping(part):
            parts.table(key).register_class(part if isinstance(part, type) else type(part))
    return found


def refuse_other_values(directory: Path, arguments: Mapping[str, Any]) -> None:
    """Raise ScenarioError if a part has other values than in the run in a directory.

    Args:
        directory: of the run; without a scenario.yaml nothing is compared.
        arguments: key -> the part; classes and mappings with a name have no values.
    """
    path = directory / "scenario.yaml"
    resolved = read_yaml(path) if arguments and path.is_file() else {}
    for key, part in arguments.items():
        if isinstance(part, Part) and parts.to_plain(key, part) != resolved.get(key):
            raise ScenarioError(
                f"{key}: expected the {type(part).__name__} of the run in {directory}, got one with other values or "
                f'samples. Pass the same one or its class; a branch can change values: set={{"{key}.KEY": ...}}.'
            )


def _is_mapping(value: Any) -> bool:
    name = value.get("name") if isinstance(value, Mapping) else None
    return isinstance(name, str) or _is_part_class(name)


def _is_part_class(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Part)
